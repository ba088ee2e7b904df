"""Produce requests that differ only in correlation id and records, as producers send that cannot batch.

What they have in common is compared, not read again. Knows no batches and no log. Read next: produce.py.
"""

from __future__ import annotations

import struct
from typing import NamedTuple
from uuid import UUID

from headrace.errors import DecodeError
from headrace.wire.primitives import MALFORMED, read_uvarint
from headrace.wire.produce import ProducePartition, ProduceResult, write_produce_reply

LONGEST_RUN = 256
_MOST_IN_COMMON = 4096
"""Bytes kept of a request: a long client id and name, and no megabytes of what somebody put behind."""

_FLEXIBLE_FROM = 9
_OLDEST = 7
"""Older requests may not carry zstd, and their replies are shorter still."""
_COMMON_AT = 12
"""Behind the length of the frame, key and version, and the correlation id."""
_new = tuple.__new__
_unpack_head = struct.Struct(">iii").unpack_from
_unpack_size = struct.Struct(">i").unpack_from


class RunFrame(NamedTuple):
    """One request: where its record bytes are, and where the next frame begins."""

    correlation_id: int
    start: int
    end: int
    next_frame: int


class ProduceShape:
    """Taken from a request for one partition; finds the requests of the same shape that follow it."""

    __slots__ = ("_common", "_flexible", "_key_and_version", "_tail")

    def __init__(self, key_and_version: int, common: bytes, tail: bytes, flexible: bool) -> None:
        self._key_and_version = key_and_version
        self._common = common
        self._tail = tail
        self._flexible = flexible

    @classmethod
    def of(
        cls, view: memoryview, start: int, end: int, version: int, part: ProducePartition
    ) -> ProduceShape | None:
        """Of the frame [start, end), its length left out. None when its records are not where they should."""
        flexible = version >= _FLEXIBLE_FROM
        in_common = end - start - (part.end - part.start)
        if version < _OLDEST or part.start == part.end or in_common > _MOST_IN_COMMON:
            return None
        length_at = part.start - (_uvarint_size(part.end - part.start + 1) if flexible else 4)
        if flexible and read_uvarint(view, length_at) != (part.end - part.start + 1, part.start):
            return None
        (key_and_version,) = _unpack_size(view, start)
        return cls(key_and_version, bytes(view[start + 8 : length_at]), bytes(view[part.end : end]), flexible)

    def find(self, view: memoryview, position: int, end: int) -> list[RunFrame] | None:
        """The frames of this shape from `position` on that are whole before `end`; None for another shape."""
        found: list[RunFrame] = []
        key_and_version, common, tail, flexible = (
            self._key_and_version,
            self._common,
            self._tail,
            self._flexible,
        )
        common_size, tail_size = len(common), len(tail)
        view = view[:end]
        try:
            while len(found) < LONGEST_RUN:
                size, key, correlation_id = _unpack_head(view, position)
                next_frame = position + 4 + size
                at = position + _COMMON_AT
                if next_frame > end:
                    break
                if key != key_and_version or view[at : at + common_size] != common:
                    return found or None
                at += common_size
                if flexible:
                    length, start = read_uvarint(view, at)
                    stop = start + length - 1
                else:
                    (length,) = _unpack_size(view, at)
                    start, stop = at + 4, at + 4 + length
                if stop < start or stop + tail_size != next_frame or view[stop:next_frame] != tail:
                    return found or None
                found.append(_new(RunFrame, (correlation_id, start, stop, next_frame)))
                position = next_frame
        except (*MALFORMED, DecodeError):  # cut off, or not what it claims to be: others will tell
            pass
        return found


_MARK = -0x0102_0304_0506_0708
"""An offset that no name can be mistaken for: its bytes are not UTF-8."""


def _uvarint_size(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)


class PlainReply:
    """Replies to the requests of one shape: all is known but correlation id, offset and log start."""

    __slots__ = ("_before", "_behind", "_length", "_pack")

    def __init__(self, version: int, name: str | None, topic_id: UUID | None, index: int) -> None:
        result = ProduceResult(index, 0, base_offset=_MARK, log_append_time=-1, log_start_offset=0)
        sample = write_produce_reply(version, 0, [(name, topic_id, [result])])
        offset_at = sample.rindex(_MARK.to_bytes(8, "big", signed=True))
        self._before = sample[8:offset_at]
        self._behind = sample[offset_at + 24 :]  # base offset, append time, log start
        self._length = len(sample) - 4
        self._pack = struct.Struct(f">ii{len(self._before)}sqqq{len(self._behind)}s").pack

    def pack(self, correlation_id: int, base_offset: int, log_start_offset: int) -> bytes:
        """The whole frame."""
        return self._pack(
            self._length, correlation_id, self._before, base_offset, -1, log_start_offset, self._behind
        )
