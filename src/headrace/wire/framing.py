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
