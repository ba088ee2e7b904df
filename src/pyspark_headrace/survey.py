"""What a cluster holds now: topics with their ids, epochs of leaders, first and last offsets.

Asks over connections that are kept; leaders that move are asked for again. Read next: truth.py, places.py.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.client.arrow.bounds import EARLIEST, LATEST, LIST_OFFSETS, READ_COMMITTED, TryAgain
from headrace.client.arrow.cluster import LOST, Cluster, NoSuchTopic, Patience, TopicView
from headrace.client.connection import ConnectionLost
from headrace.client.errors import ClientError
from headrace.types import TopicPartition
from headrace.wire.error_codes import ErrorCode
from pyspark_headrace.offsets import NO_EPOCH, Offsets
from pyspark_headrace.options import Selection
from pyspark_headrace.patience import patiently

OFFSET_FOR_LEADER_EPOCH = 23
_NOT_CREATED_YET_MS = 700

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionNow:
    epoch: int
    first: int
    end: int
    """Up to where a reader may read: the last stable offset when only committed records count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicNow:
    topic_id: str | None
    partitions: Mapping[int, PartitionNow]


Picture = Mapping[str, TopicNow]


class Survey:
    """The questions of one query, over one cluster."""

    def __init__(
        self, cluster: Cluster, selection: Selection, *, committed_only: bool, timeout_ms: int
    ) -> None:
        self._cluster = cluster
        self._selection = selection
        self._committed_only = committed_only
        self._timeout_ms = timeout_ms
        self._views: Mapping[str, TopicView] = {}

    async def picture(self, *, all_there: bool) -> Picture:
        """`all_there`: topics that were named must exist, and a broker must answer at once."""
        if all_there:
            await self.reach()
            await self._find_named()
        return await self.patiently(self._look)

    async def reach(self) -> None:
        """A broker must answer at once."""
        await self._cluster.any_connection()

    async def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The first offset whose record is that late, -1 where none is. Needs a picture before."""
        return await self.patiently(lambda: self._offsets(times))

    async def ends_of_epochs(self, start: Offsets) -> dict[TopicPartition, int]:
        """Where the log of each position's epoch ends, of positions whose leader has changed since.

        Before the position: the log was cut short, and what the query read there is no longer in it.
        """
        changed = {
            place: position.epoch
            for place, position in start
            if position.epoch != NO_EPOCH and self._epoch(place) not in (NO_EPOCH, position.epoch)
        }
        return await self.patiently(lambda: self._epoch_ends(changed)) if changed else {}

    async def patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Asks again, of whoever leads then, while leaders move and brokers restart."""
        return await patiently(ask, timeout_ms=self._timeout_ms, prepare=self._renew_views)

    def by_leader(self, places: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        for place in places:
            leader = self._views[place.topic].leaders.get(place.partition, -1)
            if leader < 0:
                raise ConnectionLost(
                    f"partition {place.partition} of topic {place.topic!r} has no leader now",
                    next_step=f"see its replicas: headrace topics describe {place.topic}",
                )
            by_leader[leader].append(place)
        return by_leader

    def view(self, topic: str) -> TopicView:
        """As it was last seen."""
        return self._views[topic]

    # -- private -------------------------------------------------------------------------------------------

    async def _renew_views(self, patience: Patience) -> None:
        try:
            await self._find()
        except LOST as error:
            await patience.wait(error)

    async def _find_named(self) -> None:
        """A topic that was made a moment ago is not known to every broker at once."""
        patience = Patience(_NOT_CREATED_YET_MS)
        while True:
            await self._find()
            lacking = self._lacking()
            if lacking is None:
                break
            await patience.wait(lacking)
        for topic, partitions in (self._selection.partitions or {}).items():
            gone = [each for each in partitions if each not in self._views[topic].leaders]
            if gone:
                count = len(self._views[topic].leaders)
                raise ClientError(f"topic {topic!r} has no partition {gone[0]}: they are 0 to {count - 1}")

    def _lacking(self) -> ClientError | None:
        for name in self._selection.asked or ():
            if name not in self._views:
                return NoSuchTopic(
                    f"topic {name!r} does not exist", next_step=f"create it: headrace topics create {name}"
                )
            if not self._views[name].leaders:
                return ClientError(
                    f"topic {name!r} has no partitions, so that nothing can be read from it",
                    next_step=f"see whether it is being created or deleted: headrace topics describe {name}",
                )
        return None

    async def _find(self) -> None:
        asked = self._selection.asked
        views = await self._cluster.topics(asked)
        self._views = {name: view for name, view in views.items() if self._selection.takes(name)}

    async def _look(self) -> Picture:
        await self._find()
        places = [
            TopicPartition(name, partition)
            for name, view in self._views.items()
            for partition in view.partitions
            if self._selection.takes(name, partition)
        ]
        firsts, ends = await asyncio.gather(
            self._offsets(dict.fromkeys(places, EARLIEST)), self._offsets(dict.fromkeys(places, LATEST))
        )
        partitions: dict[str, dict[int, PartitionNow]] = defaultdict(dict)
        for place in places:
            partitions[place.topic][place.partition] = PartitionNow(
                epoch=self._epoch(place), first=firsts[place], end=ends[place]
            )
        return {
            name: TopicNow(topic_id=_text(view.topic_id), partitions=partitions[name])
            for name, view in self._views.items()
        }

    def _epoch(self, place: TopicPartition) -> int:
        view = self._views.get(place.topic)
        return NO_EPOCH if view is None else view.epochs.get(place.partition, NO_EPOCH)

    async def _offsets(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for node_id, places in self.by_leader(times).items():
            connection = await self._cluster.connection(node_id)
            fields = {
                "replica_id": -1,
                "isolation_level": READ_COMMITTED if self._committed_only else 0,
                "topics": _by_topic(
                    places,
                    "name",
                    lambda place: {
                        "partition_index": place.partition,
                        "current_leader_epoch": -1,
                        "timestamp": times[place],
                    },
                ),
            }
            reply = await connection.call(LIST_OFFSETS, fields)
            for topic in reply.topics:
                for entry in topic.partitions:
                    place = TopicPartition(str(topic.name), int(entry.partition_index))
                    _check(entry.error_code, place)
                    found[place] = int(entry.offset)
        return found

    async def _epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for node_id, places in self.by_leader(epochs).items():
            connection = await self._cluster.connection(node_id)
            if OFFSET_FOR_LEADER_EPOCH not in connection.versions:
                continue
            fields = {
                "replica_id": -1,
                "topics": _by_topic(
                    places,
                    "topic",
                    lambda place: {
                        "partition": place.partition,
                        "current_leader_epoch": -1,
                        "leader_epoch": epochs[place],
                    },
                ),
            }
            reply = await connection.call(OFFSET_FOR_LEADER_EPOCH, fields)
            for topic in reply.topics:
                for entry in topic.partitions:
                    place = TopicPartition(str(topic.topic), int(entry.partition))
                    _check(entry.error_code, place)
                    if int(entry.end_offset) >= 0:
                        found[place] = int(entry.end_offset)
        return found


def _by_topic(
    places: Iterable[TopicPartition], name: str, entry: Callable[[TopicPartition], dict[str, Any]]
) -> list[dict[str, Any]]:
    entries: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for place in places:
        entries[place.topic].append(entry(place))
    return [{name: topic, "partitions": found} for topic, found in entries.items()]


def _check(error_code: Any, place: TopicPartition) -> None:
    code = ErrorCode(int(error_code))
    if code is not ErrorCode.none:
        raise TryAgain(f"partition {place.partition} of topic {place.topic!r}: {code.name}", code)


def _text(topic_id: Any) -> str | None:
    return None if topic_id is None else str(topic_id)
