# SPDX-License-Identifier: Apache-2.0
"""Data loss detection: compares a checkpoint with the current topics and logs of the cluster.

Pure. Four kinds of loss: the topic was deleted, or deleted and recreated; retention removed records before
they were read; the log was truncated by a leader that lacked its end. Offsets without a record (compaction,
control records) are not a loss. Read next: planner.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from headrace.client.errors import ClientError
from headrace.types import TopicPartition
from pyspark_headrace.options import DataLossPolicy, Selection
from pyspark_headrace.reading.offset_lookup import PartitionState, Snapshot, TopicState
from pyspark_headrace.reading.offsets import Offsets, Position, TopicPositions

LossKind = Literal["deleted", "recreated", "aged out", "cut short"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """`records` is an upper bound, since some offsets may have held no record. None: unknown."""

    kind: LossKind
    topic: str
    partition: int | None
    records: int | None
    what: str
    next_step: str

    def as_error(self) -> ClientError:
        return ClientError(self.what, next_step=self.next_step, code="DATA_LOSS")


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """The offsets to continue from, and the losses before them."""

    offsets: Offsets
    losses: tuple[Loss, ...] = ()


def detect(
    start: Offsets,
    snapshot: Snapshot,
    *,
    selection: Selection,
    ends_of_epochs: Mapping[TopicPartition, int],
    policy: DataLossPolicy,
) -> Detection:
    """Compare `start` with the cluster. Policy `fail` raises the first loss."""
    if policy == "fail":
        _check_belongs(start, selection)
    losses: list[Loss] = []
    topics: dict[str, TopicPositions] = {}
    for topic in sorted({*start.topics, *snapshot}):
        if not selection.includes(topic):
            continue  # no longer selected
        held, now = start.topics.get(topic), snapshot.get(topic)
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
    return Detection(offsets=Offsets(query=start.query, topics=topics), losses=tuple(losses))


def _check_belongs(start: Offsets, selection: Selection) -> None:
    """A query may drop and add topics; with none in common the checkpoint is probably another query's."""
    if start.topics and not any(selection.includes(topic) for topic in start.topics):
        raise ClientError(
            f"the checkpoint belongs to a query that read {', '.join(map(repr, sorted(start.topics)))}; "
            "this query reads none of these topics",
            next_step="give this query a checkpointLocation of its own; "
            "or set onDataLoss=skip to leave the former topics behind",
        )


def _from_first(now: TopicState) -> TopicPositions:
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
    now: TopicState,
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
        truncated_at = _truncation(position, each, ends_of_epochs.get(place))
        if position.offset < each.first:
            losses.append(_aged_out(place, position, each))
            partitions[partition] = Position(offset=each.first, epoch=each.epoch)
        elif truncated_at is not None:
            losses.append(_truncated(place, position, truncated_at))
            back_to = each.first if policy == "earliest" else truncated_at
            partitions[partition] = Position(offset=back_to, epoch=each.epoch)
        else:
            partitions[partition] = position
    return TopicPositions(topic_id=now.topic_id, partitions=partitions)


def _truncation(position: Position, now: PartitionState, end_of_epoch: int | None) -> int | None:
    """Where the log was truncated below the position. The epoch's end offset, where known, takes precedence:
    a new leader's high watermark may lag behind."""
    if end_of_epoch is not None:
        return max(end_of_epoch, now.first) if end_of_epoch < position.offset else None
    return now.end if now.end < position.offset else None


def _deleted(topic: str) -> Loss:
    return Loss(
        kind="deleted",
        topic=topic,
        partition=None,
        records=None,
        what=f"topic {topic!r} was deleted; records that the query had not read are lost",
        next_step="create it again, or set onDataLoss=skip to continue without it",
    )


def _recreated(topic: str, held: TopicPositions, now: TopicState) -> Loss:
    return Loss(
        kind="recreated",
        topic=topic,
        partition=None,
        records=None,
        what=f"topic {topic!r} was deleted and recreated: its id is {now.topic_id}, "
        f"the checkpoint's is {held.topic_id}; records of the old topic that the query had not read are lost",
        next_step="set onDataLoss=skip to read the new topic from its beginning",
    )


def _aged_out(place: TopicPartition, position: Position, now: PartitionState) -> Loss:
    return Loss(
        kind="aged out",
        topic=place.topic,
        partition=place.partition,
        records=now.first - position.offset,
        what=f"partition {place.partition} of topic {place.topic!r} no longer holds offset "
        f"{position.offset}: it begins at {now.first} now; up to {now.first - position.offset} "
        "records were removed by retention before the query read them",
        next_step=f"set onDataLoss=skip to continue at {now.first}, and raise the topic's retention.ms",
    )


def _truncated(place: TopicPartition, position: Position, truncated_at: int) -> Loss:
    return Loss(
        kind="cut short",
        topic=place.topic,
        partition=place.partition,
        records=None,
        what=f"partition {place.partition} of topic {place.topic!r} was truncated to offset "
        f"{truncated_at} after the query had read up to {position.offset}: "
        "a replica without these records became its leader",
        next_step="set onDataLoss=skip to continue with new records, "
        "or onDataLoss=earliest to read the log again from its beginning",
    )
