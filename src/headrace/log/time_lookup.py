"""From a timestamp to an offset: time index, then headers, then the records of one batch.

The only reader of records on a client's behalf in the log. Read next: index.py, wire/records.py.
"""

from __future__ import annotations

from headrace.log.segment import Segment
from headrace.log.segment_list import SegmentList
from headrace.wire.batch import HEADER_SIZE, read_header
from headrace.wire.records import Record, read_records


def offset_for_timestamp(
    segments: SegmentList, timestamp_ms: int, start_offset: int
) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record from `start_offset` on that is not older."""
    for slot, segment in enumerate(segments):
        if segments.end_of(slot) <= start_offset or not segment.size:
            continue
        segment.ensure_timestamps()
        if segment.max_timestamp >= timestamp_ms:
            found = _first_in(segment, timestamp_ms, start_offset)
            if found is not None:
                return found
    return None


def offset_of_max_timestamp(segments: SegmentList, start_offset: int) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record with the largest timestamp."""
    largest = None
    for slot, segment in enumerate(segments):
        if segments.end_of(slot) > start_offset and segment.size:
            segment.ensure_timestamps()
            if largest is None or segment.max_timestamp > largest.max_timestamp:
                largest = segment
    if largest is None or largest.max_timestamp < 0:
        return None
    return _first_in(largest, largest.max_timestamp, start_offset)


def _first_in(segment: Segment, timestamp_ms: int, start_offset: int) -> tuple[int, int] | None:
    relative = segment.times.last_at_or_below(timestamp_ms)
    first = segment.find(max(segment.base_offset + relative, start_offset))
    if first is None:
        return None
    file = segment.pooled.get()
    for place in segment.walk(first.position):
        header = read_header(file.pread(HEADER_SIZE, place.position))
        if header.max_timestamp < timestamp_ms or place.last_offset < start_offset:
            continue
        for record in _records(file.pread(place.size, place.position)):
            if record.timestamp >= timestamp_ms and record.offset >= start_offset:
                return record.timestamp, record.offset
    return None


def _records(batch: bytes) -> list[Record]:
    return read_records(memoryview(batch))
