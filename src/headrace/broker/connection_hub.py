"""What all connections of a node share: the read buffer, the limits, the clock's tick.

Read next: connection.py.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.broker.connection import KafkaConnection
from headrace.broker.metrics import Metrics
from headrace.world import World

if TYPE_CHECKING:
    from headrace.broker.dispatch import Dispatcher

logger = logging.getLogger(__name__)

SHARED_BUFFER_BYTES = 256 * 1024
STALLED_FRAME_TICKS = 30
"""A frame that gets no byte for this long will not be finished."""
IDLE_BUFFER_TICKS = 5


class ConnectionHub:
    """`tick` counts seconds, so that a read costs no look at the clock."""

    def __init__(
        self,
        world: World,
        metrics: Metrics,
        *,
        max_frame_bytes: int,
        max_frames_bytes: int,
        max_pending_replies: int,
        max_connections: int,
        max_connections_per_ip: int,
        max_idle_ms: int,
    ) -> None:
        self.metrics = metrics
        self.clock = world.clock
        self.call_soon = world.tasks.call_soon
        self.cold_reads = world.tasks.thread("cold-read")
        self.max_frame_bytes = max_frame_bytes
        self.max_pending_replies = max_pending_replies
        self.shared_view = memoryview(bytearray(SHARED_BUFFER_BYTES))
        self.tick = 0
        self.dispatch: Dispatcher = None  # type: ignore[assignment]
        self._max_frames_bytes = max_frames_bytes
        self._starved: deque[KafkaConnection] = deque()
        self._max_connections = max_connections
        self._max_per_ip = max_connections_per_ip
        self._max_idle_ticks = max(1, max_idle_ms // 1000)
        self._connections: dict[KafkaConnection, str] = {}
        self._per_ip: Counter[str] = Counter()
        self._is_open = False

    def factory(self, listener: str) -> Callable[[], KafkaConnection]:
        return lambda: KafkaConnection(self, listener)

    def admit(self, connection: KafkaConnection, ip: str) -> bool:
        if len(self._connections) >= self._max_connections or self._per_ip[ip] >= self._max_per_ip:
            self.metrics.connections_refused += 1
            logger.warning("refusing connection from %s: the limit of connections is reached", ip)
            return False
        connection.last_active_tick = self.tick
        self._connections[connection] = ip
        self._per_ip[ip] += 1
        self.metrics.connections += 1
        self.metrics.connections_opened += 1
        if not self._is_open:
            connection.hold()
        return True

    def open(self) -> None:
        """The node is ready: those who came early are heard."""
        self._is_open = True
        for connection in self._connections:
            connection.unblock()

    def forget(self, connection: KafkaConnection) -> None:
        ip = self._connections.pop(connection, None)
        if ip is None:
            return
        self.metrics.connections -= 1
        self._per_ip[ip] -= 1
        if not self._per_ip[ip]:
            del self._per_ip[ip]

    def reserve(self, connection: KafkaConnection, byte_count: int) -> bool:
        """Memory for a frame; when the node's share for frames is used up, the connection is told later."""
        metrics = self.metrics
        if metrics.frames_bytes + byte_count > self._max_frames_bytes:
            for other in self._connections:
                if other is not connection:
                    other.drop_idle_buffer()
        if metrics.frames_bytes and metrics.frames_bytes + byte_count > self._max_frames_bytes:
            self._starved.append(connection)
            return False
        metrics.frames_bytes += byte_count
        return True

    def give_back(self, byte_count: int) -> None:
        self.metrics.frames_bytes -= byte_count
        if self._starved:
            self.call_soon(self._starved.popleft().memory_returned)

    def next_tick(self) -> None:
        """Once a second: ends what is idle, gives back what is not used."""
        self.tick += 1
        for connection in list(self._connections):
            if connection.waiting_for_us:
                connection.last_active_tick = self.tick
            idle = self.tick - connection.last_active_tick
            if idle >= self._max_idle_ticks:
                connection.refuse(f"idle for {idle} s")
            elif idle >= STALLED_FRAME_TICKS and connection.gathering:
                connection.refuse(f"no byte of an unfinished frame for {idle} s")
            elif idle >= IDLE_BUFFER_TICKS:
                connection.drop_idle_buffer()

    def close_all(self) -> None:
        for connection in list(self._connections):
            connection.close()
