# SPDX-License-Identifier: Apache-2.0
"""Targets: bytes that reach a node's sockets, on a Kafka listener and on the operators' endpoint.

In one piece and byte by byte they have the same effect. Read next: catalog.py.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

from headrace.broker.metrics import Metrics
from headrace.broker.reporting.http_endpoint import HttpEndpoint
from headrace.broker.reporting.http_server import MAX_HEAD_BYTES, HttpConnection
from headrace.broker.security.metrics_token import MetricsToken
from headrace.config import load_config
from headrace.realworld import RealClock, RealFiles
from tests.harness.broker.fake_clients import Server, frame
from tests.harness.broker.metric_sources import metric_sources
from tests.harness.fuzzing.target import Target

_WHOLE = 1 << 20
_MAX_FRAME = 4096


def receive(data: bytes) -> None:
    """A node's connection, as asyncio calls it: the same requests and replies however the bytes are cut."""
    assert _received(data, _WHOLE) == _received(data, 1) == _received(data, 7)


def _received(data: bytes, piece: int) -> tuple[list[bytes], bytes, bool]:
    server = _server()
    server.seen.clear()
    connection, transport = server.connect()
    transport.arrive(data, piece)
    while server.waiting and not connection.closed:
        server.finish()
        transport.arrive(piece=piece)
    server.waiting.clear()
    server.world.tasks.run_soon()
    transport.arrive(piece=piece)
    connection.connection_lost(None)
    assert server.connections.metrics.frames_bytes == 0
    return list(server.seen), bytes(transport.sent), transport.ended


@cache
def _server() -> Server:
    return Server(max_frame_bytes=_MAX_FRAME)


def _streams() -> Sequence[bytes]:
    bodies = (b"a", b"echo", b"later one", b"block two", b"x" * 300)
    whole = b"".join(frame(body) for body in bodies)
    return [*(frame(body) for body in bodies), whole, whole * 3, frame(b"later") * 8, frame(b"block") * 4]


class _HttpTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.sent += data

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


class _Tasks:
    """Tasks that `run` brings to their end; timers never fire."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._spawned: list[asyncio.Task[Any]] = []

    def spawn(self, coroutine: Any, *, name: str) -> asyncio.Task[Any]:
        task = self.loop.create_task(coroutine, name=name)
        self._spawned.append(task)
        return task

    def call_later(self, delay_s: float, callback: object) -> Any:
        return types.SimpleNamespace(cancel=lambda: None)

    async def sleep(self, seconds: float) -> None:
        assert seconds >= 0

    def thread(self, name: str) -> _Thread:
        return _Thread()

    def run(self) -> None:
        while self._spawned:
            self.loop.run_until_complete(self._spawned.pop())


class _Thread:
    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    def close(self) -> None:
        pass


@cache
def _endpoint() -> tuple[HttpEndpoint, _Tasks]:
    tasks, clock = _Tasks(), RealClock()
    world: Any = types.SimpleNamespace(clock=clock, tasks=tasks, network=None)
    token = MetricsToken(RealFiles(), load_config(None, {}, None))
    return HttpEndpoint(world, metric_sources(Metrics(clock)), lambda: None, token), tasks


def ask_endpoint(data: bytes) -> None:
    """An answer of HTTP and the end of the connection, or nothing as long as the head is incomplete."""
    sent = _answer(data, len(data) or 1)
    assert _answer(data, 1 if len(data) < 500 else 97) == sent
    assert not sent or sent.startswith(b"HTTP/1.1 ")
    assert not sent.startswith(b"HTTP/1.1 500")


def _answer(data: bytes, piece: int) -> bytes:
    """The status line alone: metrics change."""
    endpoint, tasks = _endpoint()
    connection, transport = HttpConnection(endpoint.server), _HttpTransport()
    connection.connection_made(transport)
    for place in range(0, len(data), piece):
        for received in _in_buffers(connection, data[place : place + piece]):
            connection.buffer_updated(received)
        assert len(connection._received) <= MAX_HEAD_BYTES + piece
    tasks.run()
    connection.connection_lost(None)
    assert transport.closed == bool(transport.sent)
    return transport.sent.partition(b"\r\n")[0]


def _in_buffers(connection: HttpConnection, data: bytes) -> Iterator[int]:
    """Writes the bytes into the buffers of the connection, one after the other."""
    while data:
        buffer = connection.get_buffer(-1)
        count = min(len(buffer), len(data))
        buffer[:count], data = data[:count], data[count:]
        yield count


def _http_requests() -> Sequence[bytes]:
    targets = (b"/metrics", b"/healthz", b"/readyz?x=1", b"/", b"/" + b"a" * 9000)
    return [
        method + b" " + target + b" HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
        for method in (b"GET", b"HEAD", b"POST")
        for target in targets
    ]


NETWORK_TARGETS = (
    Target(name="connections", run=receive, sound=_streams),
    Target(name="http", run=ask_endpoint, sound=_http_requests),
)
