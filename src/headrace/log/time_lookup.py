# SPDX-License-Identifier: Apache-2.0
"""From a timestamp to an offset: time index, then headers, then the records of one batch.

The only reader of records on a client's behalf in the log. A batch may hold a million records, so looking
into one is a question of its own, which whoever has other things to do gives to a worker process.
Read next: segments/index.py, wire/records.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from headrace.errors import DecodeError
from headrace.kernels.library import FAULTS
from headrace.kernels.walk import TimeQuestion, Walk
from headrace.log.segments.batch_walk import BatchPlace
from headrace.log.segments.segment import Segment
from headrace.log.segments.segment_list import SegmentList
from headrace.wire.batch import HEADER_SIZE, read_header
from headrace.wire.compression import STORED_CAPS
from headrace.wire.record_layout import WALK
from headrace.wire.records import batch_payload, iter_records

Found = tuple[int, int]
"""timestamp, offset"""


class BatchQuestion(NamedTuple):
    """Which record of a batch is the first that is not older; without a timestamp, the latest of all."""

    batch: bytes
    timestamp_ms: int | None
    start_offset: int


Ask = Callable[[BatchQuestion], Found | None]


def search_batch(question: BatchQuestion, max_bytes: int = STORED_CAPS.max_bytes) -> Found | None:
    """Decodes the batch, to so many bytes at most. Also for a worker process."""
    if WALK is None:
        return search_in_turn(question, max_bytes)
    return search_by_kernel(WALK, question, max_bytes)


def search_by_kernel(walk: Walk, question: BatchQuestion, max_bytes: int) -> Found | None:
    batch, timestamp_ms, start_offset = question
    header, payload = batch_payload(memoryview(batch), max_bytes)
    asked = TimeQuestion(
        base_offset=header.base_offset,
        base_timestamp=header.base_timestamp,
        append_time=header.max_timestamp,
        has_append_time=header.timestamp_type,
        start_offset=start_offset,
        timestamp=timestamp_ms or 0,
        wants_latest=timestamp_ms is None,
    )
    found = walk.find_time(payload, header.record_count, asked)
    if isinstance(found, tuple):
        return found
    if found:
        raise DecodeError(f"a record of the batch at offset {header.base_offset}: {FAULTS[found]}")
    return None


def search_in_turn(question: BatchQuestion, max_bytes: int) -> Found | None:
    batch, timestamp_ms, start_offset = question
    times = (
        (record.timestamp, record.offset)
        for record in iter_records(memoryview(batch), max_bytes=max_bytes)
        if record.offset >= start_offset
    )
    if timestamp_ms is None:
        return max(times, key=_lateness, default=None)
    return next((found for found in times if found[0] >= timestamp_ms), None)


def _lateness(found: Found) -> tuple[int, int]:
    """Of records with the same timestamp the first counts."""
    return found[0], -found[1]


def _latest(*candidates: Found | None) -> Found | None:
    return max(filter(None, candidates), key=_lateness, default=None)


def offset_for_timestamp(
    segments: SegmentList, timestamp_ms: int, start_offset: int, ask: Ask = search_batch
) -> Found | None:
    """(timestamp, offset) of the first record from `start_offset` on that is not older."""
    for segment in _from(segments, start_offset):
        if segment.max_timestamp >= timestamp_ms:
            found = _first_in(segment, timestamp_ms, start_offset, ask)
            if found is not None:
                return found
    return None


def offset_of_max_timestamp(
    segments: SegmentList, start_offset: int, ask: Ask = search_batch
) -> Found | None:
    """(timestamp, offset) of the first record with the largest timestamp."""
    best: Found | None = None
    for segment in sorted(_from(segments, start_offset), key=lambda segment: -segment.max_timestamp):
        if segment.max_timestamp < 0 or (best is not None and segment.max_timestamp < best[0]):
            break
        found = _first_in(segment, segment.max_timestamp, start_offset, ask)
        if found is None:
            found = _latest_in(segment, start_offset, ask)
        best = _latest(best, found)
    return best


def _from(segments: SegmentList, start_offset: int) -> Iterator[Segment]:
    """Segments with something at or after `start_offset`, their timestamps known."""
    for slot, segment in enumerate(segments):
        if segments.end_of(slot) > start_offset and segment.size:
            segment.ensure_timestamps()
            yield segment


def _first_in(segment: Segment, timestamp_ms: int, start_offset: int, ask: Ask) -> Found | None:
    first = segment.find(max(segment.earliest_offset_after(timestamp_ms), start_offset))
    if first is None:
        return None
    for place in segment.walk(first.position):
        if _max_timestamp(segment, place) >= timestamp_ms:
            found = ask(BatchQuestion(_batch(segment, place), timestamp_ms, start_offset))
            if found is not None:
                return found
    return None


def _latest_in(segment: Segment, start_offset: int, ask: Ask) -> Found | None:
    """For a segment whose largest timestamp belongs to a record that is deleted or compacted away."""
    first = segment.find(start_offset)
    places = [] if first is None else list(segment.walk(first.position))
    best: Found | None = None
    for timestamp, place in sorted((-_max_timestamp(segment, place), place) for place in places):
        if best is not None and -timestamp < best[0]:
            break
        found = ask(BatchQuestion(_batch(segment, place), None, start_offset))
        best = _latest(best, found)
    return best


def _max_timestamp(segment: Segment, place: BatchPlace) -> int:
    return read_header(segment.pooled.get().pread(HEADER_SIZE, place.position)).max_timestamp


def _batch(segment: Segment, place: BatchPlace) -> bytes:
    return segment.pooled.get().pread(place.size, place.position)
