"""What all connections of a node share: the read buffer, the limits, the clock's tick.

Read next: connection.py, frame_memory.py.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.broker.connection import KafkaConnection
from headrace.broker.frame_memory import FrameMemory
from headrace.broker.metrics import Metrics
from headrace.config import NodeConfig
from headrace.world import World

if TYPE_CHECKING:
    from headrace.broker.dispatch import Dispatcher

logger = logging.getLogger(__name__)

SHARED_BUFFER_BYTES = 256 * 1024
SHORT_BUFFER_BYTES = 16 * 1024
"""What is read ahead of a client at a time once the memory for requests is used up."""
STALLED_FRAME_TICKS = 30
"""A frame that gets no byte for this long will not be finished."""
SLOWEST_BYTES_PER_TICK = 1024
"""Nor will one that comes slower than this, once it has had STALLED_FRAME_TICKS."""
IDLE_BUFFER_TICKS = 5
MOST_LINES_PER_TICK = 20
"""Of the log, about connections that were closed: a flood of bad clients must not fill the disk."""
CLOSING_S = 1.0
_CLOSING_STEP_S = 0.01


class ConnectionHub:
    """`tick` counts seconds, so that a read costs no look at the clock.

    No request is started before `open` nor after `stop_requests`.
    """

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
        self.max_pending_replies = 0
        self.memory = FrameMemory(metrics, max_frames_bytes, self.call_soon, self._drop_idle_buffers)
        self.shared_view = memoryview(bytearray(SHARED_BUFFER_BYTES))
        self.short_view = self.shared_view[:SHORT_BUFFER_BYTES]
        self.tick = 0
        self.dispatch: Dispatcher = None  # type: ignore[assignment]
        self._tasks = world.tasks
        self._max_pending_replies_when_open = max_pending_replies
        self._max_connections = max_connections
        self._max_per_ip = max_connections_per_ip
        self._max_idle_ticks = max(1, max_idle_ms // 1000)
        self._connections: dict[KafkaConnection, str] = {}
        self._per_ip: Counter[str] = Counter()
        self._refused_ips: Counter[str] = Counter()  # since the last tick
        self._lines = 0  # the same

    def factory(self, listener: str) -> Callable[[], KafkaConnection]:
        return lambda: KafkaConnection(self, listener)

    def admit(self, connection: KafkaConnection, ip: str) -> bool:
        if len(self._connections) >= self._max_connections or self._per_ip[ip] >= self._max_per_ip:
            self.metrics.connections_refused += 1
            self._refused_ips[ip] += 1
            return False
        connection.last_active_tick = self.tick
        self._connections[connection] = ip
        self._per_ip[ip] += 1
        self.metrics.connections += 1
        self.metrics.connections_opened += 1
        return True

    def let_in(self) -> None:
        """The node is ready: those who came early are heard."""
        self.max_pending_replies = self._max_pending_replies_when_open
        for connection in list(self._connections):
            connection.go_on()

    def forget(self, connection: KafkaConnection) -> None:
        self.memory.frame_done(connection)
        ip = self._connections.pop(connection, None)
        if ip is None:
            return
        self.metrics.connections -= 1
        self._per_ip[ip] -= 1
        if not self._per_ip[ip]:
            del self._per_ip[ip]

    def tell(self, connection: KafkaConnection, reason: str) -> None:
        """The log, why a connection is closed."""
        self._lines += 1
        if self._lines <= MOST_LINES_PER_TICK:
            logger.warning(
                "closing connection from %s on %s: %s", connection.peer, connection.listener, reason
            )

    def _drop_idle_buffers(self) -> None:
        for connection in self._connections:
            connection.drop_idle_buffer()

    # Once a second

    def next_tick(self) -> None:
        """Ends what is idle, gives back what is not used."""
        self.tick += 1
        self._sum_up()
        for connection in list(self._connections):
            self._look_after(connection)

    def _sum_up(self) -> None:
        if self._lines > MOST_LINES_PER_TICK:
            logger.warning("closed %d more connections for the like", self._lines - MOST_LINES_PER_TICK)
        self._lines = 0
        for ip, count in self._refused_ips.most_common(3):
            logger.warning("refused %d connections from %s: the limit of connections is reached", count, ip)
        self._refused_ips.clear()

    def _look_after(self, connection: KafkaConnection) -> None:
        if connection.closed:
            connection.abort()
            return
        if connection.waiting_for_us:
            connection.last_active_tick = self.tick
            return
        idle = self.tick - connection.last_active_tick
        if idle >= self._max_idle_ticks:
            logger.debug("closing connection from %s: idle for %d s", connection.peer, idle)
            connection.close()
        elif connection.slow_frame_bytes is not None:
            self._refuse_when_slow(connection, connection.slow_frame_bytes, idle)
        elif idle >= IDLE_BUFFER_TICKS:
            connection.drop_idle_buffer()

    def _refuse_when_slow(self, connection: KafkaConnection, byte_count: int, idle: int) -> None:
        """Whoever claims memory for a frame sends it. When memory is short, within STALLED_FRAME_TICKS."""
        age = self.tick - connection.frame_began_tick
        if idle >= STALLED_FRAME_TICKS:
            connection.refuse(f"no byte of an unfinished frame for {idle} s")
        elif age >= STALLED_FRAME_TICKS and (
            self.memory.short or byte_count < age * SLOWEST_BYTES_PER_TICK
        ):
            connection.refuse(f"only {byte_count} bytes of a frame in {age} s")

    # The end

    def stop_requests(self) -> None:
        """What is under way may end, and be answered; nothing new begins."""
        self.max_pending_replies = 0

    async def close(self) -> None:
        """Replies that were given get a moment to leave."""
        for connection in list(self._connections):
            connection.close()
        deadline = self.clock.monotonic() + CLOSING_S
        while self._connections and self.clock.monotonic() < deadline:
            await self._tasks.sleep(_CLOSING_STEP_S)
        for connection in list(self._connections):
            connection.abort()
        if self._connections:
            await self._tasks.sleep(0)


def connection_hub(
    world: World, metrics: Metrics, config: NodeConfig, *, max_connections: int
) -> ConnectionHub:
    """Connections get half of the descriptors at most: one that takes the last would hurt the logs."""
    return ConnectionHub(
        world,
        metrics,
        max_frame_bytes=config["socket.request.max.bytes"],
        max_frames_bytes=config["headrace.request.memory.bytes"],
        max_pending_replies=config["headrace.connection.max.in.flight.requests"],
        max_connections=min(config["max.connections"], max_connections),
        max_connections_per_ip=config["max.connections.per.ip"],
        max_idle_ms=config["connections.max.idle.ms"],
    )
