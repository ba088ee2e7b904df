# SPDX-License-Identifier: Apache-2.0
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
from headrace.errors import ApiError, DecodeError
from headrace.testing.embedded.error_replies import error_reply, metadata_with_error
from headrace.testing.embedded.faults import Disconnect, Fault, FaultPlan
from headrace.testing.embedded.received import ReceivedRequest
from headrace.wire.api_key import ApiKey
from headrace.wire.api_table import read_request_header
from headrace.wire.error_codes import ErrorCode
from headrace.wire.requests.produce import read_produce

_LENGTH_BYTES = 4
_KEYS = {key.value: key for key in ApiKey}


class _Reply:
    """The place of one reply in the order of replies."""

    __slots__ = ("disconnects", "dropped", "frame", "held", "rewrite")

    def __init__(self) -> None:
        self.frame: bytes | None = None
        self.held = False
        self.dropped = False
        self.disconnects = False
        self.rewrite: Callable[[bytes], bytes] | None = None


class ClientLink(asyncio.Protocol):
    def __init__(self, inner: asyncio.BufferedProtocol, plan: FaultPlan) -> None:
        self._inner = inner
        self._plan = plan
        self._incoming = bytearray()
        self._rest = memoryview(b"")
        """Of the request that the broker is being given."""
        self._paused = False
        self._outgoing = bytearray()
        self._replies: deque[_Reply] = deque()
        self._transport: asyncio.Transport | None = None
        self._leader_change: asyncio.Task[None] | None = None
        self._cut = False

    # From the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._inner.connection_made(cast(asyncio.Transport, _Transport(transport, self)))
        if self._cut:
            transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._cut = True
        self._inner.connection_lost(error)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def data_received(self, data: bytes) -> None:
        self._incoming += data
        self._take_requests()

    # Requests

    def pause_reading(self) -> None:
        """Called by the broker while it cannot take a further request."""
        self._paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._paused = False
        if self._transport is not None:
            self._transport.resume_reading()
        asyncio.get_running_loop().call_soon(self._take_requests)

    def _take_requests(self) -> None:
        self._give_rest()
        while self._takes_requests() and (frame := _take_frame(self._incoming)) is not None:
            request = self._read(frame)
            if request is None:
                self._replies.append(_Reply())
                self._pass_on(frame)
            elif self._plan.needs_partitions(request):
                self._answer(request, ErrorCode.fetch_session_id_not_found)
            else:
                self._meet(request)

    def _takes_requests(self) -> bool:
        is_gone = self._transport is None or self._transport.is_closing()
        return not (self._paused or self._rest or is_gone) and self._leader_change is None

    def _read(self, frame: bytes) -> ReceivedRequest | None:
        """None for what is not a client's request."""
        try:
            header = read_request_header(memoryview(frame), _LENGTH_BYTES, len(frame))
        except DecodeError:
            return None
        api = _KEYS.get(header.api_key)
        if api is None or (header.client_id or "").startswith(PEER_CLIENT):
            return None
        request = ReceivedRequest(api, header, frame, self._plan.topic_name)
        self._plan.requests.add(request)
        return request

    def _meet(self, request: ReceivedRequest) -> None:
        fault = self._plan.meet(request)
        if fault is None:
            if not _has_no_reply(request):
                self._replies.append(_Reply())
            self._pass_on(request.frame)
        elif fault.move_leader_to is not None:
            self._leader_change = asyncio.get_running_loop().create_task(self._change_leader(fault, request))
        else:
            self._apply(fault, request)

    async def _change_leader(self, fault: Fault, request: ReceivedRequest) -> None:
        """While the request waits, and all that come after it."""
        assert fault.topic is not None
        assert fault.move_leader_to is not None
        try:
            await self._plan.move_leader(fault.topic, fault.partition or 0, fault.move_leader_to)
        except (ApiError, ValueError) as error:
            fault.problem = str(error)
        self._leader_change = None
        if not self._cut:
            self._apply(fault, request)
            self._take_requests()

    def _apply(self, fault: Fault, request: ReceivedRequest) -> None:
        if fault.disconnect is Disconnect.BEFORE:
            self._abort()
        elif _has_no_reply(request):
            self._apply_without_reply(fault, request)
        elif fault.error is not None and request.api is not ApiKey.METADATA:
            self._answer(request, fault.error, fault)
        else:
            reply = self._new_reply(fault)
            if fault.error is not None:
                reply.rewrite = _metadata_rewrite(fault, fault.error, request)
            self._pass_on(request.frame)

    def _apply_without_reply(self, fault: Fault, request: ReceivedRequest) -> None:
        """As Kafka does: a producer that wants no reply learns of an error by the end of its connection."""
        if fault.error is None:
            self._pass_on(request.frame)
        if fault.error is not None or fault.disconnect is not None:
            self._abort()

    def _answer(self, request: ReceivedRequest, error: ErrorCode, fault: Fault | None = None) -> None:
        """In the place of the broker, which does not get the request."""
        if request.message is None:  # what it cannot read, it answers best itself
            self._replies.append(_Reply())
            self._pass_on(request.frame)
            return
        reply = self._new_reply(fault)
        key, version, correlation_id, _, _ = request.header
        reply.frame = error_reply(key, version, correlation_id, request.message, error)
        self._send_ready()

    def _new_reply(self, fault: Fault | None) -> _Reply:
        reply = _Reply()
        self._replies.append(reply)
        if fault is not None:
            reply.dropped = fault.drop
            reply.disconnects = fault.disconnect is Disconnect.AFTER
            if fault.delay_s:
                reply.held = True
                asyncio.get_running_loop().call_later(fault.delay_s, self._release, reply)
        return reply

    def _pass_on(self, frame: bytes) -> None:
        self._rest = memoryview(frame)
        self._give_rest()

    def _give_rest(self) -> None:
        while self._rest and not self._paused:
            room = memoryview(self._inner.get_buffer(len(self._rest)))
            count = min(len(room), len(self._rest))
            room[:count] = self._rest[:count]
            self._rest = self._rest[count:]
            self._inner.buffer_updated(count)

    # Replies

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._cut:
            return
        self._outgoing += data
        while (frame := _take_frame(self._outgoing)) is not None:
            waiting = next((each for each in self._replies if each.frame is None), None)
            assert waiting is not None, "the broker sends a reply that nobody waits for"
            waiting.frame = frame if waiting.rewrite is None else waiting.rewrite(frame)
        self._send_ready()

    def _release(self, reply: _Reply) -> None:
        reply.held = False
        self._send_ready()

    def cut(self) -> None:
        """The broker has died: nothing of it reaches the client any more, as after a disconnect."""
        self._cut = True
        self._abort()

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _send_ready(self) -> None:
        while self._replies and self._replies[0].frame is not None and not self._replies[0].held:
            reply = self._replies.popleft()
            if reply.disconnects:
                self._abort()
            elif not reply.dropped and reply.frame is not None and self._transport is not None:
                self._transport.write(reply.frame)


def _has_no_reply(request: ReceivedRequest) -> bool:
    if request.api is not ApiKey.PRODUCE:
        return False
    header, frame = request.header, request.frame
    try:
        produce = read_produce(memoryview(frame), header.body_position, len(frame), header.api_version)
    except DecodeError:
        return False
    return produce.acks == 0


def _metadata_rewrite(fault: Fault, error: ErrorCode, request: ReceivedRequest) -> Callable[[bytes], bytes]:
    def is_affected(topic: str) -> bool:
        return fault.topic in (None, topic)

    return lambda frame: metadata_with_error(frame, request.header.api_version, error, is_affected)


class _Transport:
    """What the broker sees of the socket. It has no descriptor to give away: nothing passes the link by."""

    def __init__(self, transport: asyncio.Transport, link: ClientLink) -> None:
        self._transport = transport
        self.write = link.write
        self.pause_reading = link.pause_reading
        self.resume_reading = link.resume_reading

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
