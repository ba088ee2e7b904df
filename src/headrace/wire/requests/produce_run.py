# SPDX-License-Identifier: Apache-2.0
"""Recognises Produce requests of one connection that differ only in correlation id and records.

What they have in common is compared and not decoded again. Knows no batches and no log.
Read next: requests/produce.py, broker/handlers/produce.py (`ProduceRun`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from headrace.errors import DecodeError
from headrace.wire.error_codes import ErrorCode
from headrace.wire.primitives import MALFORMED, read_uvarint
from headrace.wire.requests.produce import ProducePartition, ProduceResult, write_produce_reply

LONGEST_RUN = 256
_MOST_IN_COMMON = 4096
"""Longest common part of requests that is remembered."""

_FLEXIBLE_FROM = 9
_OLDEST = 7
"""Older requests may not carry zstd, and their replies have fewer fields."""
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
        """Of the frame [start, end), its length left out. None when it cannot be recognised again."""
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
                    low, high = view[at], view[at + 1]
                    if high < 0x80 <= low:  # the usual length: two bytes
                        length, start = low & 0x7F | high << 7, at + 2
                    else:
                        length, start = read_uvarint(view, at)
                    stop = start + length - 1
                else:
                    (length,) = _unpack_size(view, at)
                    start, stop = at + 4, at + 4 + length
                if stop < start or stop + tail_size != next_frame or view[stop:next_frame] != tail:
                    return found or None
                found.append(_new(RunFrame, (correlation_id, start, stop, next_frame)))
                position = next_frame
        except (*MALFORMED, DecodeError):  # incomplete or malformed: the decoder reports it
            pass
        return found


_MARK = -0x0102_0304_0506_0708
"""An offset whose bytes occur in no topic name: they are not UTF-8."""


def _uvarint_size(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)


class RunReplies:
    """Replies to requests of one shape; they differ in correlation id, offset and log start."""

    __slots__ = ("_before", "_behind", "_length", "_pack", "_target", "_version")

    def __init__(self, version: int, name: str | None, topic_id: UUID | None, index: int) -> None:
        self._version, self._target = version, (name, topic_id, index)
        result = ProduceResult(index, 0, base_offset=_MARK, log_append_time=-1, log_start_offset=0)
        sample = write_produce_reply(version, 0, [(name, topic_id, [result])])
        offset_at = sample.rindex(_MARK.to_bytes(8, "big", signed=True))
        self._before = sample[8:offset_at]
        self._behind = sample[offset_at + 24 :]  # base offset, append time, log start
        self._length = len(sample) - 4
        self._pack = struct.Struct(f">ii{len(self._before)}sqqq{len(self._behind)}s").pack

    def pack(
        self,
        code: ErrorCode,
        frames: Sequence[RunFrame],
        offsets: Sequence[int],
        log_start_offset: int,
        throttle_ms: int = 0,
    ) -> bytes:
        """The whole frames of the replies. An error is one of requests that were appended."""
        if code is not ErrorCode.none:
            return self._pack_error(code, frames, throttle_ms)
        pack, length, before, behind = self._pack, self._length, self._before, self._behind
        if throttle_ms:
            behind = self._throttled(throttle_ms)
        return b"".join(
            [
                pack(length, frame.correlation_id, before, offset, -1, log_start_offset, behind)
                for frame, offset in zip(frames, offsets, strict=True)
            ]
        )

    def _throttled(self, throttle_ms: int) -> bytes:
        """The end of a reply: its last field, before the tagged ones, is the throttle time."""
        tags = b"\0" if self._version >= _FLEXIBLE_FROM else b""
        field = throttle_ms.to_bytes(4, "big") + tags
        return self._behind[: -len(field)] + field

    def _pack_error(self, code: ErrorCode, frames: Sequence[RunFrame], throttle_ms: int) -> bytes:
        name, topic_id, index = self._target
        topics = [(name, topic_id, [ProduceResult(index, code)])]
        return b"".join(
            write_produce_reply(self._version, frame.correlation_id, topics, throttle_ms=throttle_ms)
            for frame in frames
        )
