# SPDX-License-Identifier: Apache-2.0
"""One client connection: reads frames, sends replies in the order of their requests.

Independent of the request type. A request starts when the one before it is answered, except that produce
requests may follow each other while they wait for their acknowledgement.
Read next: dispatch/dispatcher.py (the meaning of a frame), send_queue.py (the way out), connections.py
(shared limits).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Any, Protocol, cast

from headrace.broker.metrics import ClientActivity, Metrics
from headrace.broker.network.frame_memory import FrameMemory
from headrace.broker.network.request_context import RequestContext
from headrace.broker.network.send_queue import LogSlice, Part, SendQueue, release_slices
from headrace.errors import DecodeError
from headrace.principal import ANONYMOUS, NODE, Principal
from headrace.wire.requests.offset_commit_codec import OffsetCommitCodec
from headrace.wire.requests.repeated_codec import RepeatedCodec
from headrace.world import Clock, Thread, Timer

FAIR_SHARE_BYTES = 256 * 1024
"""After this much from one socket, others are read; without it their p99 is ten times as long."""

MOST_REQUESTS_PER_TURN = 64
"""The same for small requests, each of which may take a tenth of a millisecond."""

FIRST_BUFFER_BYTES = 4 * 1024
"""Of an unfinished frame, however long it claims to be: thousands of clients may send a few bytes."""
COUNTED_REPLY_BYTES = 64 * 1024
"""Replies of at least this size count as memory until they are sent."""
KEPT_BUFFER_BYTES = 4 << 20
READY_PARTS = 256
"""Replies leave in one piece at the end of a read, or earlier when they are this many pieces."""
_TLS_HANDSHAKE = 0x160301
"""The first bytes of a client that speaks TLS."""
_LENGTH = Struct(">i")
_LENGTH_BYTES = _LENGTH.size
_HEAD = Struct(">4xh")  # the API key, behind the length
_HEAD_BYTES = _HEAD.size


class RequestRun(Protocol):
    """Handles requests of one API that are alike together, given the last one on the connection."""

    def take(self, view: memoryview, position: int, end: int) -> tuple[int, PendingReply] | None:
        """Handles the frames at `position` that are like the last one.

        Where the first other frame begins, and the replies; None when the frame at `position` is unlike it.
        """


Dispatch = Callable[["KafkaConnection", memoryview, int, int], None]
"""Handles the request in view[start:end]; raises DecodeError to close the connection."""


PrincipalOf = Callable[[bytes | None], Principal]
"""The principal of a client by its TLS certificate, if any; raises DecodeError to close the connection."""


class Shared(Protocol):
    """What the connections of a node have in common: limits, buffers, counters, the dispatcher."""

    metrics: Metrics
    clock: Clock
    cold_reads: Thread
    memory: FrameMemory
    max_frame_bytes: int
    max_login_frame_bytes: int
    """Of a connection that has not logged in (S1)."""
    max_pending_replies: int
    shared_view: memoryview
    """The read buffer."""
    short_view: memoryview
    """The part of it to use when memory for requests is short."""
    tick: int
    """Seconds, counted so that a read need not ask the clock."""

    @property
    def call_soon(self) -> Callable[[Callable[[], None]], None]: ...

    @property
    def call_later(self) -> Callable[[float, Callable[[], None]], Timer]: ...

    @property
    def dispatch(self) -> Dispatch: ...

    @property
    def before_login(self) -> Dispatch:
        """Handles the requests of a connection that has to log in first."""

    def admit(self, connection: KafkaConnection, ip: str) -> bool: ...

    def forget(self, connection: KafkaConnection) -> None: ...

    def handshake_done(self, connection: KafkaConnection) -> None: ...

    def logged_in(self, connection: KafkaConnection) -> None: ...

    def log_refusal(self, connection: KafkaConnection, reason: str) -> None: ...


@dataclass(slots=True, eq=False)
class PendingReply:
    """A place in the order of replies, for `count` requests that are answered later."""

    connection: KafkaConnection
    api_key: int
    started: float
    count: int
    parts: list[Part] | None = None

    def complete(self, parts: list[Part]) -> None:
        if self.connection.closed:
            release_slices(parts)
        else:
            self.parts = parts
            self.connection.reply_completed()


class KafkaConnection(asyncio.BufferedProtocol):
    """Small frames are handled in the shared buffer, within the read that brought them. A frame that does not
    fit is gathered in a buffer of the connection's own, which grows only as bytes arrive."""

    __slots__ = (
        "_backlog",
        "_backlog_bytes",
        "_blocks",
        "_buffer",
        "_burst",
        "_filled",
        "_frame_size",
        "_in_pass",
        "_length_head",
        "_max_frame_bytes",
        "_muted_until",
        "_pending",
        "_principal_of",
        "_reading",
        "_ready_parts",
        "_send_queue",
        "_shared",
        "_starved",
        "_transport",
        "_unmute",
        "_unsent_bytes",
        "access",
        "activity",
        "address",
        "closed",
        "codecs",
        "frame_began_tick",
        "has_logged_in",
        "in_handshake",
        "last_active_tick",
        "listener",
        "login",
        "needs_login",
        "on_close",
        "on_more",
        "opened_tick",
        "peer",
        "principal",
        "runs",
        "session_ends_tick",
    )

    def __init__(
        self,
        shared: Shared,
        listener: str,
        *,
        needs_login: bool = False,
        principal_of: PrincipalOf | None = None,
    ) -> None:
        """`principal_of` only for listeners with TLS: no byte arrives before `handshake_completed`."""
        self.listener = listener
        self.peer = ""
        self.address = ""
        self.principal = ANONYMOUS
        self.needs_login = needs_login
        self.has_logged_in = False
        self.in_handshake = principal_of is not None
        self._principal_of = principal_of
        self.login: Any = None
        """The login under way (security/login.py)."""
        self.access: Any = None
        """What the principal may do (security/authorization.py)."""
        self.session_ends_tick: int | None = None
        """When the client has to log in again (KIP-368)."""
        self.opened_tick = shared.tick
        self.activity = ClientActivity(shared.clock)
        self._max_frame_bytes = shared.max_login_frame_bytes if needs_login else shared.max_frame_bytes
        self.closed = False
        self.last_active_tick = 0
        self.frame_began_tick = 0
        self.on_close: Callable[[], None] | None = None
        self.on_more: Callable[[], None] | None = None
        """Called once when bytes arrive that have to wait for the running request."""
        self.runs: dict[int, RequestRun] = {}
        """By API key; set by the handler of a request when more like it can be handled together."""
        self.codecs: dict[int, tuple[RepeatedCodec | OffsetCommitCodec, RequestContext]] = {}
        """By API key, with the context of the last request; set by the dispatcher where requests repeat."""
        self._shared = shared
        self._transport: asyncio.Transport = None  # type: ignore[assignment]
        self._send_queue: SendQueue = None  # type: ignore[assignment]
        self._buffer: bytearray | None = None
        self._frame_size = 0  # of the frame being gathered; 0 when there is none
        self._filled = 0
        self._length_head = b""  # fewer than the four bytes of a frame's length
        self._backlog: memoryview | None = None  # bytes that arrived while no request could start
        self._backlog_bytes = 0  # memory it uses
        self._unsent_bytes = 0  # memory of large replies that the client has not read
        self._blocks = 0  # how often `block` was called without `unblock`
        self._muted_until = 0.0
        self._unmute: Timer | None = None  # while it is throttled
        self._starved = False  # of memory for a large frame
        self._reading = True
        self._burst = 0
        self._in_pass = False
        self._pending: deque[PendingReply] = deque()
        self._ready_parts: list[Part] = []

    # asyncio's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop has classes of its own
        address = transport.get_extra_info("peername")
        self.peer = f"{address[0]}:{address[1]}" if address else "?"
        self.address = address[0] if address else ""
        shared = self._shared
        self._send_queue = SendQueue(self._transport, shared.cold_reads, shared.call_soon, self.go_on)
        if not shared.admit(self, self.address):
            self.closed = True
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        on_close, self.on_close = self.on_close, None
        if on_close is not None:
            on_close()
        self._send_queue.close()
        if self._unmute is not None:
            self._unmute.cancel()
        for reply in self._pending:
            release_slices(reply.parts or ())
        self._pending.clear()
        self._drop_buffer()
        self._drop_backlog()
        self._drop_unsent()
        self._shared.forget(self)

    def pause_writing(self) -> None:
        self._send_queue.pause_writing()

    def resume_writing(self) -> None:
        self.last_active_tick = self._shared.tick  # whoever reads a long reply is not idle
        self._send_queue.resume_writing()

    def eof_received(self) -> bool:
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._frame_size:
            assert self._buffer is not None
            end = min(self._frame_size, self._filled + FAIR_SHARE_BYTES)
            return memoryview(self._buffer)[self._filled : end]
        shared, head = self._shared, self._length_head
        buffer = shared.short_view if shared.memory.used_up else shared.shared_view
        if not head:
            return buffer
        buffer[: len(head)] = head  # nobody else reads before `buffer_updated`
        return buffer[len(head) :]

    def buffer_updated(self, count: int) -> None:
        if self.closed:
            return
        shared = self._shared
        shared.metrics.bytes_in += count
        self.last_active_tick = shared.tick
        self._in_pass = True
        try:
            if self._frame_size:
                self._gathered(count)
            else:
                head, self._length_head = self._length_head, b""
                self._take(shared.shared_view, len(head) + count)
        except DecodeError as error:
            self.refuse(str(error))
            return
        self._end_pass()
        self._burst += count
        if self._burst > FAIR_SHARE_BYTES and self._reading:
            self._burst = 0
            self._transport.pause_reading()
            shared.call_soon(self._next_turn)

    # Frames

    def _take(self, view: memoryview, end: int, *, is_backlog: bool = False) -> None:
        """Handles the frames in view[:end]; keeps what must wait."""
        position, runs, left = 0, self.runs, MOST_REQUESTS_PER_TURN
        while end - position >= _LENGTH_BYTES:
            if self._must_wait():
                break
            if runs and end - position >= _HEAD_BYTES:
                run = runs.get(_HEAD.unpack_from(view, position)[0])
                if run is not None and (taken := run.take(view, position, end)) is not None:
                    position, reply = taken
                    requests = self.activity.requests
                    requests[reply.api_key] = requests.get(reply.api_key, 0) + reply.count
                    self._pending.append(reply)
                    if reply.parts is not None:
                        self.reply_completed()
                    continue
            (size,) = _LENGTH.unpack_from(view, position)
            if not 0 < size <= self._max_frame_bytes:
                raise DecodeError(_bad_size(size, self._max_frame_bytes))
            frame_end = position + _LENGTH_BYTES + size
            if frame_end > end:
                if self._gather(view[position + _LENGTH_BYTES : end], size):
                    return
                break
            dispatch = self._shared.before_login if self.needs_login else self._shared.dispatch
            dispatch(self, view, position + _LENGTH_BYTES, frame_end)
            position = frame_end
            left -= 1
            if not left:
                self._end_turn()
        if position == end:
            return
        if not self._must_wait():
            self._length_head = bytes(view[position:end])
        else:
            self._backlog = view[position:end] if is_backlog else self._copy(view[position:end])

    def _end_turn(self) -> None:
        """The rest of what was read waits until other connections were served."""
        self.block()
        self._shared.call_soon(self.unblock)

    def _must_wait(self) -> bool:
        return (
            self._blocks > 0
            or self._starved
            or len(self._pending) >= self._shared.max_pending_replies
            or self._send_queue.congested
        )

    def _copy(self, view: memoryview) -> memoryview:
        """Copies out of the shared buffer; writable, since batches are patched in place."""
        self._backlog_bytes = len(view)
        self._shared.memory.take(self, self._backlog_bytes)
        return memoryview(bytearray(view))

    def _drop_backlog(self) -> None:
        self._backlog = None
        if self._backlog_bytes:
            self._shared.memory.give_back(self, self._backlog_bytes)
            self._backlog_bytes = 0

    def _gather(self, first: memoryview, size: int) -> bool:
        """False when there is no memory for the frame now."""
        wanted = min(size, max(FIRST_BUFFER_BYTES, 2 * len(first)))
        if self._buffer is None or len(self._buffer) < wanted:
            self._drop_buffer()
            if not self._shared.memory.reserve(self, wanted):
                self._starved = True
                return False
            self._buffer = bytearray(wanted)
        self._frame_size = size
        self.frame_began_tick = self._shared.tick
        self._filled = len(first)
        self._buffer[: self._filled] = first
        return True

    def _gathered(self, count: int) -> None:
        self._filled += count
        buffer = self._buffer
        assert buffer is not None
        if self._filled < self._frame_size:
            if self._filled == len(buffer):
                self._grow()
            return
        size, self._frame_size = self._frame_size, 0
        dispatch = self._shared.before_login if self.needs_login else self._shared.dispatch
        dispatch(self, memoryview(buffer), 0, size)
        if len(buffer) > KEPT_BUFFER_BYTES or self._shared.memory.short:
            self._drop_buffer()
        self._shared.memory.frame_done(self)

    def _grow(self) -> None:
        """Doubles the buffer: memory is reserved only as bytes arrive."""
        assert self._buffer is not None
        more = min(self._frame_size, 2 * len(self._buffer)) - len(self._buffer)
        if self._shared.memory.reserve(self, more):
            self._buffer = self._buffer + bytes(more)
        else:
            self._starved = True
            self._stop_reading()

    def memory_returned(self) -> None:
        """Memory that this connection waits for may be available."""
        self._starved = False
        if self.closed:
            return
        self.frame_began_tick = self.last_active_tick = self._shared.tick
        if self._frame_size:
            self._grow()
        if not self._starved:
            self.go_on()

    def _drop_buffer(self) -> None:
        if self._buffer is not None:
            buffer, self._buffer = self._buffer, None
            self._shared.memory.give_back(self, len(buffer))

    def drop_idle_buffer(self) -> None:
        if not self._frame_size:
            self._drop_buffer()

    def _count_unsent(self, byte_count: int) -> None:
        self._unsent_bytes += byte_count
        self._shared.memory.take(self, byte_count)

    def _drop_unsent(self) -> None:
        if self._unsent_bytes:
            byte_count, self._unsent_bytes = self._unsent_bytes, 0
            self._shared.memory.give_back(self, byte_count)

    # What Connections.next_tick looks at

    @property
    def awaited_bytes(self) -> int | None:
        """As FrameMemory asks: what is left to send of a large reply, or received of an incomplete frame."""
        return self._transport.get_write_buffer_size() if self._unsent_bytes else self.slow_frame_bytes

    @property
    def slow_frame_bytes(self) -> int | None:
        """Bytes received of an incomplete frame; None when there is no such frame."""
        return self._filled if self._frame_size and self._reading else None

    @property
    def waiting_for_us(self) -> bool:
        """A request is being handled or waits for memory, and the client reads its replies."""
        blocks = self._blocks - (self._unmute is not None)
        return (blocks > 0 or self._starved or bool(self._pending)) and not self._send_queue.congested

    # Order of requests and replies

    def block(self) -> None:
        """No further request starts until `unblock` was called as often."""
        self._blocks += 1

    def unblock(self) -> None:
        self._blocks -= 1
        self.go_on()

    def mute(self, seconds: float) -> None:
        """Starts no further request for this long, and reads none; replies are still sent (KIP-219)."""
        until = self._shared.clock.monotonic() + seconds
        if self.closed or until <= self._muted_until:
            return
        self._muted_until = until
        if self._unmute is None:
            self.block()
        else:
            self._unmute.cancel()
        self._unmute = self._shared.call_later(seconds, self._end_mute)
        self._stop_reading()

    def _end_mute(self) -> None:
        self._unmute = None
        self.unblock()

    def expect_reply(self, api_key: int, started: float, count: int = 1) -> PendingReply:
        pending = PendingReply(self, api_key, started, count)
        self._pending.append(pending)
        return pending

    def reply(self, parts: list[Part]) -> None:
        """Answers the request that is being handled."""
        if self._pending or not self._in_pass:
            self.expect_reply(-1, 0.0).complete(parts)
            return
        self._ready_parts += parts
        if len(self._ready_parts) > READY_PARTS:
            self._send_ready()

    def answer(self, api_key: int, started: float, frame: bytes) -> None:
        """Answers the request that is being handled, whose reply is not expected yet."""
        if self._pending or not self._in_pass:
            self.expect_reply(api_key, started).complete([frame])
        elif not self.closed:
            shared = self._shared
            shared.metrics.request_done(api_key, shared.clock.monotonic() - started)
            self._ready_parts.append(frame)
            if len(self._ready_parts) > READY_PARTS:
                self._send_ready()

    def reply_completed(self) -> None:
        pending, metrics = self._pending, self._shared.metrics
        now = self._shared.clock.monotonic()
        while pending and (parts := pending[0].parts) is not None:
            done = pending.popleft()
            self._ready_parts += parts
            if done.count > 1:
                metrics.requests_done(done.api_key, (now - done.started) * done.count, done.count)
            elif done.api_key >= 0:
                metrics.request_done(done.api_key, now - done.started)
        if not self._in_pass:
            self._end_pass()
            if self._backlog is not None:
                self.go_on()

    def _end_pass(self) -> None:
        self._in_pass = False
        if self._ready_parts:
            self._send_ready()
        if self._backlog is not None:
            self._stop_reading()
            if self.on_more is not None:
                self._shared.call_soon(self.on_more)
                self.on_more = None

    def _send_ready(self) -> None:
        parts, self._ready_parts = self._ready_parts, []
        in_memory = in_files = 0
        for part in parts:
            if isinstance(part, LogSlice):
                in_files += part.size
            else:
                in_memory += len(part)
        self._shared.metrics.bytes_out += in_memory + in_files
        self._send_queue.send(parts)
        if in_memory >= COUNTED_REPLY_BYTES and self._send_queue.congested and not self.closed:
            self._count_unsent(in_memory)

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._transport.pause_reading()

    def go_on(self) -> None:
        """Continues with the backlog, then with the socket, if nothing has to be waited for."""
        if self._unsent_bytes and not self._send_queue.congested:
            self._drop_unsent()
        if self.closed or self._in_pass:
            return
        if self._backlog is not None and not self._must_wait():
            self._take_backlog(self._backlog)
        waits = self._starved or self._unmute is not None or self._send_queue.congested
        if self._backlog is None and not (self._reading or waits):
            self._reading = True
            self._transport.resume_reading()

    def _take_backlog(self, backlog: memoryview) -> None:
        self._backlog = None
        self._in_pass = True
        try:
            self._take(backlog, len(backlog), is_backlog=True)
        except DecodeError as error:
            self.refuse(str(error))
            return
        if self._backlog is None:
            self._drop_backlog()
        self._end_pass()

    def _next_turn(self) -> None:
        if self._reading and not self.closed:
            self._transport.resume_reading()

    # TLS and login

    def handshake_completed(self, certificate: bytes | None) -> None:
        """A login by SASL decides alone who the client is, as in Kafka."""
        assert self._principal_of is not None
        self.in_handshake = False
        self.opened_tick = self.last_active_tick = self._shared.tick
        self._shared.handshake_done(self)
        if self.needs_login:
            return
        try:
            self.principal = self._principal_of(certificate)
        except DecodeError as error:
            self.refuse(str(error))

    def tls_failed(self, reason: str) -> None:
        self.refuse(reason)

    def logged_in(self, principal: Principal, session_ms: int) -> None:
        """Opens the connection for all requests; `session_ms` 0: for as long as it lasts."""
        self.principal = principal
        self.has_logged_in = True
        self.needs_login = False
        self.login = None
        ticks = 1 + -(-session_ms // 1000)  # rather a little late than before the client expects it
        self.session_ends_tick = self._shared.tick + ticks if session_ms else None
        self._max_frame_bytes = self._shared.max_frame_bytes
        self.forget_requests()
        self._shared.logged_in(self)

    @property
    def may_log_in(self) -> bool:
        """As in Kafka, once, and again only where the session ends (KIP-368)."""
        return not self.has_logged_in or self.needs_login or self.session_ends_tick is not None

    @property
    def has_memory_of_its_own(self) -> bool:
        """Other nodes do not wait for memory that clients hold."""
        return self.principal.kind == NODE

    def require_login(self) -> None:
        self.needs_login = True
        self._max_frame_bytes = self._shared.max_login_frame_bytes

    def end_session(self) -> None:
        """The client has to log in again before its next request."""
        self.require_login()
        self.session_ends_tick = None
        self.opened_tick = self._shared.tick
        self.forget_requests()

    def forget_requests(self) -> None:
        """The next request of each API is decoded and checked in full."""
        self.runs.clear()
        self.codecs.clear()
        self.access = None

    # Closing

    def refuse(self, reason: str) -> None:
        """Closes the connection for an error of the client; earlier replies are still sent."""
        if self.closed:
            return
        self._shared.log_refusal(self, reason)
        self._end_pass()
        self.close()

    def close(self) -> None:
        """What cannot be sent within a second is dropped: see Connections.next_tick."""
        self.closed = True
        if self._send_queue.congested:
            self._transport.abort()
        else:
            self._transport.close()

    def abort(self) -> None:
        self.closed = True
        self._transport.abort()


def _bad_size(size: int, limit: int) -> str:
    if size >> 8 == _TLS_HANDSHAKE:
        return "the client begins a TLS handshake; this listener has none (security.protocol=PLAINTEXT)"
    return f"a frame of {size} bytes; 1 to {limit} are allowed"
