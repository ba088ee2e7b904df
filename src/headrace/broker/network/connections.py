# SPDX-License-Identifier: Apache-2.0
"""The connections of a node and what they share: read buffer, limits, a clock tick.

Read next: connection.py, frame_memory.py.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection

from headrace.broker.metrics import Metrics
from headrace.broker.network.connection import Dispatch, KafkaConnection, PrincipalOf
from headrace.broker.network.frame_memory import SLOWEST_BYTES_PER_TICK, FrameMemory
from headrace.client_quotas import CONNECTION_CREATION_RATE
from headrace.config import NodeConfig
from headrace.errors import DecodeError
from headrace.machines.quotas.connection_rates import ConnectionRates
from headrace.machines.quotas.rates import Window
from headrace.principal import NODE
from headrace.world import World

logger = logging.getLogger(__name__)

SHARED_BUFFER_BYTES = 256 * 1024
SHORT_BUFFER_BYTES = 16 * 1024
"""Read buffer of a connection once the memory for requests is used up."""
STALLED_FRAME_TICKS = 30
"""A connection is closed when its incomplete frame gets no byte for this long, or when it arrives slower than
SLOWEST_BYTES_PER_TICK for this long; when others wait for memory, much earlier (frame_memory.py)."""
IDLE_BUFFER_TICKS = 5
HANDSHAKE_TICKS = 10
"""A TLS handshake has to be completed within this time."""
MOST_HANDSHAKES = 256
"""TLS handshakes under way; a further one ends the oldest, which is hardly one that goes on."""
MOST_CANDIDATES = 64
"""Connections beyond the limit that may still prove to be nodes; a further one ends the oldest."""
CANDIDATE_TICKS = 3
"""Nodes log in at once."""
LOGIN_TICKS = 10
"""A client has to log in within this time (S1)."""
MOST_LINES_PER_TICK = 20
"""Log lines about closed connections: many bad clients must not fill the disk."""
CREATION_RATE = "max.connection.creation.rate"
CLOSING_S = 1.0
_CLOSING_STEP_S = 0.01


class Connections:
    """`tick` counts seconds, so that a read need not ask the clock.

    No request is started before `start` nor after `stop_requests`.
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
        rates: ConnectionRates,
        max_login_frame_bytes: int = 512 * 1024,
        unlimited_listener: str | None = None,
        node_listener: str | None = None,
    ) -> None:
        """`unlimited_listener`: to which `max.connection.creation.rate` does not apply.
        `node_listener`: where nodes are admitted also when all places of clients are taken."""
        self.metrics = metrics
        self.clock = world.clock
        self.call_soon = world.tasks.call_soon
        self.call_later = world.tasks.call_later
        self.rates = rates
        self.cold_reads = world.tasks.thread("cold-read")
        self.max_frame_bytes = max_frame_bytes
        self.max_login_frame_bytes = min(max_login_frame_bytes, max_frame_bytes)
        self.max_pending_replies = 0
        self.memory = FrameMemory(metrics, max_frames_bytes, self.call_soon, self._drop_idle_buffers)
        self.shared_view = memoryview(bytearray(SHARED_BUFFER_BYTES))
        self.short_view = self.shared_view[:SHORT_BUFFER_BYTES]
        self.tick = 0
        self.dispatch: Dispatch = _not_open
        self.before_login: Dispatch = _not_open
        self._tasks = world.tasks
        self._max_pending_replies_when_open = max_pending_replies
        self._max_connections = max_connections
        self._max_per_ip = max_connections_per_ip
        self._unlimited_listener = unlimited_listener
        self._node_listener = node_listener
        self._max_idle_ticks = max(1, max_idle_ms // 1000)
        self._connections: dict[KafkaConnection, str] = {}
        self._handshakes: dict[KafkaConnection, None] = {}  # under way, the oldest first
        self._uncounted: set[KafkaConnection] = set()  # nodes and candidates: they take no place of clients
        self._candidates: dict[KafkaConnection, None] = {}  # have to prove to be nodes, the oldest first
        self._per_ip: Counter[str] = Counter()
        self._refused_ips: Counter[str] = Counter()  # since the last tick
        self._lines = 0  # the same

    def factory(
        self, listener: str, *, needs_login: bool = False, principal_of: PrincipalOf | None = None
    ) -> Callable[[], KafkaConnection]:
        return lambda: KafkaConnection(self, listener, needs_login=needs_login, principal_of=principal_of)

    def admit(self, connection: KafkaConnection, ip: str) -> bool:
        if not self._has_place(ip):
            if connection.listener != self._node_listener:
                self._count_refusal(ip)
                return False
            self._admit_candidate(connection)
        else:
            self._per_ip[ip] += 1
        connection.last_active_tick = self.tick
        self._connections[connection] = ip
        self.metrics.connections += 1
        self.metrics.connections_opened += 1
        if connection.in_handshake:
            self._begin_handshake(connection)
        self._limit_rate(connection, ip)
        return True

    def _has_place(self, ip: str) -> bool:
        clients = len(self._connections) - len(self._uncounted)
        return clients < self._max_connections and self._per_ip[ip] < self._max_per_ip

    def _admit_candidate(self, connection: KafkaConnection) -> None:
        """Lets a connection in that has to prove at once to be another node: idle clients must not keep
        followers out of the ISR (S3)."""
        if len(self._candidates) >= MOST_CANDIDATES:
            self._refuse_candidate(next(iter(self._candidates)))
        self._candidates[connection] = None
        self._uncounted.add(connection)
        connection.require_login()

    def _refuse_candidate(self, connection: KafkaConnection) -> None:
        del self._candidates[connection]
        self._count_refusal(self._connections[connection])
        connection.abort()

    def _count_refusal(self, ip: str) -> None:
        self.metrics.connections_refused += 1
        self._refused_ips[ip] += 1

    def logged_in(self, connection: KafkaConnection) -> None:
        """A node gives its place back to the clients; a client cannot stay in that of a node."""
        if connection.principal.kind == NODE:
            if connection not in self._uncounted:
                self._uncount(self._connections[connection])
            self._candidates.pop(connection, None)
            self._uncounted.add(connection)
        elif connection in self._candidates:
            self._refuse_candidate(connection)

    def _uncount(self, ip: str) -> None:
        self._per_ip[ip] -= 1
        if not self._per_ip[ip]:
            del self._per_ip[ip]

    def _begin_handshake(self, connection: KafkaConnection) -> None:
        if len(self._handshakes) >= MOST_HANDSHAKES:
            oldest = next(iter(self._handshakes))
            self.log_refusal(oldest, f"its TLS handshake is the oldest of {MOST_HANDSHAKES} under way")
            oldest.abort()
            self.handshake_done(oldest)
        self._handshakes[connection] = None

    def handshake_done(self, connection: KafkaConnection) -> None:
        self._handshakes.pop(connection, None)

    def _limit_rate(self, connection: KafkaConnection, ip: str) -> None:
        """Connections beyond the rate wait; beyond the quota of their address they are closed after it."""
        limited = connection.listener != self._unlimited_listener
        wait_s, quota_exceeded = self.rates.opened(ip, self.clock.monotonic(), limited=limited)
        if not wait_s:
            return
        self.metrics.throttled(CONNECTION_CREATION_RATE if quota_exceeded else CREATION_RATE, wait_s)
        connection.mute(wait_s)
        if quota_exceeded:
            self.call_later(wait_s, connection.abort)

    def start(self, dispatch: Dispatch, before_login: Dispatch) -> None:
        """The node is ready: requests are handled by `dispatch`, first those that arrived early.

        Those of a connection that has not logged in, on a listener that asks for it, by `before_login`.
        """
        self.dispatch = dispatch
        self.before_login = before_login
        self.max_pending_replies = self._max_pending_replies_when_open
        for connection in list(self._connections):
            connection.go_on()

    def forget(self, connection: KafkaConnection) -> None:
        self.memory.frame_done(connection)
        self.handshake_done(connection)
        ip = self._connections.pop(connection, None)
        if ip is None:
            return
        self.metrics.connections -= 1
        if connection not in self._uncounted:
            self._uncount(ip)
        self._uncounted.discard(connection)
        self._candidates.pop(connection, None)

    def forget_requests(self) -> None:
        """The next request of each API is decoded and checked in full, on every connection."""
        for connection in self._connections:
            connection.forget_requests()

    def log_refusal(self, connection: KafkaConnection, reason: str) -> None:
        """Logs why a connection is closed."""
        self._lines += 1
        if self._lines <= MOST_LINES_PER_TICK:
            logger.warning(
                "closing connection from %s on %s: %s", connection.peer, connection.listener, reason
            )

    @property
    def open(self) -> Collection[KafkaConnection]:
        return self._connections.keys()

    def _drop_idle_buffers(self) -> None:
        for connection in self._connections:
            connection.drop_idle_buffer()

    # Once a second

    def next_tick(self) -> None:
        """Closes idle connections and frees idle buffers."""
        self.tick += 1
        self._log_summary()
        for connection in list(self._connections):
            self._check(connection)
        self.memory.next_tick()

    def _log_summary(self) -> None:
        if self._lines > MOST_LINES_PER_TICK:
            more = self._lines - MOST_LINES_PER_TICK
            logger.warning("closed %d more connections for the same reason", more)
        self._lines = 0
        for ip, count in self._refused_ips.most_common(3):
            logger.warning("refused %d connections from %s: the limit of connections is reached", count, ip)
        self._refused_ips.clear()

    def _check(self, connection: KafkaConnection) -> None:
        if connection.closed:
            connection.abort()
            return
        if connection.in_handshake:
            if self.tick - connection.opened_tick >= HANDSHAKE_TICKS:
                connection.refuse(f"no TLS handshake within {HANDSHAKE_TICKS} s")
            return
        if connection in self._candidates and self.tick - connection.opened_tick >= CANDIDATE_TICKS:
            self._refuse_candidate(connection)
            return
        if connection.session_ends_tick is not None and self.tick >= connection.session_ends_tick:
            connection.end_session()
        elif connection.needs_login and self.tick - connection.opened_tick >= LOGIN_TICKS:
            connection.refuse(f"no login within {LOGIN_TICKS} s")
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
        """A client has to send the frame it began; when memory is short, within STALLED_FRAME_TICKS."""
        age = self.tick - connection.frame_began_tick
        if idle >= STALLED_FRAME_TICKS:
            connection.refuse(f"no byte of an unfinished frame for {idle} s")
        elif age >= STALLED_FRAME_TICKS and (self.memory.short or byte_count < age * SLOWEST_BYTES_PER_TICK):
            connection.refuse(f"only {byte_count} bytes of a frame in {age} s")

    # The end

    def stop_requests(self) -> None:
        """Running requests may end and be answered; no new one starts."""
        self.max_pending_replies = 0

    async def close(self) -> None:
        """Closes all connections; replies on their way get a second to be sent."""
        for connection in list(self._connections):
            connection.close()
        deadline = self.clock.monotonic() + CLOSING_S
        while self._connections and self.clock.monotonic() < deadline:
            await self._tasks.sleep(_CLOSING_STEP_S)
        for connection in list(self._connections):
            connection.abort()
        if self._connections:
            await self._tasks.sleep(0)


def make_connections(
    world: World, metrics: Metrics, config: NodeConfig, *, max_connections: int
) -> Connections:
    """Connections get half of the descriptors at most, so that logs can always open files."""
    return Connections(
        world,
        metrics,
        max_frame_bytes=config["socket.request.max.bytes"],
        max_frames_bytes=config["headrace.request.memory.bytes"],
        max_pending_replies=config["headrace.connection.max.in.flight.requests"],
        max_connections=min(config["max.connections"], max_connections),
        max_connections_per_ip=config["max.connections.per.ip"],
        max_idle_ms=config["connections.max.idle.ms"],
        max_login_frame_bytes=config["sasl.server.max.receive.size"],
        rates=ConnectionRates(
            Window(samples=config["quota.window.num"], size_s=config["quota.window.size.seconds"]),
            config[CREATION_RATE],
        ),
        unlimited_listener=config.inter_broker_listener if len(config.listeners) > 1 else None,
        node_listener=None if config.alone else config.inter_broker_listener,
    )


def _not_open(connection: KafkaConnection, view: memoryview, start: int, end: int) -> None:
    raise DecodeError("the node is not ready")
