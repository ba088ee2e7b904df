"""Between a client's socket and the broker: notes requests, and lets them meet the faults of a test.

It reads only the headers of requests and the lengths of replies. Replies leave in the order of the requests,
also those that were delayed or made here. Read next: faults.py, error_replies.py.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from headrace.broker.replication.peers import PEER_CLIENT
from headrace.errors import DecodeError
from headrace.testing.embedded.error_replies import error_reply
from headrace.testing.embedded.faults import Disconnect, Fault, FaultPlan
from headrace.wire.api_key import ApiKey
from headrace.wire.api_table import RequestHeader, read_request_header
from headrace.wire.messages import decode_request
from headrace.wire.requests.produce import read_produce

_LENGTH_BYTES = 4
_KEYS = {key.value: key for key in ApiKey}


class _Reply:
    """The place of one reply in the order of replies."""

    __slots__ = ("disconnects", "dropped", "frame", "held")

    def __init__(self) -> None:
        self.frame: bytes | None = None
        self.held = False
        self.dropped = False
        self.disconnects = False


class ClientLink(asyncio.Protocol):
    def __init__(self, inner: asyncio.BufferedProtocol, plan: FaultPlan) -> None:
        self._inner = inner
        self._plan = plan
        self._incoming = bytearray()
        self._outgoing = bytearray()
        self._replies: deque[_Reply] = deque()
        self._transport: asyncio.Transport
        self._cut = False

    # From the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._inner.connection_made(cast(asyncio.Transport, _Transport(transport, self._written)))

    def connection_lost(self, error: Exception | None) -> None:
        self._inner.connection_lost(error)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def data_received(self, data: bytes) -> None:
        self._incoming += data
        while (frame := _take_frame(self._incoming)) is not None:
            self._request(frame)

    # Requests

    def _request(self, frame: bytes) -> None:
        fault, header = self._meet(frame)
        reply = _Reply()
        if fault is None or header is None:
            if header is None or not _has_no_reply(header, frame):
                self._replies.append(reply)
            self._pass_on(frame)
        elif fault.disconnect is Disconnect.BEFORE:
            self._transport.abort()
        else:
            self._replies.append(reply)
            self._apply(fault, header, frame, reply)

    def _meet(self, frame: bytes) -> tuple[Fault | None, RequestHeader | None]:
        try:
            header = read_request_header(memoryview(frame), _LENGTH_BYTES, len(frame))
        except DecodeError:
            return None, None
        api = _KEYS.get(header.api_key)
        if api is None or (header.client_id or "").startswith(PEER_CLIENT):
            return None, header
        return self._plan.meet(api, header.api_version, header.client_id), header

    def _apply(self, fault: Fault, header: RequestHeader, frame: bytes, reply: _Reply) -> None:
        reply.dropped = fault.drop
        reply.disconnects = fault.disconnect is Disconnect.AFTER
        if fault.delay_s:
            reply.held = True
            asyncio.get_running_loop().call_later(fault.delay_s, self._release, reply)
        if fault.error is None:
            self._pass_on(frame)
            return
        key, version, correlation_id, _, position = header
        request = decode_request(key, version, memoryview(frame), position, len(frame))
        reply.frame = error_reply(key, version, correlation_id, request, fault.error)
        self._send_ready()

    def _pass_on(self, frame: bytes) -> None:
        view = memoryview(frame)
        while view:
            room = memoryview(self._inner.get_buffer(len(view)))
            count = min(len(room), len(view))
            room[:count] = view[:count]
            self._inner.buffer_updated(count)
            view = view[count:]

    # Replies

    def _written(self, data: bytes | bytearray | memoryview) -> None:
        if self._cut:
            return
        self._outgoing += data
        while (frame := _take_frame(self._outgoing)) is not None:
            waiting = next((each for each in self._replies if each.frame is None), None)
            assert waiting is not None, "the broker sends a reply that nobody waits for"
            waiting.frame = frame
        self._send_ready()

    def _release(self, reply: _Reply) -> None:
        reply.held = False
        self._send_ready()

    def cut(self) -> None:
        """The broker has died: nothing of it reaches the client any more."""
        self._cut = True
        self._transport.abort()

    def _send_ready(self) -> None:
        while self._replies and self._replies[0].frame is not None and not self._replies[0].held:
            reply = self._replies.popleft()
            if reply.disconnects:
                self._transport.abort()
            elif not reply.dropped and reply.frame is not None:
                self._transport.write(reply.frame)


def _has_no_reply(header: RequestHeader, frame: bytes) -> bool:
    if header.api_key != ApiKey.PRODUCE:
        return False
    request = read_produce(memoryview(frame), header.body_position, len(frame), header.api_version)
    return request.acks == 0


class _Transport:
    """What the broker sees of the socket. It has no descriptor to give away: nothing passes the link by."""

    def __init__(self, transport: asyncio.Transport, write: Callable[[Any], None]) -> None:
        self._transport = transport
        self.write = write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default if name == "socket" else self._transport.get_extra_info(name, default)


def _take_frame(buffer: bytearray) -> bytes | None:
    if len(buffer) < _LENGTH_BYTES:
        return None
    size = _LENGTH_BYTES + int.from_bytes(buffer[:_LENGTH_BYTES], "big")
    if len(buffer) < size:
        return None
    frame = bytes(buffer[:size])
    del buffer[:size]
    return frame
