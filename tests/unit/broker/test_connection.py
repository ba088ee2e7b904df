"""Frames in, replies out: whatever the pieces in which bytes arrive, and in the order of the requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from headrace.broker.connection import KafkaConnection, PendingReply
from headrace.broker.connection_hub import ConnectionHub
from headrace.broker.metrics import Metrics
from headrace.realworld import RealClock


class FakeTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.sent = bytearray()
        self.reading = True
        self.aborted = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 5) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: Any) -> None:
        self.sent += data

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def abort(self) -> None:
        self.aborted = True

    def close(self) -> None:
        self.aborted = True


class FakeTasks:
    def __init__(self) -> None:
        self.soon: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        self.soon.append((callback, args))

    def thread(self, name: str) -> None:
        return None

    def run_soon(self) -> None:
        while self.soon:
            callback, args = self.soon.pop(0)
            callback(*args)


class FakeWorld:
    def __init__(self) -> None:
        self.clock = RealClock()
        self.tasks = FakeTasks()


class Server:
    """Echoes frames; those that begin with `later` when told, those with `block` as a request that blocks."""

    def __init__(self, *, max_frames_bytes: int = 1 << 30) -> None:
        self.world = FakeWorld()
        self.hub = ConnectionHub(
            self.world,  # type: ignore[arg-type]
            Metrics(self.world.clock),
            max_frame_bytes=8 << 20,
            max_frames_bytes=max_frames_bytes,
            max_pending_replies=3,
            max_connections=3,
            max_connections_per_ip=2,
            max_idle_ms=60_000,
        )
        self.hub.dispatch = self.handle  # type: ignore[assignment]
        self.hub.let_in()
        self.seen: list[bytes] = []
        self.waiting: list[tuple[PendingReply, KafkaConnection, bytes]] = []

    def handle(self, connection: KafkaConnection, view: memoryview, start: int, end: int) -> None:
        body = bytes(view[start:end])
        self.seen.append(body)
        if body.startswith((b"later", b"block")):
            self.waiting.append((connection.expect_reply(0, 0.0), connection, body))
            if body.startswith(b"block"):
                connection.block()
        else:
            connection.reply([body])

    def finish(self, index: int = 0) -> None:
        pending, connection, body = self.waiting.pop(index)
        pending.complete([body])
        if body.startswith(b"block"):
            connection.unblock()

    def connect(self) -> tuple[KafkaConnection, FakeTransport]:
        connection, transport = KafkaConnection(self.hub, "main"), FakeTransport()
        connection.connection_made(transport)
        return connection, transport


def feed(connection: KafkaConnection, data: bytes, piece: int) -> None:
    while data:
        buffer = connection.get_buffer(-1)
        count = min(len(buffer), len(data), piece)
        buffer[:count] = data[:count]
        connection.buffer_updated(count)
        data = data[count:]


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize("piece", [1, 2, 3, 5, 7, 64, 1 << 20])
def test_frames_are_found_in_whatever_pieces_they_arrive(piece: int) -> None:
    server = Server()
    connection, _ = server.connect()
    bodies = [b"a", b"bc" * 40, b"d" * 300]
    feed(connection, b"".join(map(frame, bodies)), piece)
    assert server.seen == bodies


def test_a_frame_larger_than_every_buffer_arrives_whole() -> None:
    server = Server()
    connection, transport = server.connect()
    body = bytes(range(256)) * 20_000
    feed(connection, frame(b"x") + frame(body) + frame(b"y"), 100_000)
    server.world.tasks.run_soon()
    assert server.seen == [b"x", body, b"y"]
    assert transport.sent == b"x" + body + b"y"


def test_replies_leave_in_the_order_of_their_requests() -> None:
    server = Server()
    connection, transport = server.connect()
    feed(connection, frame(b"later1") + frame(b"now") + frame(b"later2"), 1 << 20)
    server.finish(1)
    assert transport.sent == b""
    server.finish(0)
    assert transport.sent == b"later1nowlater2"


def test_a_blocking_request_holds_those_behind_it_and_the_reading() -> None:
    server = Server()
    connection, transport = server.connect()
    feed(connection, frame(b"block") + frame(b"next")[:6], 1 << 20)
    assert server.seen == [b"block"]
    assert not transport.reading
    server.finish()
    assert transport.reading
    feed(connection, frame(b"next")[6:], 1)
    assert server.seen == [b"block", b"next"]
    assert transport.sent == b"blocknext"


def test_a_client_with_too_many_unanswered_requests_is_not_read_further() -> None:
    server = Server()
    connection, transport = server.connect()
    feed(connection, b"".join(frame(b"later%d" % i) for i in range(5)), 1 << 20)
    assert len(server.seen) == 3
    assert not transport.reading
    server.finish()
    assert len(server.seen) == 4


@pytest.mark.parametrize("length", [-1, 0, (8 << 20) + 1, 2**31 - 1])
def test_an_impossible_length_closes_the_connection(length: int) -> None:
    server = Server()
    connection, transport = server.connect()
    feed(connection, length.to_bytes(4, "big", signed=True), 4)
    assert transport.aborted
    assert server.seen == []


def test_a_claimed_length_gets_no_memory_before_its_bytes_come() -> None:
    server = Server()
    connection, _ = server.connect()
    feed(connection, (8 << 20).to_bytes(4, "big") + b"x", 5)
    assert server.hub.metrics.frames_bytes <= 1 << 20


def test_when_memory_for_frames_is_used_up_others_wait_their_turn() -> None:
    server = Server(max_frames_bytes=1 << 20)
    first, _ = server.connect()
    second, transport = server.connect()
    body = b"z" * (2 << 20)
    feed(first, frame(body)[:-1], 1 << 20)
    feed(second, frame(body)[:1000], 1000)  # one read, after which it is not read from
    assert not transport.reading
    feed(first, frame(body)[-1:], 1)
    first.connection_lost(None)
    server.world.tasks.run_soon()
    assert transport.reading
    feed(second, frame(body)[1000:], 1 << 20)
    assert server.seen == [body, body]


def test_connections_beyond_the_limit_are_refused() -> None:
    server = Server()
    transports = [server.connect()[1] for _ in range(3)]
    assert [t.aborted for t in transports] == [False, False, True]
    assert server.hub.metrics.connections == 2


def test_an_idle_connection_is_closed_and_one_that_waits_for_us_is_not() -> None:
    server = Server()
    _, idle = server.connect()
    connection, waiting = server.connect()
    feed(connection, frame(b"block"), 64)
    for _ in range(61):
        server.hub.next_tick()
    assert idle.aborted
    assert not waiting.aborted


def test_a_frame_that_is_never_finished_is_given_up() -> None:
    server = Server()
    connection, transport = server.connect()
    feed(connection, frame(b"x" * 100)[:50], 64)
    for _ in range(31):
        server.hub.next_tick()
    assert transport.aborted
