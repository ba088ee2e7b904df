# SPDX-License-Identifier: Apache-2.0
"""Sends replies on one transport, in order: bytes through the transport, file ranges by `sendfile`.

`sendfile` writes to the transport's descriptor, which is safe only while the transport has nothing buffered,
so the queue waits for it to drain first. When the socket is full, the transport gets one small piece to send,
and its `resume_writing` tells that there is room again. File ranges that are not in the page cache are read
by a thread, piece by piece: the event loop never waits for the disk.

A transport that gives no socket away (TLS, simulation) gets the bytes of the file: nothing passes it by.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable

from headrace.log.segments.log_slice import LogSlice as LogSlice
from headrace.world import Thread

logger = logging.getLogger(__name__)

SENDFILE_FROM_BYTES = 32 * 1024
"""Below this, one pread and one write together with the reply's header are cheaper."""
TURN_BYTES = 256 * 1024
"""After this much read from files (a tenth of a millisecond), other connections are served."""
SENDFILE_TURN_BYTES = 1 << 20
"""The same where `sendfile` copies nothing."""

_PIECE_BYTES = 64 * 1024
_COLD_PIECE_BYTES = 1 << 20
_WARY_TURNS = 64
_HIGH_WATER_BYTES = 256 * 1024
_MSG_MORE = getattr(socket, "MSG_MORE", 0)
_CAN_SENDFILE = hasattr(os, "sendfile")
_PEER_GONE = (errno.EPIPE, errno.ECONNRESET, errno.ECONNABORTED, errno.ENOTCONN, errno.ETIMEDOUT)

Part = bytes | bytearray | LogSlice


def release_slices(parts: Iterable[Part]) -> None:
    """For parts that will not be sent."""
    for part in parts:
        if isinstance(part, LogSlice):
            part.release()


class SendQueue:
    """`on_room` is called whenever everything handed in has left, after it once had not."""

    def __init__(
        self,
        transport: asyncio.Transport,
        cold_reads: Thread,
        call_soon: Callable[[Callable[[], None]], None],
        on_room: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._cold_reads = cold_reads
        self._call_soon = call_soon
        self._on_room = on_room
        self._parts: deque[Part] = deque()
        self._paused = False
        self._draining = False
        self._yielded = False  # to other connections
        self._turn_bytes = 0  # sent from files since then
        self._wary = 0  # how many parts are checked thoroughly for being in the page cache
        self._reading_cold: LogSlice | None = None
        self._socket: socket.socket | None = None
        self._closed = False
        self.congested = False
        """Not everything handed in has been passed to the transport and accepted by it."""
        transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)

    def send(self, parts: list[Part]) -> None:
        if self._closed:
            release_slices(parts)
            return
        if not self._parts and not self._draining and LogSlice not in map(type, parts):
            self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))  # type: ignore[arg-type]
            return
        self._parts.extend(parts)
        self._pump()

    def pause_writing(self) -> None:
        self._paused = self.congested = True

    def resume_writing(self) -> None:
        self._paused = False
        if self._draining:
            self._draining = False
            self._transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)
        self._continue()

    def close(self) -> None:
        self._closed = self.congested = True
        if self._socket is not None:
            self._socket.detach()  # the descriptor is the transport's
            self._socket = None
        # The part that a thread reads is released when it has finished.
        release_slices(part for part in self._parts if part is not self._reading_cold)
        self._parts.clear()

    def _continue(self) -> None:
        if self._closed:
            return
        self._pump()
        if not self.congested:
            self._on_room()

    def _next_turn(self) -> None:
        self._yielded = False
        self._continue()

    def _pump(self) -> None:
        """Sends what can be sent now."""
        self._turn_bytes = 0
        try:
            while self._parts and not (
                self._paused or self._draining or self._yielded or self._reading_cold or self._closed
            ):
                self._send_next(self._parts[0])
        except OSError as error:
            self._fail(error)
        self.congested = self._paused or bool(self._parts) or self._closed

    def _send_next(self, part: Part) -> None:
        if not isinstance(part, LogSlice):
            self._send_bytes()
            return
        past_transport = part.size >= SENDFILE_FROM_BYTES and self._has_descriptor(part)
        most = SENDFILE_TURN_BYTES if past_transport else TURN_BYTES
        if self._turn_bytes >= most:
            self._yielded = True
            self._call_soon(self._next_turn)
        elif not self._is_cached(part, most):
            self._read_cold(part)
        elif not past_transport:
            piece = part.file.pread(min(part.size, most), part.position)
            self._turn_bytes += len(piece)
            self._queue_first(part, piece)
        elif self._drained():
            self._send_file(part, most)

    def _is_cached(self, part: LogSlice, most: int) -> bool:
        """Whether its next bytes can be sent without waiting for the disk.

        After a cold read the kernel reads ahead, in pieces that arrive in any order: then all are checked.
        """
        wary = self._wary > 0
        self._wary -= wary
        return part.cached(most, thorough=wary)

    def _send_bytes(self) -> None:
        """Sends bytes, together with the small ranges between them that are in the page cache."""
        run: list[bytes | bytearray] = []
        parts = self._parts
        while parts:
            part = parts[0]
            if isinstance(part, LogSlice):
                piece = self._small_piece(part)
                if piece is None:
                    break
                part.release()
                run.append(piece)
            else:
                run.append(part)
            parts.popleft()
        data = run[0] if len(run) == 1 else b"".join(run)
        raw = self._raw_socket() if parts and _CAN_SENDFILE else None
        if raw is None or self._transport.get_write_buffer_size():
            self._transport.write(data)
            return
        try:
            sent = raw.send(data, _MSG_MORE)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            self._transport.write(memoryview(data)[sent:])

    def _small_piece(self, part: LogSlice) -> bytes | None:
        """All of a small range; None when it is not at hand, or too much was read in this turn."""
        if part.size >= SENDFILE_FROM_BYTES or self._turn_bytes >= TURN_BYTES:
            return None
        piece = part.file.pread_cached(part.size, part.position)
        if piece is None or len(piece) < part.size:
            return None
        self._turn_bytes += part.size
        return piece

    def _drained(self) -> bool:
        """Whether the transport is empty; if not, it calls `resume_writing` when it is."""
        if not self._transport.get_write_buffer_size():
            return True
        self._draining = True
        self._transport.set_write_buffer_limits(high=0)
        return False

    def _send_file(self, part: LogSlice, most: int) -> None:
        raw, source = self._raw_socket(), part.file.fileno()
        assert raw is not None
        assert source is not None
        try:
            sent = os.sendfile(raw.fileno(), source, part.position, min(part.size, most))
        except BlockingIOError:
            self._queue_first(part, part.file.pread(min(part.size, _PIECE_BYTES), part.position))
            self._transport.write(self._parts.popleft())  # type: ignore[arg-type]  # what was just put there
            return
        self._turn_bytes += sent
        self._skip(part, sent)

    def _queue_first(self, part: LogSlice, piece: bytes) -> None:
        """Queues the piece, which is the beginning of the part, before the rest of it."""
        self._skip(part, len(piece))
        self._parts.appendleft(piece)

    def _skip(self, part: LogSlice, byte_count: int) -> None:
        if byte_count <= 0:  # the frame's length was sent already, so the connection is lost
            raise OSError(f"{part.path} ends before the records that should be sent from it")
        part.position += byte_count
        part.size -= byte_count
        if not part.size:
            self._parts.popleft()
            part.release()

    def _read_cold(self, part: LogSlice) -> None:
        """Sends the piece from memory: the page cache may have dropped it by then."""
        self._reading_cold = part
        self._wary = _WARY_TURNS
        reading = self._cold_reads.run(part.file.pread, min(part.size, _COLD_PIECE_BYTES), part.position)
        asyncio.ensure_future(reading).add_done_callback(self._cold_read_done)

    def _cold_read_done(self, reading: asyncio.Future[bytes]) -> None:
        part, self._reading_cold = self._reading_cold, None
        assert part is not None
        if reading.cancelled() or self._closed:
            part.release()
            return
        try:
            self._queue_first(part, reading.result())
        except OSError as error:
            self._fail(error)
            return
        self._continue()

    def _fail(self, error: OSError) -> None:
        """Closes the connection: nothing can follow a reply that was cut short."""
        if error.errno not in _PEER_GONE:
            logger.error("a reply was cut short: %s", error)
            if self._parts and isinstance(part := self._parts[0], LogSlice):
                part.failed(error)
        self._transport.abort()
        self.close()

    def _has_descriptor(self, part: LogSlice) -> bool:
        return _CAN_SENDFILE and part.file.fileno() is not None and self._raw_socket() is not None

    def _raw_socket(self) -> socket.socket | None:
        if self._socket is None:
            of_transport = self._transport.get_extra_info("socket")
            if of_transport is not None:
                self._socket = socket.socket(fileno=of_transport.fileno())
        return self._socket
