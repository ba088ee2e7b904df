# SPDX-License-Identifier: Apache-2.0
"""A simulated network: ordered streams with delays, split writes, windows, resets and partitions.

Like uvloop, a transport holds a reference to the written buffer until it is sent: a buffer that its owner
changes too early arrives changed (R30). Independent of the Kafka protocol. Read next: simworld.py.
"""

from __future__ import annotations

import asyncio
from asyncio import BaseProtocol, BufferedProtocol, Protocol, Transport
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextvars import Context
from dataclasses import dataclass
from random import Random
from typing import Any, cast

from headrace.testing.simloop import Process, SimLoop

_FIRST_PORT = 20_000
_HIGH_WATER = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkProfile:
    """How the network behaves. The window is what the receiver's kernel buffers before the sender waits."""

    least_delay_ms: float = 0.05
    most_delay_ms: float = 2.0
    window_bytes: int = 64 * 1024
    split_probability: float = 0.2
    """Probability that one write arrives in several pieces."""
    loss_probability: float = 0.0
    """Probability that a piece is lost and retransmitted later, as in TCP."""
    resent_after_ms: float = 200.0


class SimTransport(Transport):
    """One end of a connection; received data is passed to the protocol in the owner's process."""

    def __init__(
        self, network: SimNetwork, process: Process, context: Context, names: tuple[str, str]
    ) -> None:
        super().__init__(extra={"sockname": (names[0], 0), "peername": (names[1], 0)})
        self.network = network
        self.process = process
        self.context = context
        self.label = f"{names[0]}>{names[1]}"
        self.peer: SimTransport
        self._protocol = BaseProtocol()  # until it is accepted
        self._to_send: deque[memoryview] = deque()
        self._unsent = 0
        self._in_flight = 0
        self._last_arrival = 0.0
        self._stuck: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        """Data sent while the network was partitioned."""
        self._unread = bytearray()
        self._reading = True
        self._eof_arrived = False
        self._closing = False
        self._closed = False
        self._paused_writing = False
        self._high, self._low = _HIGH_WATER, _HIGH_WATER // 4

    def accept(self, listener: SimListener) -> None:
        """Runs as a callback of the transport, so that received data is processed after it."""
        if self._closed:
            return
        self.set_protocol(listener.factory())
        self._protocol.connection_made(self)
        self._hand_over()

    # -- what a protocol calls ------------------------------------------------------------------------

    def set_protocol(self, protocol: BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> BaseProtocol:
        return self._protocol

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading and not self._closing:
            self._reading = True
            self._soon(self._hand_over)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = _HIGH_WATER if high is None else high
        self._low = self._high // 4 if low is None else low
        self._pause_protocol_when_full()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        return self._unsent

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or not len(data):
            return
        view = memoryview(data).cast("B")
        self._to_send.append(view)
        self._unsent += len(view)
        self._soon(self._send)
        self._pause_protocol_when_full()

    def _pause_protocol_when_full(self) -> None:
        if self._unsent > self._high and not self._paused_writing:
            self._paused_writing = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        for data in list_of_data:
            self.write(data)

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        """Sends what is buffered, then ends the connection."""
        if not self._closing:
            self._closing = True
            self._soon(self._send)

    def abort(self) -> None:
        self._end(None)

    # -- sending ------------------------------------------------------------------------------------

    def _soon(self, callback: Callable[..., object], *args: Any) -> None:
        self.network.loop.call_soon(callback, *args, context=self.context)

    def _send(self) -> None:
        if self._closed:
            return
        if self._eof_arrived:  # the peer has closed: its window never opens again
            self._to_send.clear()
            self._unsent = 0
        while self._to_send and self._window_left() > 0:
            self._launch(self._next_piece())
        if self._paused_writing and self._unsent <= self._low:
            self._paused_writing = False
            self._protocol.resume_writing()
        if self._closing and not self._to_send:
            self._end(None)

    def _window_left(self) -> int:
        return self.network.profile.window_bytes - self._in_flight - len(self.peer._unread)

    def _next_piece(self) -> bytes:
        head = self._to_send.popleft()
        size = min(len(head), self._window_left())
        if size > 1 and self.network.random.random() < self.network.profile.split_probability:
            size = self.network.random.randint(1, size)
        if size < len(head):
            self._to_send.appendleft(head[size:])
        self._unsent -= size
        return bytes(head[:size])

    def _launch(self, piece: bytes) -> None:
        self._in_flight += len(piece)
        self.network.sent_bytes += len(piece)
        self._arrive_later(self.peer._receive, piece)

    def _arrive_later(self, callback: Callable[..., object], *args: Any) -> None:
        """Schedules delivery in the receiver's process, never before earlier data of the stream."""
        if self._stuck or self.network.is_cut(self.process.host, self.peer.process.host):
            self._stuck.append((callback, args))
            self.network.stuck[self] = None
            return
        hosts = self.process.host, self.peer.process.host
        self._last_arrival = max(self._last_arrival, self.network.arrival_time(hosts))
        self.network.loop.call_at(self._last_arrival, callback, *args, context=self.peer.context)

    def unstick(self) -> None:
        """Delivers what was held back, as TCP retransmission does."""
        stuck, self._stuck = self._stuck, deque()
        for callback, args in stuck:
            self._arrive_later(callback, *args)

    def lose_stuck(self) -> None:
        """Drops all held data except the reset, which the host sends after its next boot."""
        ends = [(callback, args) for callback, args in self._stuck if callback == self.peer._peer_ended]
        self._stuck = deque(ends)

    # -- receiving ------------------------------------------------------------------------------------

    def _receive(self, piece: bytes) -> None:
        self.peer._in_flight -= len(piece)
        if self._closed:
            self._arrive_later(self.peer._peer_ended, True)
            return
        self._unread += piece
        self.network.loop.note(f"{self.label} received {len(piece)}")
        self._hand_over()

    def _hand_over(self) -> None:
        while self._unread and self._reading and not self._closing:
            self._give_to_protocol()
        self.peer._soon(self.peer._send)
        if self._eof_arrived and not self._unread and not self._closing:
            cast(Protocol, self._protocol).eof_received()
            self.close()

    def _give_to_protocol(self) -> None:
        if isinstance(self._protocol, BufferedProtocol):
            room = memoryview(self._protocol.get_buffer(-1))
            size = min(len(room), len(self._unread))
            room[:size] = self._unread[:size]
            del self._unread[:size]
            self._protocol.buffer_updated(size)
        else:
            data = bytes(self._unread)
            self._unread.clear()
            cast(Protocol, self._protocol).data_received(data)

    # -- the end --------------------------------------------------------------------------------------

    def _end(self, error: Exception | None) -> None:
        if self._closed:
            return
        self._closing = self._closed = True
        self._to_send.clear()
        self._unread.clear()
        self._unsent = 0
        self.network.forget(self)
        self._arrive_later(self.peer._peer_ended, error is not None)
        if self.process.alive:
            self._soon(self._protocol.connection_lost, error)

    def _peer_ended(self, reset: bool) -> None:
        if reset:
            self._end(ConnectionResetError("reset by peer"))
            return
        self._eof_arrived = True
        self._hand_over()

    def reset(self) -> None:
        """Fault injection: both ends lose the connection and all data in flight."""
        self._end(ConnectionResetError("connection reset"))

    def die(self) -> None:
        """The owning process was killed: the kernel resets the connection and drops unsent data."""
        self._end(ConnectionResetError("process died"))


class SimListener:
    def __init__(
        self,
        network: SimNetwork,
        factory: Callable[[], BaseProtocol],
        address: tuple[str, int],
        process: Process,
    ) -> None:
        self._network = network
        self._address = address
        self.factory = factory
        self.process = process
        self.context = process.context()

    @property
    def port(self) -> int:
        return self._address[1]

    def close(self) -> None:
        self._network.listeners.pop(self._address, None)


class SimNetwork:
    """The network between all machines of a simulation. `profile` may be replaced during a run."""

    def __init__(self, loop: SimLoop, random: Random, profile: NetworkProfile) -> None:
        self.loop = loop
        self.random = random
        self.profile = profile
        self.host_profiles: dict[str, NetworkProfile] = {}
        """Of hosts whose links differ, in both directions."""
        self.listeners: dict[tuple[str, int], SimListener] = {}
        self.transports: dict[SimTransport, None] = {}
        self.stuck: dict[SimTransport, None] = {}
        self.sent_bytes = 0
        """By all machines since the start."""
        self._cuts: Counter[tuple[str, str]] = Counter()
        self._waiting_for_heal: list[asyncio.Future[None]] = []
        self._next_port = _FIRST_PORT

    # -- network partitions: packets from one host to another are held back silently -------------------------

    def cut(self, source: str, target: str) -> None:
        """Blocks one direction. Cuts are counted: it needs as many calls of `mend` to open it again."""
        self.loop.note(f"cut {source}>{target}")
        self._cuts[source, target] += 1

    def mend(self, source: str, target: str) -> None:
        if self._cuts[source, target] > 0:
            self._cuts[source, target] -= 1
            self._let_through()

    def mend_all(self) -> None:
        self._cuts.clear()
        self._let_through()

    def is_cut(self, source: str, target: str) -> bool:
        return self._cuts[source, target] > 0

    def host_lost_power(self, host: str) -> None:
        """Drops what the kernel of the host would have retransmitted."""
        for transport in self.stuck:
            if transport.process.host == host:
                transport.lose_stuck()

    def _let_through(self) -> None:
        for transport in list(self.stuck):
            if not self.is_cut(transport.process.host, transport.peer.process.host):
                del self.stuck[transport]
                transport.unstick()
        waiting, self._waiting_for_heal = self._waiting_for_heal, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def wait_connected(self, one: str, other: str) -> None:
        """Waits until packets pass in both directions."""
        while self.is_cut(one, other) or self.is_cut(other, one):
            healed: asyncio.Future[None] = self.loop.create_future()
            self._waiting_for_heal.append(healed)
            await healed

    # -- connections --------------------------------------------------------------------------------------

    def arrival_time(self, hosts: tuple[str, ...] = ()) -> float:
        own = [self.host_profiles[host] for host in hosts if host in self.host_profiles]
        profile = own[0] if own else self.profile
        delay_ms = self.random.uniform(profile.least_delay_ms, profile.most_delay_ms)
        if profile.loss_probability and self.random.random() < profile.loss_probability:
            delay_ms += profile.resent_after_ms
        return self.loop.time() + delay_ms / 1000

    def open_listener(
        self, process: Process, factory: Callable[[], BaseProtocol], host: str, port: int
    ) -> SimListener:
        if port == 0:
            self._next_port += 1
            port = self._next_port
        if (host, port) in self.listeners:
            raise OSError(98, f"address in use: {host}:{port}")
        listener = SimListener(self, factory, (host, port), process)
        self.listeners[host, port] = listener
        return listener

    def find_listener(self, host: str, port: int) -> SimListener:
        listener = self.listeners.get((host, port)) or self.listeners.get(("0.0.0.0", port))
        if listener is None:
            raise ConnectionRefusedError(111, f"no listener on {host}:{port}")
        return listener

    async def open_connection(
        self, process: Process, factory: Callable[[], BaseProtocol], host: str, port: int
    ) -> tuple[Transport, BaseProtocol]:
        await asyncio.sleep(self.arrival_time() - self.loop.time())
        await self.wait_connected(process.host, host)
        listener = self.find_listener(host, port)
        near = SimTransport(self, process, process.context(), (process.name, listener.process.name))
        far = SimTransport(self, listener.process, listener.context, (listener.process.name, process.name))
        near.peer, far.peer = far, near
        self.transports[near] = self.transports[far] = None
        protocol = factory()
        near.set_protocol(protocol)
        far._soon(far.accept, listener)
        protocol.connection_made(near)
        return near, protocol

    def forget(self, transport: SimTransport) -> None:
        self.transports.pop(transport, None)

    def process_died(self, process: Process) -> None:
        for address, listener in list(self.listeners.items()):
            if listener.process is process:
                del self.listeners[address]
        for transport in list(self.transports):
            if transport.process is process:
                transport.die()

    def transports_of(self, process: Process) -> list[SimTransport]:
        return [transport for transport in self.transports if transport.process is process]
