# SPDX-License-Identifier: Apache-2.0
"""The sparse indexes of a segment, in memory in the layout of their files, which is Kafka's.

They are caches: a reader checks the batch that an entry points at; an index with a wrong entry is rebuilt
from the log (segment.py). Offsets are relative to the segment's base offset.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import NamedTuple

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12
LARGEST_RELATIVE_OFFSET = 2**31 - 1

_LOW_HALF = 0xFFFFFFFF
_NO_TIMESTAMP = -1
assert array("I").itemsize == 4


class IndexEntry(NamedTuple):
    relative_offset: int
    """Of the last record in the batch."""
    position: int
    """Of the first byte of the batch."""


class TimeEntry(NamedTuple):
    timestamp: int
    relative_offset: int
    """Of the last record in the batch."""


class OffsetIndex:
    """`.index`: relative offset int32, position int32, big endian."""

    __slots__ = ("_words",)

    def __init__(self) -> None:
        self._words = array("I")

    def __len__(self) -> int:
        return len(self._words) // 2

    def append(self, relative_offset: int, position: int) -> None:
        self._words.append(relative_offset)
        self._words.append(position)

    def entry(self, slot: int) -> IndexEntry:
        return IndexEntry(self._words[2 * slot], self._words[2 * slot + 1])

    @property
    def last_position(self) -> int:
        """Where the last indexed batch begins; 0 without one."""
        return self._words[-1] if self._words else 0

    def last_at_or_below(self, relative_offset: int) -> IndexEntry | None:
        with memoryview(self._words) as words:
            slot = bisect_right(words[0::2], relative_offset) - 1
        return None if slot < 0 else self.entry(slot)

    def last_at_or_before(self, position: int) -> IndexEntry | None:
        with memoryview(self._words) as words:
            slot = bisect_right(words[1::2], position) - 1
        return None if slot < 0 else self.entry(slot)

    def truncate(self, position: int) -> None:
        """Forgets batches that begin at or after `position`."""
        with memoryview(self._words) as words:
            kept = bisect_left(words[1::2], position)
        del self._words[2 * kept :]

    def encode(self) -> bytes:
        return _big_endian(self._words)

    @classmethod
    def decode(cls, data: bytes, log_size: int) -> OffsetIndex | None:
        """None when this cannot be the index of a log file of that size."""
        if len(data) % OFFSET_ENTRY_BYTES:
            return None
        index = cls()
        index._words = _from_big_endian(data)
        if data:
            relative_offset, position = index.entry(len(index) - 1)
            if position >= log_size or relative_offset > LARGEST_RELATIVE_OFFSET:
                return None
        return index


class TimeIndex:
    """`.timeindex`: timestamp int64, relative offset int32, big endian.

    An entry says: up to the batch that ends at this offset the largest timestamp is this one, and that
    batch is the first to have it.
    """

    __slots__ = ("_words", "last_timestamp")

    def __init__(self) -> None:
        self._words = array("I")  # high half, low half, offset
        self.last_timestamp = _NO_TIMESTAMP

    def __len__(self) -> int:
        return len(self._words) // 3

    def append_if_later(self, timestamp: int, relative_offset: int) -> None:
        if timestamp > self.last_timestamp:
            self._words.extend((timestamp >> 32, timestamp & _LOW_HALF, relative_offset))
            self.last_timestamp = timestamp

    def timestamp(self, slot: int) -> int:
        return self._words[3 * slot] << 32 | self._words[3 * slot + 1]

    def entry(self, slot: int) -> TimeEntry:
        return TimeEntry(self.timestamp(slot), self._words[3 * slot + 2])

    @property
    def last(self) -> TimeEntry | None:
        return self.entry(len(self) - 1) if self._words else None

    def last_at_or_below(self, timestamp: int) -> TimeEntry | None:
        """Before the offset of this entry no record is later than `timestamp`."""
        slot = bisect_right(range(len(self)), timestamp, key=self.timestamp) - 1
        return None if slot < 0 else self.entry(slot)

    def truncate(self, relative_offset: int) -> None:
        """Forgets batches that end at or after `relative_offset`."""
        with memoryview(self._words) as words:
            kept = bisect_left(words[2::3], relative_offset)
        del self._words[3 * kept :]
        self.last_timestamp = self.timestamp(kept - 1) if kept else _NO_TIMESTAMP

    def encode(self) -> bytes:
        return _big_endian(self._words)

    @classmethod
    def decode(cls, data: bytes) -> TimeIndex | None:
        if len(data) % TIME_ENTRY_BYTES:
            return None
        index = cls()
        index._words = _from_big_endian(data)
        index.last_timestamp = index.timestamp(len(index) - 1) if data else _NO_TIMESTAMP
        return index


def _big_endian(words: array[int]) -> bytes:
    if sys.byteorder == "little":
        words = words[:]
        words.byteswap()
    return words.tobytes()


def _from_big_endian(data: bytes) -> array[int]:
    words = array("I", data)
    if sys.byteorder == "little":
        words.byteswap()
    return words
