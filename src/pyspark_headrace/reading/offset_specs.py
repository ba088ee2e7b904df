# SPDX-License-Identifier: Apache-2.0
"""Resolves starting and ending options (earliest, latest, offsets, timestamps, group) to offsets.

Read next: offset_lookup.py (asks the brokers), pyspark_headrace/options.py (OffsetSpec).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from headrace.client.errors import ClientError
from headrace.types import TopicPartition
from pyspark_headrace.options import DataLossPolicy, OffsetSpec, ReadSettings
from pyspark_headrace.reading.offset_lookup import OffsetLookup, PartitionState, Snapshot
from pyspark_headrace.reading.offsets import Offsets, Position, TopicPositions

EARLIEST, LATEST = -2, -1

Committed = Callable[[], Awaitable[Mapping[TopicPartition, int]]]
Chosen = dict[TopicPartition, int]


async def resolve_starting(
    settings: ReadSettings, snapshot: Snapshot, lookup: OffsetLookup, committed: Committed, *, query: str
) -> Offsets:
    """The initial offsets of a query."""
    spec = settings.starting
    if spec.kind == "group":
        known = await committed()
        offsets = {each: known.get(each, now.first) for each, now in _each(snapshot)}
    elif spec.kind in ("timestamp", "timestamps"):
        offsets = await _at_times(settings, snapshot, lookup)
    else:
        offsets = _plain(spec, snapshot)
    return _positions(query, snapshot, offsets)


async def resolve_ending(
    settings: ReadSettings, snapshot: Snapshot, lookup: OffsetLookup, *, query: str
) -> Offsets:
    """The end offsets of a batch read; a timestamp after the last record means the end of the log."""
    spec = settings.ending
    if spec.kind in ("timestamp", "timestamps"):
        times = _times(spec, snapshot)
        found = await lookup.at_times(times)
        offsets = {each: found[each] if found[each] >= 0 else now.end for each, now in _each(snapshot)}
    else:
        offsets = _plain(spec, snapshot)
    return _positions(query, snapshot, offsets)


def within_log(start: Offsets, snapshot: Snapshot, policy: DataLossPolicy) -> Offsets:
    """Clamp offsets to the logs. With policy `fail`, an offset out of range raises ClientError."""
    topics = {}
    for topic, positions in start.topics.items():
        partitions = {}
        for partition, position in positions.partitions.items():
            now = snapshot[topic].partitions[partition]
            inside = min(max(position.offset, now.first), now.end)
            if inside != position.offset and policy == "fail":
                raise ClientError(
                    f"partition {partition} of topic {topic!r} has no offset {position.offset}: "
                    f"its log has {now.first} to {now.end}",
                    next_step="choose other offsets, or set onDataLoss=skip to read what the log has",
                    code="OFFSET_OUT_OF_RANGE",
                )
            partitions[partition] = replace(position, offset=inside)
        topics[topic] = replace(positions, partitions=partitions)
    return replace(start, topics=topics)


def _plain(spec: OffsetSpec, snapshot: Snapshot) -> Chosen:
    _check_partitions(spec, snapshot)
    fixed = {"earliest": EARLIEST, "latest": LATEST}.get(spec.kind)
    return {
        each: _resolved(spec.numbers[each.topic][each.partition] if fixed is None else fixed, now)
        for each, now in _each(snapshot)
    }


def _resolved(number: int, now: PartitionState) -> int:
    return {EARLIEST: now.first, LATEST: now.end}.get(number, number)


async def _at_times(settings: ReadSettings, snapshot: Snapshot, lookup: OffsetLookup) -> Chosen:
    times = _times(settings.starting, snapshot)
    found = await lookup.at_times(times)
    chosen: Chosen = {}
    for each, now in _each(snapshot):
        if found[each] >= 0:
            chosen[each] = found[each]
        elif settings.timestamp_beyond_end == "latest":
            chosen[each] = now.end
        else:
            raise ClientError(
                f"partition {each.partition} of topic {each.topic!r} has no record at or after "
                f"{times[each]} ms",
                next_step="choose an earlier time, or set startingOffsetsByTimestampStrategy=latest",
            )
    return chosen


def _times(spec: OffsetSpec, snapshot: Snapshot) -> Chosen:
    _check_partitions(spec, snapshot)
    if spec.kind == "timestamp":
        return {each: spec.timestamp for each, _ in _each(snapshot)}
    return {each: spec.numbers[each.topic][each.partition] for each, _ in _each(snapshot)}


def _check_partitions(spec: OffsetSpec, snapshot: Snapshot) -> None:
    """JSON names all selected partitions and no others, as for Spark's own connector."""
    if spec.kind not in ("offsets", "timestamps"):
        return
    for each, _ in _each(snapshot):
        if each.partition not in spec.numbers.get(each.topic, {}):
            number = "-2 is its beginning, -1 its end" if spec.kind == "offsets" else "0 is its beginning"
            raise ClientError(
                f"the {spec.kind} do not name partition {each.partition} of topic {each.topic!r}",
                next_step=f"name every partition that is read; {number}",
            )
    for topic, numbers in spec.numbers.items():
        for partition in numbers:
            if topic not in snapshot or partition not in snapshot[topic].partitions:
                raise ClientError(
                    f"the {spec.kind} name partition {partition} of topic {topic!r}, which is not selected",
                    next_step="name only what subscribe, subscribePattern or assign selects",
                )


def _each(snapshot: Snapshot) -> list[tuple[TopicPartition, PartitionState]]:
    return [
        (TopicPartition(topic, partition), each)
        for topic, now in sorted(snapshot.items())
        for partition, each in sorted(now.partitions.items())
    ]


def _positions(query: str, snapshot: Snapshot, offsets: Mapping[TopicPartition, int]) -> Offsets:
    return Offsets(
        query=query,
        topics={
            topic: TopicPositions(
                topic_id=now.topic_id,
                partitions={
                    partition: Position(offset=offsets[TopicPartition(topic, partition)], epoch=each.epoch)
                    for partition, each in now.partitions.items()
                },
            )
            for topic, now in snapshot.items()
        },
    )
