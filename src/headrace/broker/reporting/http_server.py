# SPDX-License-Identifier: Apache-2.0
"""A small HTTP/1.1 server for operators. One request per connection; a body is never read.

Knows no paths: the endpoint that owns it answers. Independent of Kafka.
Read next: http_endpoint.py (of a node), cores_endpoint.py (of all cores of a host).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Protocol, cast

from headrace.world import Listener, Timer, TlsContext, World

logger = logging.getLogger(__name__)

MAX_HEAD_BYTES = 8 * 1024
MAX_CONNECTIONS = 32
HEAD_DEADLINE_S = 2.0
"""A connection is closed when the head of its request is not there after this time,"""
DEADLINE_S = 10.0
"""and when its answer was not read after this time."""
_READ_BYTES = 2048
_REFUSALS_LOGGED_EVERY_S = 10.0

_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
PLAIN = "text/plain; charset=utf-8"
_END_OF_HEAD = b"\r\n\r\n"
_CHALLENGE = 'WWW-Authenticate: Bearer realm="metrics"\r\n'


class HttpError(Exception):
    """Ends the handling of a request with this status and text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class Token(Protocol):
    """security/metrics_token.py."""

    def accepts(self, head: bytes) -> bool: ...


Answer = Callable[[str, bytes, str], Awaitable[tuple[str, bytes]]]
"""From the path, the request's head and the peer to the content type and the body. Raises HttpError."""


class HttpServer:
    """Connections and their limits; `answer` is asked for each request."""

    def __init__(self, world: World, answer: Answer) -> None:
        self._world = world
        self._answer = answer
        self._logged_at = float("-inf")
        self._listener: Listener | None = None
        self._connections: dict[HttpConnection, None] = {}  # the oldest first
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int, tls: Callable[[], TlsContext] | None = None) -> None:
        """`tls` gives the context of the next connection. Raises OSError when it cannot listen there."""
        self._listener = await self._world.network.listen(lambda: HttpConnection(self), host, port, tls=tls)

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

    def admit(self, connection: HttpConnection) -> None:
        """When there are too many, the oldest one that sent no request makes room, else the oldest of all."""
        if len(self._connections) >= MAX_CONNECTIONS:
            oldest = next(iter(self._connections))
            leaving = next((each for each in self._connections if not each.answering), oldest)
            self.forget(leaving)
            leaving.abort()
        self._connections[connection] = None

    def forget(self, connection: HttpConnection) -> None:
        self._connections.pop(connection, None)

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        return self._world.tasks.call_later(delay_s, callback)

    def spawn(self, coroutine: Coroutine[None, None, None]) -> None:
        task = self._world.tasks.spawn(coroutine, name="http")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def log_refusal(self, peer: str, reason: str) -> None:
        """At most a line every few seconds: whoever is refused may come again at once."""
        now = self._world.clock.monotonic()
        if now - self._logged_at >= _REFUSALS_LOGGED_EVERY_S:
            self._logged_at = now
            logger.warning("the metrics endpoint refused %s: %s", peer, reason)

    async def respond(self, head: bytes, peer: str) -> bytes:
        """The whole response to a request's head."""
        content_type, body_wanted = PLAIN, True
        try:
            method, path = _read_request_line(head)
            body_wanted = method != "HEAD"
            status = 200
            content_type, body = await self._answer(path, head, peer)
        except HttpError as error:
            status, body = error.status, f"{error.text}\n".encode()
        except Exception:
            logger.exception("the operators' endpoint failed")
            status, body = 500, b"failed; see the node's log\n"
        return _response(status, content_type, body, body_wanted)

    def check_token(self, token: Token, head: bytes, peer: str) -> None:
        """Raises HttpError when the request does not show the token."""
        if not token.accepts(head):
            self.log_refusal(peer, "/metrics without the token")
            raise HttpError(401, "/metrics needs the header Authorization: Bearer TOKEN")


def _read_request_line(head: bytes) -> tuple[str, str]:
    line, _, _ = head.partition(b"\r\n")
    words = line.split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1.") or not line.isascii():
        raise HttpError(400, "this port speaks HTTP/1.1")
    method, target = words[0].decode(), words[1].decode()
    if method not in ("GET", "HEAD"):
        raise HttpError(405, "only GET and HEAD")
    return method, target.partition("?")[0]


def _response(status: int, content_type: str, body: bytes, body_wanted: bool) -> bytes:
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\n"
        f"Content-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\n"
        f"{_CHALLENGE if status == 401 else ''}"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + (body if body_wanted else b"")


class HttpConnection(asyncio.BufferedProtocol):
    """Gathers a head, answers it, closes. A body is never read. Also a TlsProtocol of world.py."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._deadline: Timer | None = None
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._received = bytearray()
        self.answering = False
        """The head of its request has arrived."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop has classes of its own
        self._server.admit(self)
        self._deadline = self._server.call_later(HEAD_DEADLINE_S, self.abort)

    def handshake_completed(self, certificate: bytes | None) -> None:
        """A client certificate, where one is required, was verified by the handshake."""

    def tls_failed(self, reason: str) -> None:
        self._server.log_refusal(self._peer(), reason)
        self.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        if self.answering:
            return
        self._received += self._buffer[:count]
        end = self._received.find(_END_OF_HEAD)
        if 0 <= end <= MAX_HEAD_BYTES - len(_END_OF_HEAD):
            self._answer(bytes(self._received[:end]))
        elif len(self._received) > MAX_HEAD_BYTES:
            self._answer(b"")  # not a request line: 400

    def _answer(self, head: bytes) -> None:
        self.answering = True
        self._received.clear()
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = self._server.call_later(DEADLINE_S, self.abort)
        self._server.spawn(self._respond(head))

    async def _respond(self, head: bytes) -> None:
        response = await self._server.respond(head, self._peer())
        if self._transport is not None:
            self._transport.write(response)
            self._transport.close()

    def _peer(self) -> str:
        name = None if self._transport is None else self._transport.get_extra_info("peername")
        return str(name[0]) if name else "a client that has gone"

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._deadline is not None:
            self._deadline.cancel()
        self._server.forget(self)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
