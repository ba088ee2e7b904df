# SPDX-License-Identifier: Apache-2.0
"""Which dead letters are replayed, and what they become: the record as it was before it failed.

    {"topic", "records": [{"partition", "offset"}] | null, "error": a kind of error | null, "again": false}

`records` null: all, the oldest first, of that kind of error. At most 1,000 records and 32 MB at once. Reads
what the view `dead-letters` shows (views/pipelines/dead_letter_sample.py knows the headers).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.client.errors import ClientError
from headrace.client.tools.reader import ReadRecord
from headrace.console.messages.directions import Onwards
from headrace.console.messages.record import StoredRecord
from headrace.console.messages.scan import Scan, ScanOptions
from headrace.console.messages.topic_fetch import TopicFetch, open_topic
from headrace.console.views.pipelines.dead_letter_sample import read_dead_letter
from headrace.console.views.view import Source, ViewError

MOST_RECORDS = 1_000
_MOST_BYTES = 32 << 20
_TIME_S = 20.0
_FAILURE_PREFIXES = ("headrace.", "__connect.errors.", "kafka_dlt-")
_INTERNAL_PREFIXES = ("__", "_headrace")

Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    topic: str
    places: frozenset[tuple[int, int]] | None
    """Partition and offset of the chosen ones; None: all."""
    error: str | None
    again: bool
    """Also those that were replayed already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A dead letter, and the record that it was. `topic` is None where its headers name none."""

    partition: int
    offset: int
    topic: str | None
    origin_partition: int | None
    column: str | None
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Letters:
    letters: list[Letter]
    more: bool
    """Whether there are more than one replay takes."""
    already: int
    """So many were left out because they were replayed before."""


def parse_request(body: Mapping[str, Any]) -> ReplayRequest:
    topic, error = body.get("topic"), body.get("error")
    if not isinstance(topic, str) or not topic:
        raise _wrong("topic", "give the name of the topic with the dead letters")
    if error is not None and not isinstance(error, str):
        raise _wrong("error", "give a kind of error as the page shows it, or null")
    return ReplayRequest(
        topic=topic, places=_places(body.get("records")), error=error or None, again=body.get("again") is True
    )


async def read_letters(
    source: Source, request: ReplayRequest, done: Callable[[int, int], bool] = lambda partition, offset: False
) -> Letters:
    """Without those that are `done`. ClientError when a partition cannot be read, or not in time."""
    reader = await open_topic(source.network, request.topic)
    scan = Scan(reader, Onwards(), await _ranges(reader, request), _options(source, request))
    letters: list[Letter] = []
    size = already = 0
    while (record := await scan.peek()) is not None:
        if done(record.partition, record.offset):
            already += 1
            scan.take()
            continue
        size += record.size
        if len(letters) >= MOST_RECORDS or (letters and size > _MOST_BYTES):
            break
        letters.append(_letter(record))
        scan.take()
    for partition, text in reader.problems.items():
        raise ClientError(f"partition {partition} of topic {request.topic!r} cannot be read: {text}")
    if record is None and not scan.finished:
        raise ClientError(
            f"the dead letters of topic {request.topic!r} could not be read within {_TIME_S:.0f} s",
            next_step="choose fewer of them",
        )
    return Letters(letters=letters, more=record is not None, already=already)


def why_not(letter: Letter, topic: str, partitions: Mapping[str, int]) -> str | None:
    """Why it cannot be replayed; `partitions`: how many the topics that exist have."""
    if letter.column is not None:
        return f"it holds only the {letter.column} of a record, which itself is still in its topic"
    if letter.topic is None:
        return "its headers do not say which topic it came from"
    if letter.topic == topic:
        return "it came from this topic itself"
    if letter.topic.startswith(_INTERNAL_PREFIXES):
        return f"it names {letter.topic}, an internal topic"
    if letter.topic not in partitions:
        return f"topic {letter.topic} does not exist"
    return None


async def _ranges(reader: TopicFetch, request: ReplayRequest) -> dict[int, tuple[int, int]]:
    places = request.places
    chosen = reader.chosen(None if places is None else {partition for partition, _ in places})
    starts = await reader.starts(chosen)
    ends = await reader.ends(starts)
    if places is None:
        return {each: (starts[each], end) for each, end in ends.items()}
    by_partition: dict[int, list[int]] = {}
    for partition, offset in places:
        by_partition.setdefault(partition, []).append(offset)
    return {
        each: (max(starts[each], min(offsets)), max(starts[each], min(ends[each], max(offsets) + 1)))
        for each, offsets in by_partition.items()
        if each in ends
    }


def _options(source: Source, request: ReplayRequest) -> ScanOptions:
    def wanted(record: StoredRecord) -> bool:
        if request.places is not None:
            return (record.partition, record.offset) in request.places
        found = read_dead_letter(_as_read(record))
        return found is not None and (request.error is None or found.kind == request.error)

    deadline = time.monotonic() + _TIME_S
    return ScanOptions(run=source.run, wanted=wanted, limit=MOST_RECORDS, deadline=deadline)


def _letter(record: StoredRecord) -> Letter:
    found = read_dead_letter(_as_read(record))
    return Letter(
        partition=record.partition,
        offset=record.offset,
        topic=None if found is None else found.topic,
        origin_partition=None if found is None else found.partition,
        column=None if found is None else found.column,
        key=record.key,
        value=record.value,
        headers=tuple(each for each in record.headers if not each[0].startswith(_FAILURE_PREFIXES)),
    )


def _as_read(record: StoredRecord) -> ReadRecord:
    return ReadRecord(
        topic="",
        partition=record.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        append_time=record.append_time,
        key=record.key,
        value=record.value,
        headers=record.headers,
    )


def _places(given: Any) -> frozenset[tuple[int, int]] | None:
    if given is None:
        return None
    if not isinstance(given, list) or not 0 < len(given) <= MOST_RECORDS:
        raise _wrong("list of records", f"give 1 to {MOST_RECORDS:,}, or null for all")
    return frozenset(_place(each) for each in given)


def _place(each: Any) -> tuple[int, int]:
    if isinstance(each, Mapping):
        place = (each.get("partition"), each.get("offset"))
        if all(isinstance(number, int) and not isinstance(number, bool) and number >= 0 for number in place):
            return place  # type: ignore[return-value]  # checked
    raise _wrong("list of records", 'each is {"partition", "offset"}')


def _wrong(name: str, next_step: str) -> ViewError:
    return ViewError(f"the {name} is not as it should be", next_step=next_step, status=400)
