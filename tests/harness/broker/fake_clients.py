# SPDX-License-Identifier: Apache-2.0
"""Connections without sockets: a transport that is told what the network does, and a node's connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.broker.metrics import Metrics
from headrace.broker.network.connection import KafkaConnection, PendingReply
from headrace.broker.network.connections import Connections
from headrace.broker.network.send_queue import Part
from headrace.log.segments.descriptors import DescriptorPool
from headrace.log.segments.log_slice import LogSlice
from headrace.machines.quotas.connection_rates import ConnectionRates
from headrace.machines.quotas.rates import Window
from headrace.realworld import RealClock
from headrace.testing.memory_files import MemoryFiles
from headrace.world import write_all


class FakeTransport(asyncio.Transport):
    """`room` is what the client's side still takes; what does not fit is buffered, as uvloop does."""

    def __init__(self, protocol: asyncio.BufferedProtocol | None = None, address: str = "127.0.0.1") -> None:
        super().__init__()
        self.protocol = protocol
        self._address = address
        self.sent = bytearray()
        self.room = 1 << 40
        self.reading = True
        self.aborted = False
        self.closing = False
        self.arrived = bytearray()
        self.buffered = bytearray()
        self._high = 1 << 16
        self._paused = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self._address, 5) if name == "peername" else default

    # Out

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None
        self._high = high
        self._tell()

    def get_write_buffer_size(self) -> int:
        return len(self.buffered)

    def write(self, data: Any) -> None:
        self.buffered += data
        self._send()
        self._tell()

    def _send(self) -> None:
        count = min(self.room, len(self.buffered))
        self.sent += self.buffered[:count]
        del self.buffered[:count]
        self.room -= count

    def _tell(self) -> None:
        if self.protocol is not None and len(self.buffered) > self._high and not self._paused:
            self._paused = True
            self.protocol.pause_writing()

    def client_reads(self, byte_count: int = 1 << 40) -> None:
        self.room += byte_count
        self._send()
        if self._paused and len(self.buffered) <= self._high // 4:
            self._paused = False
            assert self.protocol is not None
            self.protocol.resume_writing()

    # In

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def arrive(self, data: bytes = b"", piece: int = 1 << 20) -> None:
        """The protocol gets it while it reads; the rest waits, as in the kernel."""
        self.arrived += data
        protocol = self.protocol
        assert protocol is not None
        while self.arrived and self.reading and not self.ended:
            buffer = memoryview(protocol.get_buffer(-1))
            assert len(buffer) > 0
            count = min(len(buffer), len(self.arrived), piece)
            buffer[:count] = self.arrived[:count]
            del self.arrived[:count]
            protocol.buffer_updated(count)

    # Ends

    @property
    def ended(self) -> bool:
        return self.aborted or self.closing

    def abort(self) -> None:
        self.aborted = True

    def close(self) -> None:
        self.closing = True


@dataclass(slots=True, eq=False)
class FakeTimer:
    delay_s: float
    callback: Callable[..., object]
    args: tuple[Any, ...]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeTasks:
    """What is to run soon runs when told; what is given to a thread, when told too."""

    def __init__(self) -> None:
        self.soon: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self.timers: list[FakeTimer] = []
        self.jobs: list[tuple[asyncio.Future[Any], Callable[..., Any], tuple[Any, ...]]] = []

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        self.soon.append((callback, args))

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> FakeTimer:
        timer = FakeTimer(delay_s, callback, args)
        self.timers.append(timer)
        return timer

    def run_timers(self) -> None:
        """In the order of their delays."""
        timers, self.timers = sorted(self.timers, key=lambda timer: timer.delay_s), []
        for timer in timers:
            if not timer.cancelled:
                timer.callback(*timer.args)

    def run_soon(self) -> None:
        while self.soon:
            callback, args = self.soon.pop(0)
            callback(*args)

    def thread(self, name: str) -> FakeTasks:
        return self

    def run(self, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.jobs.append((future, function, args))
        return future

    async def run_jobs(self) -> None:
        while self.jobs:
            future, function, args = self.jobs.pop(0)
            try:
                future.set_result(function(*args))
            except OSError as error:
                future.set_exception(error)
            await asyncio.sleep(0)


class FakeWorld:
    def __init__(self) -> None:
        self.clock = RealClock()
        self.tasks = FakeTasks()


class Server:
    """Echoes frames; those that begin with `later` when told, those with `block` as a request that blocks.

    A frame that begins with `slice` is answered with a range of a file, `pinned` tells how many are open.
    """

    def __init__(
        self, rates: ConnectionRates | None = None, *, node_listener: str | None = None, **limits: int
    ) -> None:
        self.world = FakeWorld()
        defaults = {
            "max_frame_bytes": 8 << 20,
            "max_frames_bytes": 1 << 30,
            "max_pending_replies": 3,
            "max_connections": 30,
            "max_connections_per_ip": 20,
            "max_idle_ms": 60_000,
        }
        make: Any = Connections
        self.connections: Connections = make(
            self.world,
            Metrics(self.world.clock),
            **{**defaults, **limits},
            rates=rates or ConnectionRates(Window(), 1_000),
            node_listener=node_listener,
        )
        self.connections.start(self.handle, self.handle)
        self.seen: list[bytes] = []
        self.waiting: list[tuple[PendingReply, KafkaConnection, bytes]] = []
        self.files = MemoryFiles()
        self.pool = DescriptorPool(self.files, 16)

    def handle(self, connection: KafkaConnection, view: memoryview, start: int, end: int) -> None:
        body = bytes(view[start:end])
        self.seen.append(body)
        if body.startswith((b"later", b"block")):
            self.waiting.append((connection.expect_reply(0, 0.0), connection, body))
            if body.startswith(b"block"):
                connection.block()
        elif body.startswith(b"slice"):
            connection.reply(self.slice_reply(body))
        elif body.startswith(b"answer"):
            connection.answer(0, 0.0, body)
        else:
            connection.reply([body])

    def slice_reply(self, body: bytes) -> list[Part]:
        return [b"<", slice_of(self.files, self.pool, body), b">"]

    def finish(self, index: int = 0, parts: list[Part] | None = None) -> None:
        pending, connection, body = self.waiting.pop(index)
        pending.complete(parts or [body])
        if body.startswith(b"block"):
            connection.unblock()

    def connect(self, address: str = "127.0.0.1") -> tuple[KafkaConnection, FakeTransport]:
        connection = KafkaConnection(self.connections, "main")
        transport = FakeTransport(connection, address)
        connection.connection_made(transport)
        return connection, transport

    def ticks(self, count: int) -> None:
        for _ in range(count):
            self.connections.next_tick()


def slice_of(files: MemoryFiles, pool: DescriptorPool, data: bytes, name: str = "a.log") -> LogSlice:
    path = Path("/data") / name
    files.make_directory(path.parent)
    file = files.open(path, "create")
    write_all(file, data, 0)
    file.close()
    return LogSlice(pool.file(path, "read"), 0, len(data), 1)


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body
