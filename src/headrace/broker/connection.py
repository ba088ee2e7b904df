"""One client connection: frames in, replies out in the order of their requests.

Knows frames and order, nothing of what requests mean. A request starts when the one before it is answered,
except that produce requests may follow each other while they wait for their acknowledgement.
Read next: dispatch.py (the meaning of a frame), outbox.py (the way out), connection_hub.py (shared limits).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, cast

from headrace.broker.outbox import Outbox, Part
from headrace.errors import DecodeError

if TYPE_CHECKING:
    from headrace.broker.connection_hub import ConnectionHub

logger = logging.getLogger(__name__)

FAIR_SHARE_BYTES = 256 * 1024
"""After this much from one socket, the others get a turn; without it their p99 is ten times as long."""

FIRST_BUFFER_BYTES = 1 << 20
KEPT_BUFFER_BYTES = 4 << 20
_LENGTH = Struct(">i")
_LENGTH_BYTES = _LENGTH.size


class PendingReply:
    """A place in the order of replies, for a request that is answered later."""

    __slots__ = ("_connection", "api_key", "parts", "started")

    def __init__(self, connection: KafkaConnection, api_key: int, started: float) -> None:
        self._connection = connection
        self.api_key = api_key
        self.started = started
        self.parts: list[Part] | None = None

    def complete(self, parts: list[Part]) -> None:
        self.parts = parts
        self._connection.reply_completed()


class KafkaConnection(asyncio.BufferedProtocol):
    """Small frames are handled in the hub's shared buffer, within the read that brought them. A frame that
    does not fit is gathered in a buffer of the connection's own, which grows only as bytes arrive."""

    def __init__(self, hub: ConnectionHub, listener: str) -> None:
        self.listener = listener
        self.peer = ""
        self.last_active_tick = 0
        self.on_close: Callable[[], None] | None = None
        self._hub = hub
        self._transport: asyncio.Transport = None  # type: ignore[assignment]
        self._outbox: Outbox = None  # type: ignore[assignment]
        self._closed = False
        self._buffer: bytearray | None = None
        self._frame_size = 0  # of the frame being gathered; 0 when there is none
        self._filled = 0
        self._length_head = b""  # fewer than the four bytes of a frame's length
        self._backlog: bytes | None = None  # what arrived while the connection was blocked
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
        self._outbox = Outbox(self._transport, self._hub.cold_reads, self._continue)
        if not self._hub.admit(self, address[0] if address else ""):
            self._closed = True
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._closed = True
        self._outbox.close()
        self._drop_buffer()
        if self.on_close is not None:
            self.on_close()
            self.on_close = None
        self._hub.forget(self)

    def pause_writing(self) -> None:
        self._outbox.pause_writing()

    def resume_writing(self) -> None:
        self._outbox.resume_writing()

    def eof_received(self) -> bool:
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._frame_size:
            assert self._buffer is not None
            return memoryview(self._buffer)[self._filled : self._frame_size]
        shared, head = self._hub.shared_view, self._length_head
        if not head:
            return shared
        shared[: len(head)] = head  # nobody else reads before `buffer_updated`
        return shared[len(head) :]

    def buffer_updated(self, count: int) -> None:
        if self._closed:
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

    def _take(self, view: memoryview, end: int) -> None:
        """Handles the frames in view[:end]; keeps what must wait."""
        position = 0
        while end - position >= _LENGTH_BYTES:
            if self._must_wait():
                break
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
        if self._must_wait() and position < end:
            self._backlog = bytes(view[position:end])
        else:
            self._length_head = bytes(view[position:end])

    def _must_wait(self) -> bool:
        return (
            self._blocked
            or self._starved
            or len(self._pending) >= self._hub.max_pending_replies
            or self._outbox.congested
        )

    @property
    def gathering(self) -> bool:
        return self._frame_size > 0

    @property
    def waiting_for_us(self) -> bool:
        """A request is being handled, and it is not the client that does not take its reply."""
        return (self._blocked or bool(self._pending)) and not self._outbox.congested

    def _gather(self, first: memoryview, size: int) -> bool:
        """False when there is no memory for the frame now."""
        wanted = min(size, max(FIRST_BUFFER_BYTES, 2 * len(first)))
        if self._buffer is None or len(self._buffer) < wanted:
            self._drop_buffer()
            if not self._hub.reserve(self, wanted):
                self._starved = True
                return False
            self._buffer = bytearray(wanted)
        self._frame_size = size
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
        if len(buffer) > KEPT_BUFFER_BYTES:
            self._drop_buffer()

    def _grow(self) -> None:
        """Doubles: a client that only claims to send much gets no memory for it."""
        assert self._buffer is not None
        more = min(self._frame_size, 2 * len(self._buffer)) - len(self._buffer)
        if self._hub.reserve(self, more):
            self._buffer = self._buffer + bytes(more)
        else:
            self._starved = True
            self._stop_reading()

    def memory_returned(self) -> None:
        """Others gave back what this connection waits for."""
        self._starved = False
        if self._closed:
            return
        if self._frame_size:
            self._grow()
        if not self._starved:
            self._continue()

    def _drop_buffer(self) -> None:
        if self._buffer is not None:
            buffer, self._buffer = self._buffer, None
            self._hub.give_back(len(buffer))

    def drop_idle_buffer(self) -> None:
        if not self._frame_size:
            self._drop_buffer()

    # Order of requests and replies

    def block(self) -> None:
        """No further request starts until `unblock`."""
        self._blocked = True

    def hold(self) -> None:
        """As `block`, and the client is not even read from."""
        self._blocked = True
        self._stop_reading()

    def unblock(self) -> None:
        self._blocked = False
        if not self._in_pass:
            self._continue()

    def expect_reply(self, api_key: int, started: float) -> PendingReply:
        pending = PendingReply(self, api_key, started)
        self._pending.append(pending)
        return pending

    def reply(self, parts: list[Part]) -> None:
        """Answers the request being dispatched, at once."""
        if self._pending:
            self.expect_reply(-1, 0.0).complete(parts)
        else:
            self._ready_parts += parts

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
            if self._backlog is not None and not self._blocked:
                self._continue()

    def _end_pass(self) -> None:
        self._in_pass = False
        if self._ready_parts and not self._closed:
            parts, self._ready_parts = self._ready_parts, []
            self._hub.metrics.bytes_out += sum(map(_part_size, parts))
            self._outbox.send(parts)
        if self._backlog is not None or self._outbox.congested:
            self._stop_reading()

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._transport.pause_reading()

    def _continue(self) -> None:
        """The reason to wait may be gone: goes on with the backlog, then with the socket."""
        if self._closed or self._in_pass:
            return
        backlog, self._backlog = self._backlog, None
        if backlog is not None:
            self._in_pass = True
            try:
                self._take(memoryview(bytearray(backlog)), len(backlog))
            except DecodeError as error:
                self.refuse(str(error))
                return
            self._end_pass()
        if self._backlog is None and not self._reading and not self._starved and not self._outbox.congested:
            self._reading = True
            self._transport.resume_reading()

    def _next_turn(self) -> None:
        if self._reading and not self._closed:
            self._transport.resume_reading()

    # Ends

    def refuse(self, reason: str) -> None:
        logger.warning("closing connection from %s on %s: %s", self.peer, self.listener, reason)
        self._closed = True
        self._transport.abort()

    def close(self) -> None:
        self._closed = True
        self._transport.close()


def _part_size(part: Part) -> int:
    return len(part) if isinstance(part, bytes | bytearray) else part.size
