"""Sends replies on one transport, in order: bytes through it, file ranges by `sendfile` past it.

A range goes straight to the transport's descriptor, which is safe only while the transport itself has
nothing buffered; so the outbox waits for it to drain first. When the socket is full, the transport is handed
one small piece to send, and its `resume_writing` is the sign that there is room again.
Ranges that are not in the page cache are read by a thread first: the loop never waits for the disk.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable

from headrace.log.log_slice import LogSlice
from headrace.world import Thread

SENDFILE_FROM_BYTES = 32 * 1024
"""Below this, one pread and one write together with the reply's header are cheaper."""

_PIECE_BYTES = 64 * 1024
_HIGH_WATER_BYTES = 256 * 1024
_MSG_MORE = getattr(socket, "MSG_MORE", 0)
_CAN_SENDFILE = hasattr(os, "sendfile")

Part = bytes | bytearray | LogSlice


class Outbox:
    """`on_room` is called whenever everything handed in has left, after it once had not."""

    def __init__(self, transport: asyncio.Transport, cold_reads: Thread, on_room: Callable[[], None]) -> None:
        self._transport = transport
        self._cold_reads = cold_reads
        self._on_room = on_room
        self._parts: deque[Part] = deque()
        self._paused = False
        self._draining = False
        self._reading_cold: LogSlice | None = None
        self._socket: socket.socket | None = None
        self._closed = False
        transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)

    @property
    def congested(self) -> bool:
        return self._paused or bool(self._parts)

    def send(self, parts: list[Part]) -> None:
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
        self._pump()
        if not self.congested:
            self._on_room()

    def close(self) -> None:
        self._closed = True
        if self._socket is not None:
            self._socket.detach()  # the descriptor is the transport's
            self._socket = None
        for part in self._parts:
            if isinstance(part, LogSlice) and part is not self._reading_cold:
                part.release()
        self._parts.clear()

    def _pump(self) -> None:
        """Sends what can be sent now."""
        parts = self._parts
        while parts and not (self._paused or self._draining or self._reading_cold or self._closed):
            part = parts[0]
            if not isinstance(part, LogSlice):
                self._send_bytes()
            elif not part.cached():
                self._read_cold(part)
            elif part.size < SENDFILE_FROM_BYTES or not self._has_descriptor(part):
                self._replace_by_bytes(part)
            elif self._drained():
                self._send_file(part)

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
        except OSError:
            self._transport.abort()
            return
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
        position, left = part.position, part.size
        try:
            while left:
                sent = os.sendfile(raw.fileno(), source, position, left)
                if sent == 0:
                    raise OSError("the file is shorter than its index says")
                position += sent
                left -= sent
        except BlockingIOError:
            piece = part.file.pread(min(left, _PIECE_BYTES), position)
            self._transport.write(piece)
            position += len(piece)
            left -= len(piece)
        except OSError:
            self._transport.abort()
            return
        part.position, part.size = position, left
        if not left:
            self._parts.popleft()
            part.release()

    def _replace_by_bytes(self, part: LogSlice) -> None:
        if part.size <= _HIGH_WATER_BYTES:
            self._parts[0] = part.bytes()
            part.release()
            return
        piece = part.file.pread(_HIGH_WATER_BYTES, part.position)
        part.position += len(piece)
        part.size -= len(piece)
        self._parts.appendleft(piece)

    def _read_cold(self, part: LogSlice) -> None:
        self._reading_cold = part
        task = asyncio.ensure_future(self._cold_reads.run(_read_through, part))
        task.add_done_callback(self._cold_read_done)

    def _cold_read_done(self, task: asyncio.Future[None]) -> None:
        part, self._reading_cold = self._reading_cold, None
        if self._closed:
            assert part is not None
            part.release()
            return
        if task.exception() is not None:
            self._transport.abort()
            return
        self._pump()
        if not self.congested:
            self._on_room()

    def _has_descriptor(self, part: LogSlice) -> bool:
        return _CAN_SENDFILE and part.file.fileno() is not None and self._raw_socket() is not None

    def _raw_socket(self) -> socket.socket | None:
        if self._socket is None:
            of_transport = self._transport.get_extra_info("socket")
            if of_transport is not None:
                self._socket = socket.socket(fileno=of_transport.fileno())
        return self._socket


def _read_through(part: LogSlice) -> None:
    """Brings the range into the page cache."""
    for position in range(part.position, part.position + part.size, 1 << 20):
        part.file.pread(min(1 << 20, part.position + part.size - position), position)
