# SPDX-License-Identifier: Apache-2.0
"""Fetched bytes of one partition to the records that a filter takes, within a limit of bytes and time.

Blocking: runs in a thread. Read next: scan.py.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from headrace.client.arrow.fetch.sections import Fetched, Section, all_sections_of, whole_batches
from headrace.console.messages.record import StoredRecord, TransactionState
from headrace.wire.records import iter_records

Wanted = Callable[[StoredRecord], bool]
_LOOK_AT_CLOCK = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeLimits:
    records: int
    """At most so many that match are kept."""
    size: int
    """At most so many bytes of them; one is always kept."""
    deadline: float
    """Of `time.monotonic`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one fetch brought of a partition. `settled`: below this offset transactions are decided."""

    fetched: Fetched
    settled: int
    show_aborted: bool


@dataclass(slots=True)
class Found:
    records: deque[StoredRecord] = field(default_factory=deque)
    next_offset: int = 0
    """Everything before it was looked at."""
    looked_at: int = 0
    size: int = 0
    dropped: bool = False
    """Whether older records that match were left out."""


def decode_forward(part: Part, wanted: Wanted, limits: DecodeLimits) -> Found:
    """The first records that match; stops when there are enough or time is over."""
    found = Found(next_offset=part.fetched.first_offset)
    for record in _records(part):
        if len(found.records) >= limits.records or (found.size and found.size >= limits.size):
            return found
        found.looked_at += 1
        found.next_offset = record.offset + 1
        if wanted(record):
            found.records.append(record)
            found.size += record.size
        if found.looked_at % _LOOK_AT_CLOCK == 0 and time.monotonic() > limits.deadline:
            return found
    found.next_offset = _end_of(part.fetched)
    return found


def decode_newest(part: Part, wanted: Wanted, limits: DecodeLimits, before: Found) -> Found | None:
    """Adds the records of one more fetch of a window, and keeps the newest; None when time is over."""
    for record in _records(part):
        before.looked_at += 1
        if wanted(record):
            before.records.append(record)
            before.size += record.size
            while len(before.records) > limits.records or (
                before.size > limits.size and len(before.records) > 1
            ):
                before.size -= before.records.popleft().size
                before.dropped = True
        if before.looked_at % _LOOK_AT_CLOCK == 0 and time.monotonic() > limits.deadline:
            return None
    before.next_offset = _end_of(part.fetched)
    return before


def _records(part: Part) -> Iterator[StoredRecord]:
    fetched = part.fetched
    for section, aborted in all_sections_of(fetched):
        if aborted and not part.show_aborted:
            continue
        state = _state(section, aborted=aborted, settled=part.settled)
        header = section.header
        for record in iter_records(section.batch):
            if fetched.first_offset <= record.offset < fetched.end_offset:
                yield StoredRecord(
                    partition=section.partition,
                    offset=record.offset,
                    timestamp_ms=None if record.timestamp < 0 else record.timestamp,
                    append_time=bool(header.timestamp_type),
                    key=record.key,
                    value=record.value,
                    headers=record.headers,
                    producer_id=header.producer_id if header.producer_id >= 0 else None,
                    transaction=state,
                )


def _state(section: Section, *, aborted: bool, settled: int) -> TransactionState | None:
    if not section.header.is_transactional:
        return None
    if aborted:
        return "aborted"
    return "committed" if section.header.base_offset < settled else "open"


def _end_of(fetched: Fetched) -> int:
    """The offset after the last whole batch, which may hold no record that is wanted."""
    end = fetched.first_offset
    for _, header in whole_batches(memoryview(fetched.records)):
        end = max(end, header.next_offset)
    return min(end, fetched.end_offset)
