"""Where a read begins and ends: what the options say, as offsets of every partition.

Read next: survey.py (who is asked), options.py (what can be said).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from headrace.client.errors import ClientError
from headrace.types import TopicPartition
from pyspark_headrace.offsets import Offsets, Position, TopicPositions
from pyspark_headrace.options import DataLossPolicy, Place, ReadSettings
from pyspark_headrace.survey import PartitionNow, Picture, Survey

EARLIEST, LATEST = -2, -1

Committed = Callable[[], Awaitable[Mapping[TopicPartition, int]]]
Chosen = dict[TopicPartition, int]


async def starting(
    settings: ReadSettings, picture: Picture, survey: Survey, committed: Committed, *, query: str
) -> Offsets:
    """The first position of a query."""
    place = settings.starting
    if place.kind == "group":
        known = await committed()
        offsets = {each: known.get(each, now.first) for each, now in _each(picture)}
    elif place.kind in ("timestamp", "timestamps"):
        offsets = await _at_times(settings, picture, survey)
    else:
        offsets = _plain(place, picture, EARLIEST)
    return _positions(query, picture, offsets)


async def ending(settings: ReadSettings, picture: Picture, survey: Survey, *, query: str) -> Offsets:
    """The last position of a batch read; a time that nothing reaches is the end."""
    place = settings.ending
    if place.kind in ("timestamp", "timestamps"):
        times = _times(place, picture)
        found = await survey.at_times(times)
        offsets = {each: found[each] if found.get(each, -1) >= 0 else now.end for each, now in _each(picture)}
    else:
        offsets = _plain(place, picture, LATEST)
    return _positions(query, picture, offsets)


def held(start: Offsets, picture: Picture, policy: DataLossPolicy) -> Offsets:
    """The same positions, inside what the logs hold. Under `fail` one outside is an error that names it."""
    topics = {}
    for topic, positions in start.topics.items():
        partitions = {}
        for partition, position in positions.partitions.items():
            now = picture[topic].partitions[partition]
            inside = min(max(position.offset, now.first), now.end)
            if inside != position.offset and policy == "fail":
                raise ClientError(
                    f"partition {partition} of topic {topic!r} has no offset {position.offset}: "
                    f"it holds {now.first} to {now.end}",
                    next_step="choose other offsets, or set onDataLoss=skip to take what is there",
                    code="OFFSET_OUT_OF_RANGE",
                )
            partitions[partition] = replace(position, offset=inside)
        topics[topic] = replace(positions, partitions=partitions)
    return replace(start, topics=topics)


def _plain(place: Place, picture: Picture, otherwise: int) -> Chosen:
    """Partitions that the JSON leaves out are read from their beginning, or to their end."""
    _check_known(place, picture)
    sign = {"earliest": EARLIEST, "latest": LATEST}.get(place.kind)
    chosen: Chosen = {}
    for each, now in _each(picture):
        number = place.numbers.get(each.topic, {}).get(each.partition, otherwise) if sign is None else sign
        chosen[each] = _resolved(number, now)
    return chosen


def _resolved(number: int, now: PartitionNow) -> int:
    return {EARLIEST: now.first, LATEST: now.end}.get(number, number)


async def _at_times(settings: ReadSettings, picture: Picture, survey: Survey) -> Chosen:
    times = _times(settings.starting, picture)
    found = await survey.at_times(times)
    chosen: Chosen = {}
    for each, now in _each(picture):
        if each not in times:
            chosen[each] = now.first
        elif found[each] >= 0:
            chosen[each] = found[each]
        elif settings.later_than_all == "latest":
            chosen[each] = now.end
        else:
            raise ClientError(
                f"partition {each.partition} of topic {each.topic!r} has no record at or after "
                f"{times[each]} ms",
                next_step="choose an earlier time, or set startingOffsetsByTimestampStrategy=latest",
            )
    return chosen


def _times(place: Place, picture: Picture) -> Chosen:
    _check_known(place, picture)
    if place.kind == "timestamp":
        return {each: place.timestamp for each, _ in _each(picture)}
    return {
        each: place.numbers[each.topic][each.partition]
        for each, _ in _each(picture)
        if each.partition in place.numbers.get(each.topic, {})
    }


def _check_known(place: Place, picture: Picture) -> None:
    for topic, numbers in place.numbers.items():
        for partition in numbers:
            if topic not in picture or partition not in picture[topic].partitions:
                raise ClientError(
                    f"the offsets name partition {partition} of topic {topic!r}, which is not read here",
                    next_step="name only what subscribe, subscribePattern or assign selects",
                )


def _each(picture: Picture) -> list[tuple[TopicPartition, PartitionNow]]:
    return [
        (TopicPartition(topic, partition), each)
        for topic, now in sorted(picture.items())
        for partition, each in sorted(now.partitions.items())
    ]


def _positions(query: str, picture: Picture, offsets: Mapping[TopicPartition, int]) -> Offsets:
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
            for topic, now in picture.items()
        },
    )
