"""Sends replies on one transport, in order: bytes through it, file ranges by `sendfile` past it.

A range goes straight to the transport's descriptor, which is safe only while the transport itself has
nothing buffered; so the outbox waits for it to drain first. When the socket is full, the transport is handed
one small piece to send, and its `resume_writing` is the sign that there is room again.
What is not in the page cache is read by a thread, piece by piece: the loop never waits for the disk.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable

from headrace.log.log_slice import LogSlice
from headrace.world import Thread

logger = logging.getLogger(__name__)

SENDFILE_FROM_BYTES = 32 * 1024
"""Below this, one pread and one write together with the reply's header are cheaper."""
TURN_BYTES = 256 * 1024
"""After this much from files in one go, other connections get a turn: a tenth of a millisecond."""

_PIECE_BYTES = 64 * 1024
_COLD_PIECE_BYTES = 1 << 20
_WARY_TURNS = 64
_HIGH_WATER_BYTES = 256 * 1024
_MSG_MORE = getattr(socket, "MSG_MORE", 0)
_CAN_SENDFILE = hasattr(os, "sendfile")
_PEER_GONE = (errno.EPIPE, errno.ECONNRESET, errno.ECONNABORTED, errno.ENOTCONN, errno.ETIMEDOUT)

Part = bytes | bytearray | LogSlice


def release_slices(parts: Iterable[Part]) -> None:
    """For parts that nobody will send."""
    for part in parts:
        if isinstance(part, LogSlice):
            part.release()


class Outbox:
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
        self._yielded = False  # the others have their turn
        self._turn_bytes = 0  # from files, in this go
        self._wary = 0
        self._reading_cold: LogSlice | None = None
        self._socket: socket.socket | None = None
        self._closed = False
        transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)

    @property
    def congested(self) -> bool:
        return self._paused or bool(self._parts) or self._closed

    def send(self, parts: list[Part]) -> None:
        if self._closed:
            release_slices(parts)
            return
        if not self._parts and not self._draining and not any(type(part) is LogSlice for part in parts):
            self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))  # type: ignore[arg-type]
            return
        self._parts.extend(parts)
        self._pump()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if self._draining:
            self._draining = False
            self._transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)
        self._go_on()

    def close(self) -> None:
        self._closed = True
        if self._socket is not None:
            self._socket.detach()  # the descriptor is the transport's
            self._socket = None
        # What a thread reads from is released when it has done so.
        release_slices(part for part in self._parts if part is not self._reading_cold)
        self._parts.clear()

    def _go_on(self) -> None:
        if self._closed:
            return
        self._pump()
        if not self.congested:
            self._on_room()

    def _next_turn(self) -> None:
        self._yielded = False
        self._go_on()

    def _pump(self) -> None:
        """Sends what can be sent now."""
        self._turn_bytes = 0
        try:
            while self._parts and not (
                self._paused or self._draining or self._yielded or self._reading_cold or self._closed
            ):
                self._send_next(self._parts[0])
        except OSError as error:
            self._give_up(error)

    def _send_next(self, part: Part) -> None:
        if not isinstance(part, LogSlice):
            self._send_bytes()
        elif self._turn_bytes >= TURN_BYTES:
            self._yielded = True
            self._call_soon(self._next_turn)
        elif not self._at_hand(part):
            self._read_cold(part)
        elif part.size < SENDFILE_FROM_BYTES or not self._has_descriptor(part):
            self._put_before(part, part.file.pread(min(part.size, _HIGH_WATER_BYTES), part.position))
        elif self._drained():
            self._send_file(part)

    def _at_hand(self, part: LogSlice) -> bool:
        """Whether its next bytes can be sent without waiting for the disk.

        Behind something cold the disk reads ahead, in pieces that come in any order: then all are looked for.
        """
        wary = self._wary > 0
        self._wary -= wary
        return part.cached(TURN_BYTES, thorough=wary)

    def _send_bytes(self) -> None:
        run: list[bytes | bytearray] = []
        parts = self._parts
        while parts and not isinstance(part := parts[0], LogSlice):
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

    def _drained(self) -> bool:
        """Whether the transport is empty; if not, `resume_writing` will come when it is."""
        if not self._transport.get_write_buffer_size():
            return True
        self._draining = True
        self._transport.set_write_buffer_limits(high=0)
        return False

    def _send_file(self, part: LogSlice) -> None:
        raw, source = self._raw_socket(), part.file.fileno()
        assert raw is not None
        assert source is not None
        try:
            sent = os.sendfile(raw.fileno(), source, part.position, min(part.size, TURN_BYTES))
        except BlockingIOError:
            self._put_before(part, part.file.pread(min(part.size, _PIECE_BYTES), part.position))
            self._transport.write(self._parts.popleft())  # type: ignore[arg-type]  # what was just put there
            return
        self._turn_bytes += sent
        self._skip(part, sent)

    def _put_before(self, part: LogSlice, piece: bytes) -> None:
        """The piece, which is the beginning of the part, takes its place in what is to be sent."""
        self._skip(part, len(piece))
        self._parts.appendleft(piece)

    def _skip(self, part: LogSlice, byte_count: int) -> None:
        if byte_count <= 0:  # the frame's length is told already, so there is no way to go on
            raise OSError(f"{part.path} ends before the records that were to be sent from it")
        part.position += byte_count
        part.size -= byte_count
        if not part.size:
            self._parts.popleft()
            part.release()

    def _read_cold(self, part: LogSlice) -> None:
        """The piece read is sent from memory: by the time it is sent, the page cache may have lost it."""
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
            self._put_before(part, reading.result())
        except OSError as error:
            self._give_up(error)
            return
        self._go_on()

    def _give_up(self, error: OSError) -> None:
        """Nothing more can follow; the transport tells its protocol soon."""
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
