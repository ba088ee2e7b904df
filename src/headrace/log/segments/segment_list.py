# SPDX-License-Identifier: Apache-2.0
"""The segments of one partition in order of offset; the last is the active one. There is always one."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from headrace.log.segments.segment import Segment


class SegmentList:
    __slots__ = ("_bases", "_segments", "active")

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = list(segments)
        self._bases = [segment.base_offset for segment in segments]
        self.active = self._segments[-1]

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    def __getitem__(self, slot: int) -> Segment:
        return self._segments[slot]

    @property
    def first(self) -> Segment:
        return self._segments[0]

    @property
    def sealed(self) -> list[Segment]:
        return self._segments[:-1]

    @property
    def base_offsets(self) -> list[int]:
        return self._bases

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    def slot_of(self, offset: int) -> int:
        """The segment that would hold `offset`; -1 below the first."""
        return bisect_right(self._bases, offset) - 1

    def end_of(self, slot: int) -> int:
        """The offset at which the next segment begins, or the log ends."""
        return self._bases[slot + 1] if slot + 1 < len(self._bases) else self.active.next_offset

    def append(self, segment: Segment) -> None:
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment

    def remove_first(self, count: int) -> list[Segment]:
        """Takes out segments that are not needed any more; the active one stays."""
        return self._splice(0, count, [])

    def remove_from(self, slot: int) -> list[Segment]:
        return self._splice(slot, len(self._segments), [])

    def replace(self, base_offsets: Sequence[int], segments: Sequence[Segment]) -> list[Segment]:
        """Puts `segments` where the neighbours with these base offsets were; returns those."""
        slot = bisect_left(self._bases, base_offsets[0])
        if tuple(self._bases[slot : slot + len(base_offsets)]) != tuple(base_offsets):
            raise LookupError(f"segments {base_offsets} are not here any more")
        return self._splice(slot, slot + len(base_offsets), segments)

    def replace_all(self, segments: Sequence[Segment]) -> None:
        self._splice(0, len(self._segments), segments)

    def _splice(self, start: int, end: int, segments: Sequence[Segment]) -> list[Segment]:
        removed = self._segments[start:end]
        self._segments[start:end] = segments
        self._bases[start:end] = [segment.base_offset for segment in segments]
        self.active = self._segments[-1]
        return removed
