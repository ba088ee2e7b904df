"""A tiny HTTP/1.1 server for operators: /metrics, /healthz, /readyz. One request per connection.

Knows nothing of Kafka. Meant for loopback: there is no authentication.
Read next: metrics_export.py, docs/metrics.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import cast

from headrace.broker.metrics import Metrics
from headrace.broker.metrics_export import CONTENT_TYPE, MetricsExport
from headrace.world import Listener, Timer, World

logger = logging.getLogger(__name__)

MAX_HEAD_BYTES = 8 * 1024
MAX_CONNECTIONS = 32
DEADLINE_S = 10.0
"""A connection is over after this time, whatever it still waits for."""
STALLED_LOOP_S = 10.0

_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
_PLAIN = "text/plain; charset=utf-8"


class _Answer(Exception):
    """Ends the handling of a request with this status and text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class HttpEndpoint:
    """`why_not_ready` gives the reason why the node does not serve, or None when it does."""

    def __init__(self, world: World, metrics: Metrics, why_not_ready: Callable[[], str | None]) -> None:
        self._world = world
        self._metrics = metrics
        self._why_not_ready = why_not_ready
        self._export = MetricsExport(metrics, world)
        self._listener: Listener | None = None
        self._connections: set[_HttpConnection] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> None:
        """Raises OSError when it cannot listen there."""
        self._listener = await self._world.network.listen(lambda: _HttpConnection(self), host, port)

    @property
    def port(self) -> int:
        if self._listener is None:
            raise RuntimeError("the endpoint was not started")
        return self._listener.port

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        for task in self._tasks:
            task.cancel()
        for connection in list(self._connections):
            connection.abort()

    def admit(self, connection: _HttpConnection) -> bool:
        if len(self._connections) >= MAX_CONNECTIONS:
            return False
        self._connections.add(connection)
        return True

    def forget(self, connection: _HttpConnection) -> None:
        self._connections.discard(connection)

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        return self._world.tasks.call_later(delay_s, callback)

    def spawn(self, coroutine: Coroutine[None, None, None]) -> None:
        task = self._world.tasks.spawn(coroutine, name="http")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def respond(self, head: bytes) -> bytes:
        """The whole response to a request's head."""
        content_type, body_wanted = _PLAIN, True
        try:
            method, path = _read_request_line(head)
            body_wanted = method != "HEAD"
            if path == "/metrics":
                status, body, content_type = 200, await self._export.render(), CONTENT_TYPE
            else:
                status, body = 200, self._check(path)
        except _Answer as answer:
            status, body = answer.status, f"{answer.text}\n".encode()
        except Exception:
            logger.exception("the operators' endpoint failed")
            status, body = 500, b"failed; see the node's log\n"
        return _response(status, content_type, body, body_wanted)

    def _check(self, path: str) -> bytes:
        if path == "/healthz":
            stalled_s = self._metrics.seconds_since_tick()
            if stalled_s > STALLED_LOOP_S:
                raise _Answer(503, f"housekeeping has not run for {stalled_s:.0f} s")
            return b"alive\n"
        if path == "/readyz":
            reason = self._why_not_ready()
            if reason is not None:
                raise _Answer(503, f"not ready: {reason}")
            return b"ready\n"
        raise _Answer(404, "there are /metrics, /healthz and /readyz")


def _read_request_line(head: bytes) -> tuple[str, str]:
    line, _, _ = head.partition(b"\r\n")
    words = line.split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1.") or not line.isascii():
        raise _Answer(400, "this port speaks HTTP/1.1")
    method, target = words[0].decode(), words[1].decode()
    if method not in ("GET", "HEAD"):
        raise _Answer(405, "only GET and HEAD")
    return method, target.partition("?")[0]


def _response(status: int, content_type: str, body: bytes, body_wanted: bool) -> bytes:
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\n"
        f"Content-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + (body if body_wanted else b"")


class _HttpConnection(asyncio.Protocol):
    """Gathers a head, answers it, closes. A body is never read."""

    def __init__(self, endpoint: HttpEndpoint) -> None:
        self._endpoint = endpoint
        self._transport: asyncio.Transport | None = None
        self._deadline: Timer | None = None
        self._received = bytearray()
        self._answering = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop has classes of its own
        if not self._endpoint.admit(self):
            self._transport.abort()
            return
        self._deadline = self._endpoint.call_later(DEADLINE_S, self.abort)

    def data_received(self, data: bytes) -> None:
        if self._answering:
            return
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end >= 0:
            self._answer(bytes(self._received[:end]))
        elif len(self._received) > MAX_HEAD_BYTES:
            self._answer(b"")  # not a request line: 400

    def _answer(self, head: bytes) -> None:
        self._answering = True
        self._received.clear()
        self._endpoint.spawn(self._respond(head))

    async def _respond(self, head: bytes) -> None:
        response = await self._endpoint.respond(head)
        if self._transport is not None:
            self._transport.write(response)
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._deadline is not None:
            self._deadline.cancel()
        self._endpoint.forget(self)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
