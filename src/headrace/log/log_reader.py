"""From an offset to a slice of a segment file, without reading what was just read.

Ends of recent slices are remembered: a consumer that reads on asks for exactly that offset next, and the high
watermark stands at the end of a flush or of a follower's fetch. Only a first read or a seek uses the index.
"""

from __future__ import annotations

from headrace.log.batch_walk import place_at
from headrace.log.log_slice import LogSlice
from headrace.log.segment import Segment
from headrace.log.segment_list import SegmentList

_POSITIONS_KEPT = 64


class LogReader:
    __slots__ = ("_positions", "_segments")

    def __init__(self, segments: SegmentList) -> None:
        self._segments = segments
        self._positions: dict[int, int] = {}
        """Offset -> where its batch begins, or will begin, in the segment that holds it."""

    def remember(self, offset: int, position: int) -> None:
        positions = self._positions
        positions[offset] = position
        if len(positions) > _POSITIONS_KEPT:
            del positions[next(iter(positions))]

    def forget(self) -> None:
        """Batches have moved."""
        self._positions.clear()

    def read(self, offset: int, max_bytes: int, limit_offset: int, *, at_least_one: bool) -> LogSlice | None:
        """As PartitionLog.read; `limit_offset` is at most the log end."""
        segments = self._segments
        segment = segments.active
        slot = len(segments) - 1
        if offset < segment.base_offset:
            slot = max(segments.slot_of(offset), 0)
            segment = segments[slot]
        while offset < limit_offset:
            start = self._position(segment, offset)
            if start < segment.size:
                segment_end = segments.end_of(slot)
                return self._slice(segment, segment_end, start, max_bytes, limit_offset, at_least_one)
            slot += 1  # compaction removed the rest of this segment
            if slot == len(segments):
                break
            segment = segments[slot]
        return None

    def _position(self, segment: Segment, offset: int) -> int:
        """Where the batch with `offset` begins, or the next one after it."""
        if offset <= segment.base_offset:
            return 0
        position = self._positions.get(offset)
        if position is None:
            place = segment.find(offset)
            position = segment.size if place is None else place.position
            self.remember(offset, position)
        return position

    def _slice(
        self,
        segment: Segment,
        segment_end: int,
        start: int,
        max_bytes: int,
        limit_offset: int,
        at_least_one: bool,
    ) -> LogSlice | None:
        if limit_offset >= segment_end:
            end, next_offset = segment.size, segment_end
        else:
            end, next_offset = self._position(segment, limit_offset), limit_offset
        if end - start > max_bytes:
            cut = segment.cut(start, start + max_bytes)
            if cut is None:
                place = place_at(segment.pooled.get(), start, segment.size) if at_least_one else None
                if place is None:
                    return None
                cut = place.position + place.size, place.last_offset + 1
            end, next_offset = cut
        if end <= start:
            return None
        self.remember(next_offset, end)
        return LogSlice(segment.pooled, start, end - start, next_offset)
