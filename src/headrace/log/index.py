"""The sparse indexes of a segment, in memory as arrays, on disk in Kafka's format.

They are caches: a reader checks the batch that an entry points at, and whoever finds one wrong builds it
anew from the log (segment.py). Offsets are relative to the segment's base offset.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from typing import NamedTuple

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12
LARGEST_RELATIVE_OFFSET = 2**31 - 1

_SWAP = sys.byteorder == "little"
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

    __slots__ = ("offsets", "positions")

    def __init__(self) -> None:
        self.offsets = array("I")
        self.positions = array("I")

    def append(self, relative_offset: int, position: int) -> None:
        self.offsets.append(relative_offset)
        self.positions.append(position)

    def last_at_or_below(self, relative_offset: int) -> IndexEntry | None:
        slot = bisect_right(self.offsets, relative_offset) - 1
        return None if slot < 0 else IndexEntry(self.offsets[slot], self.positions[slot])

    def last_at_or_before(self, position: int) -> IndexEntry | None:
        slot = bisect_right(self.positions, position) - 1
        return None if slot < 0 else IndexEntry(self.offsets[slot], self.positions[slot])

    def truncate(self, position: int) -> None:
        """Forgets batches that begin at or after `position`."""
        slot = bisect_right(self.positions, position - 1) if position else 0
        del self.offsets[slot:], self.positions[slot:]

    def encode(self) -> bytes:
        table = array("I", bytes(OFFSET_ENTRY_BYTES * len(self.offsets)))
        table[0::2] = self.offsets
        table[1::2] = self.positions
        if _SWAP:
            table.byteswap()
        return table.tobytes()

    @classmethod
    def decode(cls, data: bytes, log_size: int) -> OffsetIndex | None:
        """None when this cannot be the index of a log file of that size."""
        if len(data) % OFFSET_ENTRY_BYTES:
            return None
        table = array("I", data)
        if _SWAP:
            table.byteswap()
        index = cls()
        index.offsets, index.positions = table[0::2], table[1::2]
        if table and (index.positions[-1] >= log_size or index.offsets[-1] > LARGEST_RELATIVE_OFFSET):
            return None
        return index


class TimeIndex:
    """`.timeindex`: timestamp int64, relative offset int32, big endian.

    An entry says: up to the batch that ends at this offset the largest timestamp is this one, and that
    batch is the first to have it.
    """

    __slots__ = ("offsets", "timestamps")

    def __init__(self) -> None:
        self.timestamps = array("q")
        self.offsets = array("I")

    def append_if_later(self, timestamp: int, relative_offset: int) -> None:
        if timestamp > (self.timestamps[-1] if self.timestamps else -1):
            self.timestamps.append(timestamp)
            self.offsets.append(relative_offset)

    def last_at_or_below(self, timestamp: int) -> TimeEntry | None:
        """Before the offset of this entry no record is later than `timestamp`."""
        slot = bisect_right(self.timestamps, timestamp) - 1
        return None if slot < 0 else TimeEntry(self.timestamps[slot], self.offsets[slot])

    @property
    def last(self) -> TimeEntry | None:
        return TimeEntry(self.timestamps[-1], self.offsets[-1]) if self.timestamps else None

    def truncate(self, relative_offset: int) -> None:
        """Forgets batches that end at or after `relative_offset`."""
        slot = bisect_right(self.offsets, relative_offset - 1) if relative_offset else 0
        del self.timestamps[slot:], self.offsets[slot:]

    def encode(self) -> bytes:
        # An entry is three words: the high and the low half of the timestamp, then the offset.
        table = array("I", bytes(TIME_ENTRY_BYTES * len(self.offsets)))
        halves = array("I", self.timestamps.tobytes())
        high, low = (1, 0) if _SWAP else (0, 1)
        table[0::3], table[1::3] = halves[high::2], halves[low::2]
        table[2::3] = self.offsets
        if _SWAP:
            table.byteswap()
        return table.tobytes()

    @classmethod
    def decode(cls, data: bytes) -> TimeIndex | None:
        if len(data) % TIME_ENTRY_BYTES:
            return None
        table = array("I", data)
        if _SWAP:
            table.byteswap()
        halves = array("I", bytes(8 * (len(table) // 3)))
        high, low = (1, 0) if _SWAP else (0, 1)
        halves[high::2], halves[low::2] = table[0::3], table[1::3]
        index = cls()
        index.timestamps, index.offsets = array("q", halves.tobytes()), table[2::3]
        return index
