"""A checkpoint beside what its topics hold now: where the query stands, what is gone, where it could go.

Read next: checkpoint.py, pyspark_headrace/truth.py (what can have happened to an offset).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from headrace.client.bootstrap import check_reachable
from headrace.client.errors import ClientError
from headrace.client.reset import OffsetChange, Strategy, plan_changes
from headrace.client.reset import Offsets as KnownOffsets
from headrace.types import TopicPartition
from pyspark_headrace.connections import kept
from pyspark_headrace.offsets import Offsets, Position, TopicPositions
from pyspark_headrace.options import Selection
from pyspark_headrace.places import EARLIEST, LATEST
from pyspark_headrace.survey import Survey
from pyspark_headrace.truth import Loss, hold_against

_TIMEOUT_MS = 15_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTruth:
    """`first`, `end`, `lag`: of the log now, None when the topic is gone. `loss`: what happened to it."""

    place: TopicPartition
    offset: int | None
    epoch: int | None
    topic_id: str | None
    first: int | None
    end: int | None
    lag: int | None
    loss: Loss | None


class CheckpointTruth:
    """What one query's checkpoint says, and one picture of its topics."""

    def __init__(self, offsets: Offsets, bootstrap: str) -> None:
        """ClientError when the cluster cannot be reached."""
        check_reachable(bootstrap)
        self._offsets = offsets
        self._connections = kept(bootstrap)
        selection = Selection(names=tuple(offsets.topics))
        self._survey = Survey(
            self._connections.cluster, selection, committed_only=True, timeout_ms=_TIMEOUT_MS
        )
        self._picture = self._connections.call(self._survey.picture(all_there=False))
        ends_of_epochs = self._connections.call(self._survey.ends_of_epochs(offsets))
        self._losses = hold_against(
            offsets, self._picture, selection=selection, ends_of_epochs=ends_of_epochs, policy="skip"
        ).losses
        self._now = {
            TopicPartition(topic, number): each
            for topic, held in self._picture.items()
            for number, each in held.partitions.items()
        }

    def partitions(self) -> list[PartitionTruth]:
        """Those of the checkpoint, and those that the topics have got since."""
        positions = dict(self._offsets)
        return [self._truth(place, positions.get(place)) for place in sorted({*positions, *self._now})]

    def plan(self, strategy: Strategy) -> list[OffsetChange]:
        """Old and new offset of every partition, or of those that a file names."""
        chosen = strategy.from_file
        if chosen is not None:
            chosen = {place: self._plain(place, offset) for place, offset in chosen.items()}
            strategy = replace(strategy, from_file=chosen)
        unknown = sorted(set(chosen or ()) - self._now.keys())
        if unknown:
            raise ClientError(
                f"partition {unknown[0].partition} of topic {unknown[0].topic!r} is not there, or not read",
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
        """The offsets after them. Topics that were deleted are no longer among them."""
        chosen = {change.partition: change.new for change in changes}
        topics = {}
        for topic, held in self._offsets.topics.items():
            now = self._picture.get(topic)
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
        """Without Spark's signs for the earliest and the latest."""
        now = self._now.get(place)
        return offset if now is None else {EARLIEST: now.first, LATEST: now.end}.get(offset, offset)

    def _at_time(self, moment_ms: int) -> dict[TopicPartition, int]:
        """Where no record is that late, the end."""
        asked = dict.fromkeys(self._now, moment_ms)
        found = self._connections.call(self._survey.at_times(asked))
        return {place: found[place] if found[place] >= 0 else now.end for place, now in self._now.items()}

    def _truth(self, place: TopicPartition, position: Position | None) -> PartitionTruth:
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
        return PartitionTruth(
            place=place,
            offset=None if position is None else position.offset,
            epoch=None if position is None else position.epoch,
            topic_id=None if held is None else held.topic_id,
            first=None if now is None else now.first,
            end=None if now is None else now.end,
            lag=None if now is None or begin is None else max(0, now.end - begin),
            loss=loss,
        )
