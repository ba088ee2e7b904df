"""Length-prefixed frames out of chunks of any size. Sans-io; used by the client.

The broker's connection does the same inside its own receive buffers (broker/connection.py).
"""

from __future__ import annotations

from headrace.errors import DecodeError

_PREFIX = 4
DEFAULT_MAX_FRAME = 100 << 20


class FrameSplitter:
    """Feed it what arrived; it hands back every frame that is complete, without the length."""

    def __init__(self, *, max_frame: int = DEFAULT_MAX_FRAME) -> None:
        self._max_frame = max_frame
        self._buffer = bytearray()

    @property
    def buffered(self) -> int:
        """Bytes of a frame that is not complete yet."""
        return len(self._buffer)

    def take_large(self, threshold: int) -> tuple[bytearray, int] | None:
        """A frame of at least `threshold` bytes that has only begun to arrive, and how much of it is there.

        It is the caller's to fill from then on; the splitter forgets it.
        """
        if len(self._buffer) < _PREFIX:
            return None
        size = int.from_bytes(self._buffer[:_PREFIX], "big", signed=True)
        if size < threshold:
            return None
        begun = self._buffer[_PREFIX:]
        self._buffer.clear()
        frame = bytearray(size)
        frame[: len(begun)] = begun
        return frame, len(begun)

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
    """The same for a socket that writes into a buffer of ours: large frames arrive where they stay.

    Ask for `room`, fill some of it, say how much `arrived`; that gives the frames that are complete.
    """

    def __init__(
        self, *, max_frame: int = DEFAULT_MAX_FRAME, scratch: int = 64 << 10, large: int = 128 << 10
    ) -> None:
        self._splitter = FrameSplitter(max_frame=max_frame)
        self._scratch = memoryview(bytearray(scratch))
        self._large_from = large
        self._frame: bytearray | None = None
        self._filled = 0

    def room(self) -> memoryview:
        return self._scratch if self._frame is None else memoryview(self._frame)[self._filled :]

    def arrived(self, count: int) -> list[bytes | bytearray]:
        if self._frame is None:
            frames: list[bytes | bytearray] = [*self._splitter.feed(self._scratch[:count])]
            begun = self._splitter.take_large(self._large_from)
            if begun is not None:
                self._frame, self._filled = begun
            return frames
        self._filled += count
        if self._filled < len(self._frame):
            return []
        frame, self._frame = self._frame, None
        return [frame]
