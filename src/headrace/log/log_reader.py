# SPDX-License-Identifier: Apache-2.0
"""From an offset to a slice of a segment file, without reading what was just read.

Ends of recent slices are remembered: a consumer that reads on asks for exactly that offset next, and the high
watermark stands at the end of a flush or of a follower's fetch. Only a first read or a seek uses the index.
"""

from __future__ import annotations

from headrace.log.segments.batch_walk import BatchFile, place_at
from headrace.log.segments.cold_read import ColdRead, NotAtHand
from headrace.log.segments.log_slice import LogSlice
from headrace.log.segments.segment import Segment
from headrace.log.segments.segment_list import SegmentList

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

    def read(
        self, offset: int, max_bytes: int, limit_offset: int, *, at_least_one: bool, wait: bool
    ) -> LogSlice | None:
        """As PartitionLog.read; `limit_offset` is at most the log end."""
        segments = self._segments
        segment = segments.active
        slot, segment_end = 0, segment.next_offset
        if offset < segment.base_offset:
            slot = max(segments.slot_of(offset), 0)
            segment, segment_end = segments[slot], segments.end_of(slot)
        while offset < limit_offset:
            start = self._position(segment, offset, wait)
            if start < segment.size:
                end, next_offset = segment.size, segment_end
                if limit_offset < segment_end:
                    end, next_offset = self._position(segment, limit_offset, wait), limit_offset
                if end - start > max_bytes:
                    cut = self._cut(segment, start, max_bytes, at_least_one, wait)
                    if cut is None:
                        return None
                    end, next_offset = cut
                if end <= start:
                    return None
                self.remember(next_offset, end)
                return LogSlice(segment.pooled, start, end - start, next_offset)
            if segment is segments.active:
                break
            slot += 1  # compaction removed the rest of this segment
            segment, segment_end = segments[slot], segments.end_of(slot)
        return None

    def bytes_from(self, offset: int) -> int:
        """The size of the batches from the one with `offset` on."""
        segments = self._segments
        slot = max(segments.slot_of(offset), 0)
        behind = sum(segments[number].size for number in range(slot + 1, len(segments)))
        return behind + segments[slot].size - self._position(segments[slot], offset, wait=True)

    def _position(self, segment: Segment, offset: int, wait: bool) -> int:
        """Where the batch with `offset` begins, or the next one after it."""
        if offset <= segment.base_offset:
            return 0
        position = self._positions.get(offset)
        if position is None:
            try:
                place = segment.find(offset, _file(segment, wait))
            except NotAtHand as cold:
                raise ColdRead(segment.pooled, cold.start, cold.end) from None
            position = segment.size if place is None else place.position
            self.remember(offset, position)
        return position

    def _cut(
        self, segment: Segment, start: int, max_bytes: int, at_least_one: bool, wait: bool
    ) -> tuple[int, int] | None:
        """(position, offset) behind the last batch that fits, or behind the first if there must be one."""
        file = _file(segment, wait)
        try:
            cut = segment.cut(start, start + max_bytes, file)
            if cut is None and at_least_one:
                place = place_at(file, start, segment.size)
                cut = None if place is None else (place.position + place.size, place.last_offset + 1)
        except NotAtHand as cold:
            raise ColdRead(segment.pooled, start, cold.end) from None
        return cut


def _file(segment: Segment, wait: bool) -> BatchFile:
    return segment.pooled.get() if wait else segment.hot_file()
