# SPDX-License-Identifier: Apache-2.0
"""Length-prefixed frames out of chunks of any size. Sans-io; used by the client.

The broker's connection does the same inside its own receive buffers (broker/network/connection.py).
"""

from __future__ import annotations

from collections import deque

from headrace.errors import DecodeError

_PREFIX = 4
_KEPT_BUFFERS = 8
_MOST_WASTE = 2 << 20
DEFAULT_MAX_FRAME = 100 << 20


class FrameSplitter:
    """Feed it received bytes; it returns every complete frame, without the length."""

    def __init__(self, *, max_frame: int = DEFAULT_MAX_FRAME) -> None:
        self._max_frame = max_frame
        self._buffer = bytearray()

    @property
    def buffered(self) -> int:
        """Bytes of a frame that is not complete yet."""
        return len(self._buffer)

    def take_large(self, threshold: int) -> tuple[int, bytearray] | None:
        """The size of a frame of at least `threshold` bytes that has only begun to arrive, and its beginning.

        The caller fills it from then on.
        """
        if len(self._buffer) < _PREFIX:
            return None
        size = int.from_bytes(self._buffer[:_PREFIX], "big", signed=True)
        if size < threshold:
            return None
        begun = self._buffer[_PREFIX:]
        self._buffer.clear()
        return size, begun

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        buffer = self._buffer
        buffer += data
        frames: list[bytes] = []
        position = 0
        while len(buffer) - position >= _PREFIX:
            size = int.from_bytes(buffer[position : position + _PREFIX], "big", signed=True)
            if not 0 <= size <= self._max_frame:
                raise DecodeError(f"frame of {size} bytes; allowed are 0 to {self._max_frame}")
            stop = position + _PREFIX + size
            if stop > len(buffer):
                break
            with memoryview(buffer) as view:
                frames.append(bytes(view[position + _PREFIX : stop]))
            position = stop
        del buffer[:position]
        return frames


class FrameReceiver:
    """The same for a socket that writes into a given buffer: large frames are received in place.

    Ask for `room`, fill some of it, say how much `arrived`; that returns the complete frames. A large
    one is a view of memory that is reused once no view of it is left.
    """

    def __init__(
        self, *, max_frame: int = DEFAULT_MAX_FRAME, scratch: int = 64 << 10, large: int = 128 << 10
    ) -> None:
        self._splitter = FrameSplitter(max_frame=max_frame)
        self._scratch = memoryview(bytearray(scratch))
        self._large_from = large
        self._buffers = _Buffers()
        self._frame: memoryview | None = None
        self._filled = 0

    def room(self) -> memoryview:
        return self._scratch if self._frame is None else self._frame[self._filled :]

    def arrived(self, count: int) -> list[bytes | memoryview]:
        if self._frame is None:
            frames: list[bytes | memoryview] = [*self._splitter.feed(self._scratch[:count])]
            large = self._splitter.take_large(self._large_from)
            if large is not None:
                size, begun = large
                self._frame = self._buffers.get(size)
                self._filled = len(begun)
                self._frame[: self._filled] = begun
            return frames
        self._filled += count
        if self._filled < len(self._frame):
            return []
        frame, self._frame = self._frame, None
        return [frame]


class _Buffers:
    """Large buffers that were handed out and may be free again: fresh memory costs as much as filling it."""

    def __init__(self) -> None:
        self._kept: deque[bytearray] = deque(maxlen=_KEPT_BUFFERS)

    def get(self, size: int) -> memoryview:
        for buffer in self._kept:
            if size <= len(buffer) <= size + _MOST_WASTE and _is_free(buffer):
                return memoryview(buffer)[:size]
        buffer = bytearray(size + min(size // 16, _MOST_WASTE // 2))
        self._kept.append(buffer)
        return memoryview(buffer)[:size]


def _is_free(buffer: bytearray) -> bool:
    """Python refuses to resize a bytearray while a view of it exists."""
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True
