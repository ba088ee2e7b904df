"""One client connection: frames in, replies out in the order of their requests.

Knows frames and order, nothing of what requests mean. A request starts when the one before it is answered,
except that produce requests may follow each other while they wait for their acknowledgement.
Read next: dispatch.py (the meaning of a frame), outbox.py (the way out), connection_hub.py (shared limits).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Protocol, cast

from headrace.broker.outbox import Outbox, Part, release_slices
from headrace.errors import DecodeError

if TYPE_CHECKING:
    from headrace.broker.connection_hub import ConnectionHub

FAIR_SHARE_BYTES = 256 * 1024
"""After this much from one socket, the others get a turn; without it their p99 is ten times as long."""

FIRST_BUFFER_BYTES = 64 * 1024
KEPT_BUFFER_BYTES = 4 << 20
READY_PARTS = 256
"""Replies leave in one piece at the end of a read, or earlier when they are this many pieces."""
_LENGTH = Struct(">i")
_LENGTH_BYTES = _LENGTH.size
_HEAD = Struct(">4xh")  # the API key, behind the length
_HEAD_BYTES = _HEAD.size


class Run(Protocol):
    """What a connection sent last, for whoever can handle more of the same with less."""

    def take(self, view: memoryview, position: int, end: int) -> int:
        """Handles what repeats itself at `position`; where the first other frame begins."""


class PendingReply:
    """A place in the order of replies, for a request that is answered later."""

    __slots__ = ("_connection", "api_key", "parts", "started")

    def __init__(self, connection: KafkaConnection, api_key: int, started: float) -> None:
        self._connection = connection
        self.api_key = api_key
        self.started = started
        self.parts: list[Part] | None = None

    def complete(self, parts: list[Part]) -> None:
        if self._connection.closed:
            release_slices(parts)
        else:
            self.parts = parts
            self._connection.reply_completed()


class KafkaConnection(asyncio.BufferedProtocol):
    """Small frames are handled in the hub's shared buffer, within the read that brought them. A frame that
    does not fit is gathered in a buffer of the connection's own, which grows only as bytes arrive."""

    def __init__(self, hub: ConnectionHub, listener: str) -> None:
        self.listener = listener
        self.peer = ""
        self.closed = False
        self.last_active_tick = 0
        self.frame_began_tick = 0
        self.on_close: Callable[[], None] | None = None
        self.on_more: Callable[[], None] | None = None
        """Called once when bytes come that have to wait for the request under way."""
        self.runs: dict[int, Run] = {}
        """By API key; set by whoever handles a frame, if more of the same can be handled with less."""
        self._hub = hub
        self._transport: asyncio.Transport = None  # type: ignore[assignment]
        self._outbox: Outbox = None  # type: ignore[assignment]
        self._buffer: bytearray | None = None
        self._frame_size = 0  # of the frame being gathered; 0 when there is none
        self._filled = 0
        self._length_head = b""  # fewer than the four bytes of a frame's length
        self._backlog: memoryview | None = None  # what arrived while nothing could be started; ours alone
        self._backlog_bytes = 0  # the memory behind it
        self._blocked = False
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
        hub = self._hub
        self._outbox = Outbox(self._transport, hub.cold_reads, hub.call_soon, self.go_on)
        if not hub.admit(self, address[0] if address else ""):
            self.closed = True
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        on_close, self.on_close = self.on_close, None
        if on_close is not None:
            on_close()
        self._outbox.close()
        for reply in self._pending:
            release_slices(reply.parts or ())
        self._pending.clear()
        self._drop_buffer()
        self._drop_backlog()
        self._hub.forget(self)

    def pause_writing(self) -> None:
        self._outbox.pause_writing()

    def resume_writing(self) -> None:
        self.last_active_tick = self._hub.tick  # whoever reads a long reply is not idle
        self._outbox.resume_writing()

    def eof_received(self) -> bool:
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._frame_size:
            assert self._buffer is not None
            end = min(self._frame_size, self._filled + FAIR_SHARE_BYTES)
            return memoryview(self._buffer)[self._filled : end]
        hub, head = self._hub, self._length_head
        shared = hub.short_view if hub.memory.used_up else hub.shared_view
        if not head:
            return shared
        shared[: len(head)] = head  # nobody else reads before `buffer_updated`
        return shared[len(head) :]

    def buffer_updated(self, count: int) -> None:
        if self.closed:
            return
        hub = self._hub
        hub.metrics.bytes_in += count
        self.last_active_tick = hub.tick
        self._in_pass = True
        try:
            if self._frame_size:
                self._gathered(count)
            else:
                head, self._length_head = self._length_head, b""
                self._take(hub.shared_view, len(head) + count)
        except DecodeError as error:
            self.refuse(str(error))
            return
        self._end_pass()
        self._burst += count
        if self._burst > FAIR_SHARE_BYTES and self._reading:
            self._burst = 0
            self._transport.pause_reading()
            hub.call_soon(self._next_turn)

    # Frames

    def _take(self, view: memoryview, end: int, *, is_backlog: bool = False) -> None:
        """Handles the frames in view[:end]; keeps what must wait."""
        position, runs = 0, self.runs
        while end - position >= _LENGTH_BYTES:
            if self._must_wait():
                break
            if runs and end - position >= _HEAD_BYTES:
                run = runs.get(_HEAD.unpack_from(view, position)[0])
                if run is not None and (after := run.take(view, position, end)) > position:
                    position = after
                    continue
            (size,) = _LENGTH.unpack_from(view, position)
            if not 0 < size <= self._hub.max_frame_bytes:
                raise DecodeError(f"a frame of {size} bytes; 1 to {self._hub.max_frame_bytes} are allowed")
            frame_end = position + _LENGTH_BYTES + size
            if frame_end > end:
                if self._gather(view[position + _LENGTH_BYTES : end], size):
                    return
                break
            self._hub.dispatch(self, view, position + _LENGTH_BYTES, frame_end)
            position = frame_end
        if not self._must_wait():
            self._length_head = bytes(view[position:end])
        elif position < end:
            self._backlog = view[position:end] if is_backlog else self._copy(view[position:end])

    def _must_wait(self) -> bool:
        return (
            self._blocked
            or self._starved
            or len(self._pending) >= self._hub.max_pending_replies
            or self._outbox.congested
        )

    def _copy(self, view: memoryview) -> memoryview:
        """Out of the shared buffer; writable, since produce requests are patched in place."""
        self._backlog_bytes = len(view)
        self._hub.memory.take(self._backlog_bytes)
        return memoryview(bytearray(view))

    def _drop_backlog(self) -> None:
        self._backlog = None
        if self._backlog_bytes:
            self._hub.memory.give_back(self._backlog_bytes)
            self._backlog_bytes = 0

    def _gather(self, first: memoryview, size: int) -> bool:
        """False when there is no memory for the frame now."""
        wanted = min(size, max(FIRST_BUFFER_BYTES, 2 * len(first)))
        if self._buffer is None or len(self._buffer) < wanted:
            self._drop_buffer()
            if not self._hub.memory.reserve(self, wanted):
                self._starved = True
                return False
            self._buffer = bytearray(wanted)
        self._frame_size = size
        self.frame_began_tick = self._hub.tick
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
        self._hub.dispatch(self, memoryview(buffer), 0, size)
        if len(buffer) > KEPT_BUFFER_BYTES or self._hub.memory.short:
            self._drop_buffer()
        self._hub.memory.frame_done(self)

    def _grow(self) -> None:
        """Doubles: a client that only claims to send much gets no memory for it."""
        assert self._buffer is not None
        more = min(self._frame_size, 2 * len(self._buffer)) - len(self._buffer)
        if self._hub.memory.reserve(self, more):
            self._buffer = self._buffer + bytes(more)
        else:
            self._starved = True
            self._stop_reading()

    def memory_returned(self) -> None:
        """Others gave back what this connection waits for."""
        self._starved = False
        if self.closed:
            return
        self.frame_began_tick = self.last_active_tick = self._hub.tick
        if self._frame_size:
            self._grow()
        if not self._starved:
            self.go_on()

    def _drop_buffer(self) -> None:
        if self._buffer is not None:
            buffer, self._buffer = self._buffer, None
            self._hub.memory.give_back(len(buffer))

    def drop_idle_buffer(self) -> None:
        if not self._frame_size:
            self._drop_buffer()

    # What the hub looks at

    @property
    def slow_frame_bytes(self) -> int | None:
        """How much there is of a frame that its sender is to finish; None when there is no such frame."""
        return self._filled if self._frame_size and self._reading else None

    @property
    def waiting_for_us(self) -> bool:
        """A request is being handled or finds no memory, and it is not the client that does not read."""
        return (self._blocked or self._starved or bool(self._pending)) and not self._outbox.congested

    # Order of requests and replies

    def block(self) -> None:
        """No further request starts until `unblock`."""
        self._blocked = True

    def unblock(self) -> None:
        self._blocked = False
        self.go_on()

    def expect_reply(self, api_key: int, started: float) -> PendingReply:
        pending = PendingReply(self, api_key, started)
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

    def reply_completed(self) -> None:
        pending, metrics = self._pending, self._hub.metrics
        now = self._hub.clock.monotonic()
        while pending and (parts := pending[0].parts) is not None:
            done = pending.popleft()
            self._ready_parts += parts
            if done.api_key >= 0:
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
                self._hub.call_soon(self.on_more)
                self.on_more = None

    def _send_ready(self) -> None:
        parts, self._ready_parts = self._ready_parts, []
        self._hub.metrics.bytes_out += sum(map(_part_size, parts))
        self._outbox.send(parts)

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._transport.pause_reading()

    def go_on(self) -> None:
        """The reason to wait may be gone: goes on with the backlog, then with the socket."""
        if self.closed or self._in_pass:
            return
        if self._backlog is not None and not self._must_wait():
            self._take_backlog(self._backlog)
        if self._backlog is None and not (self._reading or self._starved or self._outbox.congested):
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

    # Ends

    def refuse(self, reason: str) -> None:
        """Ends the connection for what the client did; replies to what it asked before still leave."""
        if self.closed:
            return
        self._hub.tell(self, reason)
        self._end_pass()
        self.close()

    def close(self) -> None:
        """What cannot leave within a second is dropped: see ConnectionHub.next_tick."""
        self.closed = True
        if self._outbox.congested:
            self._transport.abort()
        else:
            self._transport.close()

    def abort(self) -> None:
        self.closed = True
        self._transport.abort()


def _part_size(part: Part) -> int:
    return len(part) if isinstance(part, bytes | bytearray) else part.size
