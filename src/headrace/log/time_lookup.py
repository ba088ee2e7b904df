"""From a timestamp to an offset: time index, then headers, then the records of one batch.

The only reader of records on a client's behalf in the log. Read next: index.py, wire/records.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.log.batch_walk import BatchPlace
from headrace.log.segment import Segment
from headrace.log.segment_list import SegmentList
from headrace.wire.batch import HEADER_SIZE, read_header
from headrace.wire.records import Record, read_records


def offset_for_timestamp(
    segments: SegmentList, timestamp_ms: int, start_offset: int
) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record from `start_offset` on that is not older."""
    for segment in _from(segments, start_offset):
        if segment.max_timestamp >= timestamp_ms:
            found = _first_in(segment, timestamp_ms, start_offset)
            if found is not None:
                return found
    return None


def offset_of_max_timestamp(segments: SegmentList, start_offset: int) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record with the largest timestamp."""
    best: tuple[int, int] | None = None
    for segment in sorted(_from(segments, start_offset), key=lambda segment: -segment.max_timestamp):
        if segment.max_timestamp < 0 or (best is not None and segment.max_timestamp < best[0]):
            break
        found = _first_in(segment, segment.max_timestamp, start_offset)
        if found is None:
            found = _latest_in(segment, start_offset)
        if found is not None and (best is None or (-found[0], found[1]) < (-best[0], best[1])):
            best = found
    return best


def _from(segments: SegmentList, start_offset: int) -> Iterator[Segment]:
    """Segments with something at or after `start_offset`, their timestamps known."""
    for slot, segment in enumerate(segments):
        if segments.end_of(slot) > start_offset and segment.size:
            segment.ensure_timestamps()
            yield segment


def _first_in(segment: Segment, timestamp_ms: int, start_offset: int) -> tuple[int, int] | None:
    first = segment.find(max(segment.earliest_offset_after(timestamp_ms), start_offset))
    if first is None:
        return None
    for place in segment.walk(first.position):
        if _max_timestamp(segment, place) >= timestamp_ms:
            for record in _records(segment, place):
                if record.timestamp >= timestamp_ms and record.offset >= start_offset:
                    return record.timestamp, record.offset
    return None


def _latest_in(segment: Segment, start_offset: int) -> tuple[int, int] | None:
    """For a segment whose largest timestamp belongs to a record that is deleted or compacted away."""
    first = segment.find(start_offset)
    places = [] if first is None else list(segment.walk(first.position))
    best: tuple[int, int] | None = None
    for timestamp, place in sorted((-_max_timestamp(segment, place), place) for place in places):
        if best is not None and timestamp > best[0]:
            break
        for record in _records(segment, place):
            if record.offset >= start_offset and (best is None or (-record.timestamp, record.offset) < best):
                best = -record.timestamp, record.offset
    return None if best is None else (-best[0], best[1])


def _max_timestamp(segment: Segment, place: BatchPlace) -> int:
    return read_header(segment.pooled.get().pread(HEADER_SIZE, place.position)).max_timestamp


def _records(segment: Segment, place: BatchPlace) -> list[Record]:
    return read_records(memoryview(segment.pooled.get().pread(place.size, place.position)))
