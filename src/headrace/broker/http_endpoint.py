"""A tiny HTTP/1.1 server for operators: /metrics, /healthz, /readyz. One request per connection.

Knows nothing of Kafka. Meant for loopback: there is no authentication.
Read next: metrics_export.py, docs/metrics.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING

from headrace.broker.metrics_export import CONTENT_TYPE, MetricsExport
from headrace.errors import ConfigError
from headrace.world import Listener, Timer

if TYPE_CHECKING:
    from headrace.broker.node import Broker

logger = logging.getLogger(__name__)

SWITCHED_OFF = -1
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
    """One per node; listens where headrace.metrics.host and headrace.metrics.port say."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._tasks_of_world = broker.world.tasks
        self._export = MetricsExport(broker.metrics, broker.world)
        self._listener: Listener | None = None
        self._connections: set[_HttpConnection] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        host, port = self._host, self._broker.config["headrace.metrics.port"]
        if port == SWITCHED_OFF:
            return
        network = self._broker.world.network
        try:
            self._listener = await network.listen(lambda: _HttpConnection(self), host, port)
        except OSError as error:
            raise ConfigError(
                f"the metrics endpoint cannot listen on {host}:{port} ({error.strerror or error}): "
                "choose another headrace.metrics.port (0: a free one; -1: none)"
            ) from error

    @property
    def _host(self) -> str:
        return str(self._broker.config["headrace.metrics.host"])

    @property
    def address(self) -> tuple[str, int] | None:
        """Where it listens; None when it is switched off."""
        return None if self._listener is None else (self._host, self._listener.port)

    async def stop(self) -> None:
        if self._listener is not None:
            self._listener.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
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
        return self._tasks_of_world.call_later(delay_s, callback)

    def spawn(self, coroutine: Coroutine[None, None, None]) -> None:
        task = self._tasks_of_world.spawn(coroutine, name="http")
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
            stalled_s = self._broker.metrics.seconds_since_tick()
            if stalled_s > STALLED_LOOP_S:
                raise _Answer(503, f"housekeeping has not run for {stalled_s:.0f} s")
            return b"alive\n"
        if path == "/readyz":
            self._check_ready()
            return b"ready\n"
        raise _Answer(404, "there are /metrics, /healthz and /readyz")

    def _check_ready(self) -> None:
        if self._broker.not_ready is not None:
            raise _Answer(503, f"not ready: {self._broker.not_ready}")
        if not self._broker.partitions.writable:
            raise _Answer(503, "not ready: the disk is nearly full; reads go on, producing waits for space")


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
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if not self._endpoint.admit(self):
            transport.abort()
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
