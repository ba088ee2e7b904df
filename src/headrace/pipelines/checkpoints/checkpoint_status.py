# SPDX-License-Identifier: Apache-2.0
"""Compares a checkpoint with its topics: lag and losses of each partition, and planned changes.

Read next: checkpoint.py, pyspark_headrace/reading/data_loss.py (the kinds of loss).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.reachable import check_reachable
from headrace.client.tools.reset import OffsetChange, Strategy, plan_changes
from headrace.client.tools.reset import Offsets as KnownOffsets
from headrace.types import TopicPartition
from pyspark_headrace.client_pool import pooled_client
from pyspark_headrace.options import Selection
from pyspark_headrace.reading.data_loss import Loss, detect
from pyspark_headrace.reading.offset_lookup import OffsetLookup
from pyspark_headrace.reading.offset_specs import EARLIEST, LATEST
from pyspark_headrace.reading.offsets import Offsets, Position, TopicPositions

_TIMEOUT_MS = 15_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """`first`, `end`, `lag` are of the current log, None when the topic is deleted."""

    place: TopicPartition
    offset: int | None
    epoch: int | None
    topic_id: str | None
    first: int | None
    end: int | None
    lag: int | None
    loss: Loss | None


class CheckpointStatus:
    """Offsets of a checkpoint and one snapshot of its topics."""

    def __init__(self, offsets: Offsets, cluster: Cluster) -> None:
        """Raises ClientError when the cluster cannot be reached."""
        check_reachable(cluster)
        self._offsets = offsets
        self._connections = pooled_client(cluster.bootstrap, cluster.security)
        selection = Selection(names=tuple(offsets.topics))
        self._lookup = OffsetLookup(
            self._connections.client, selection, committed_only=True, timeout_ms=_TIMEOUT_MS
        )
        self._snapshot = self._connections.call(self._lookup.snapshot(topics_must_exist=False))
        ends_of_epochs = self._connections.call(self._lookup.ends_of_epochs(offsets))
        self._losses = detect(
            offsets, self._snapshot, selection=selection, ends_of_epochs=ends_of_epochs, policy="skip"
        ).losses
        self._now = {
            TopicPartition(topic, number): each
            for topic, held in self._snapshot.items()
            for number, each in held.partitions.items()
        }

    def partitions(self) -> list[PartitionStatus]:
        """Partitions of the checkpoint and those added to the topics since."""
        positions = dict(self._offsets)
        return [self._status(place, positions.get(place)) for place in sorted({*positions, *self._now})]

    def plan(self, strategy: Strategy) -> list[OffsetChange]:
        """Old and new offset of every partition, or of those that a file names."""
        chosen = strategy.from_file
        if chosen is not None:
            chosen = {place: self._plain(place, offset) for place, offset in chosen.items()}
            strategy = replace(strategy, from_file=chosen)
        unknown = sorted(set(chosen or ()) - self._now.keys())
        if unknown:
            raise ClientError(
                f"partition {unknown[0].partition} of topic {unknown[0].topic!r} is missing or not read",
                next_step=f"the query reads {', '.join(sorted(self._offsets.topics))}",
            )
        known = KnownOffsets(
            committed={place: position.offset for place, position in self._offsets},
            starts={place: now.first for place, now in self._now.items()},
            ends={place: now.end for place, now in self._now.items()},
            at_time=self._at_time(strategy.value) if strategy.kind == "time" else {},
        )
        return plan_changes(strategy, self._now if chosen is None else chosen, known)

    def moved(self, changes: Iterable[OffsetChange]) -> Offsets:
        """The offsets after the changes, without deleted topics."""
        chosen = {change.partition: change.new for change in changes}
        topics = {}
        for topic, held in self._offsets.topics.items():
            now = self._snapshot.get(topic)
            if now is None:
                continue
            partitions = dict(held.partitions) if held.topic_id == now.topic_id else {}
            for partition, each in now.partitions.items():
                offset = chosen.get(TopicPartition(topic, partition))
                if offset is not None:
                    partitions[partition] = Position(offset=offset, epoch=each.epoch)
            topics[topic] = TopicPositions(topic_id=now.topic_id, partitions=partitions)
        return replace(self._offsets, topics=topics)

    def _plain(self, place: TopicPartition, offset: int) -> int:
        """Resolve Spark's values for earliest and latest."""
        now = self._now.get(place)
        return offset if now is None else {EARLIEST: now.first, LATEST: now.end}.get(offset, offset)

    def _at_time(self, moment_ms: int) -> dict[TopicPartition, int]:
        """The first offset at or after the time; the end if there is none."""
        asked = dict.fromkeys(self._now, moment_ms)
        found = self._connections.call(self._lookup.at_times(asked))
        return {place: found[place] if found[place] >= 0 else now.end for place, now in self._now.items()}

    def _status(self, place: TopicPartition, position: Position | None) -> PartitionStatus:
        now = self._now.get(place)
        held = self._offsets.topics.get(place.topic)
        loss = next(
            (
                loss
                for loss in self._losses
                if loss.topic == place.topic and loss.partition in (None, place.partition)
            ),
            None,
        )
        begin = None if now is None else now.first if position is None or loss else position.offset
        return PartitionStatus(
            place=place,
            offset=None if position is None else position.offset,
            epoch=None if position is None else position.epoch,
            topic_id=None if held is None else held.topic_id,
            first=None if now is None else now.first,
            end=None if now is None else now.end,
            lag=None if now is None or begin is None else max(0, now.end - begin),
            loss=loss,
        )
