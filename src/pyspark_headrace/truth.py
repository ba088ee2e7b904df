"""A checkpoint held against what the cluster holds now: what moved on, and what was lost in which way.

Pure. Four things may have happened to where a query stands: its topic was deleted, or deleted and made anew;
retention took what was not read yet; the log was cut short by a leader that lacked its end. Offsets without a
record (compacted away, control records) are none of these and lose nothing. Read next: stream_reader.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from headrace.client.errors import ClientError
from headrace.types import TopicPartition
from pyspark_headrace.offsets import Offsets, Position, TopicPositions
from pyspark_headrace.options import DataLossPolicy, Selection
from pyspark_headrace.survey import PartitionNow, Picture, TopicNow

LossKind = Literal["deleted", "recreated", "aged out", "cut short"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """`records` is how many at most: some of the offsets may have held none. None: nobody knows."""

    kind: LossKind
    topic: str
    partition: int | None
    records: int | None
    what: str
    next_step: str

    def as_error(self) -> ClientError:
        return ClientError(self.what, next_step=self.next_step, code="DATA_LOSS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where to go on from, and what is missing before it."""

    offsets: Offsets
    losses: tuple[Loss, ...] = ()


def hold_against(
    start: Offsets,
    picture: Picture,
    *,
    selection: Selection,
    ends_of_epochs: Mapping[TopicPartition, int],
    policy: DataLossPolicy,
) -> Standing:
    """Under `fail` the first loss is raised. New topics and partitions stand at their first offset."""
    if policy == "fail":
        _check_belongs(start, selection)
    losses: list[Loss] = []
    topics: dict[str, TopicPositions] = {}
    for topic in sorted({*start.topics, *picture}):
        if not selection.takes(topic):
            continue  # no longer asked for
        held, now = start.topics.get(topic), picture.get(topic)
        if now is None:
            losses.append(_deleted(topic))
        elif held is None or held.topic_id != now.topic_id:
            if held is not None:
                losses.append(_recreated(topic, held, now))
            topics[topic] = _from_first(now)
        else:
            topics[topic] = _same_topic(topic, held, now, ends_of_epochs, policy, losses)
    if policy == "fail" and losses:
        raise losses[0].as_error()
    return Standing(offsets=Offsets(query=start.query, topics=topics), losses=tuple(losses))


def _check_belongs(start: Offsets, selection: Selection) -> None:
    """A query may leave out topics and add others; with none left the checkpoint is probably another's."""
    if start.topics and not any(selection.takes(topic) for topic in start.topics):
        raise ClientError(
            f"the checkpoint is of a query that read {', '.join(map(repr, sorted(start.topics)))}, "
            "and this one reads none of it",
            next_step="give this query a checkpointLocation of its own; "
            "or set onDataLoss=skip to leave the former topics behind",
        )


def _from_first(now: TopicNow) -> TopicPositions:
    return TopicPositions(
        topic_id=now.topic_id,
        partitions={
            partition: Position(offset=each.first, epoch=each.epoch)
            for partition, each in now.partitions.items()
        },
    )


def _same_topic(
    topic: str,
    held: TopicPositions,
    now: TopicNow,
    ends_of_epochs: Mapping[TopicPartition, int],
    policy: DataLossPolicy,
    losses: list[Loss],
) -> TopicPositions:
    partitions = dict(_from_first(now).partitions)
    for partition, position in held.partitions.items():
        each = now.partitions.get(partition)
        if each is None:
            continue  # no longer assigned to this query: a topic's partitions are never taken away
        place = TopicPartition(topic, partition)
        cut_at = _cut_at(position, each, ends_of_epochs.get(place))
        if position.offset < each.first:
            losses.append(_aged_out(place, position, each))
            partitions[partition] = Position(offset=each.first, epoch=each.epoch)
        elif cut_at is not None:
            losses.append(_cut_short(place, position, cut_at))
            back_to = each.first if policy == "earliest" else cut_at
            partitions[partition] = Position(offset=back_to, epoch=each.epoch)
        else:
            partitions[partition] = position
    return TopicPositions(topic_id=now.topic_id, partitions=partitions)


def _cut_at(position: Position, now: PartitionNow, end_of_epoch: int | None) -> int | None:
    """A new leader may not have told its end to anyone yet: where it knows the epoch, that counts."""
    if end_of_epoch is not None:
        return max(end_of_epoch, now.first) if end_of_epoch < position.offset else None
    return now.end if now.end < position.offset else None


def _deleted(topic: str) -> Loss:
    return Loss(
        kind="deleted",
        topic=topic,
        partition=None,
        records=None,
        what=f"topic {topic!r} was deleted; what the query had not read of it is lost",
        next_step="create it anew, or set onDataLoss=skip to go on without it",
    )


def _recreated(topic: str, held: TopicPositions, now: TopicNow) -> Loss:
    return Loss(
        kind="recreated",
        topic=topic,
        partition=None,
        records=None,
        what=f"topic {topic!r} was deleted and created anew: its id is {now.topic_id}, "
        f"the checkpoint's is {held.topic_id}; what the query had not read of the old one is lost",
        next_step="set onDataLoss=skip to read the new topic from its beginning",
    )


def _aged_out(place: TopicPartition, position: Position, now: PartitionNow) -> Loss:
    return Loss(
        kind="aged out",
        topic=place.topic,
        partition=place.partition,
        records=now.first - position.offset,
        what=f"partition {place.partition} of topic {place.topic!r} no longer holds offset "
        f"{position.offset}: it begins at {now.first} now, so that up to {now.first - position.offset} "
        "records aged out before the query read them",
        next_step=f"set onDataLoss=skip to go on at {now.first}, and give the topic a longer retention.ms",
    )


def _cut_short(place: TopicPartition, position: Position, cut_at: int) -> Loss:
    return Loss(
        kind="cut short",
        topic=place.topic,
        partition=place.partition,
        records=None,
        what=f"partition {place.partition} of topic {place.topic!r} was cut back to offset {cut_at} after "
        f"the query had read up to {position.offset}: a replica without these records became its leader",
        next_step="set onDataLoss=skip to go on with what is new, "
        "or onDataLoss=earliest to read again what the log still holds",
    )
