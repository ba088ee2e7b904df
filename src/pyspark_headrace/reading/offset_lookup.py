# SPDX-License-Identifier: Apache-2.0
"""Looks up topic ids, leader epochs and start and end offsets of the selected partitions.

Uses pooled connections and refreshes metadata when leaders move. Read next: data_loss.py, offset_specs.py.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.client.arrow.fetch.fetcher import READ_COMMITTED
from headrace.client.arrow.read.bounds import EARLIEST, LATEST
from headrace.client.connection import ConnectionLost
from headrace.client.errors import BrokerError, ClientError
from headrace.client.network_client import NetworkClient, NoSuchTopic, TopicView
from headrace.client.retry import LOST, Backoff, retry
from headrace.types import TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from pyspark_headrace.options import Selection
from pyspark_headrace.reading.offsets import NO_EPOCH, Offsets

_TOPIC_CREATION_MS = 700

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    epoch: int
    first: int
    end: int
    """The last stable offset with read_committed, otherwise the high watermark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    topic_id: str | None
    partitions: Mapping[int, PartitionState]


Snapshot = Mapping[str, TopicState]


class OffsetLookup:
    """Metadata and offset requests of one query."""

    def __init__(
        self, client: NetworkClient, selection: Selection, *, committed_only: bool, timeout_ms: int
    ) -> None:
        self._client = client
        self._selection = selection
        self._committed_only = committed_only
        self._timeout_ms = timeout_ms
        self._views: Mapping[str, TopicView] = {}

    async def snapshot(self, *, topics_must_exist: bool) -> Snapshot:
        """Current offsets. `topics_must_exist`: named topics must exist, and a broker must answer at once."""
        if topics_must_exist:
            await self.reach()
            await self._require_topics()
        return await self.with_retries(self._take_snapshot)

    async def reach(self) -> None:
        """Connect to any broker without retrying."""
        await self._client.any_connection()

    async def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The first offset at or after each timestamp, -1 if there is none. Call `snapshot` first."""
        return await self.with_retries(lambda: self._offsets(times))

    async def ends_of_epochs(self, start: Offsets) -> dict[TopicPartition, int]:
        """End offsets of the epochs of those positions whose leader epoch has changed since.

        An end offset below the position means that the log was truncated.
        """
        changed = {
            place: position.epoch
            for place, position in start
            if position.epoch != NO_EPOCH and self._epoch(place) not in (NO_EPOCH, position.epoch)
        }
        return await self.with_retries(lambda: self._epoch_ends(changed)) if changed else {}

    async def with_retries(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Retry with fresh metadata while leaders move and brokers restart."""
        backoff = Backoff(self._timeout_ms)

        async def wait(error: ClientError) -> None:
            await backoff.wait(error)
            await self._refresh_metadata(backoff)

        return await retry(ask, wait)

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
        """The topic's metadata as of the last refresh."""
        return self._views[topic]

    # -- private -------------------------------------------------------------------------------------------

    async def _refresh_metadata(self, backoff: Backoff) -> None:
        try:
            await self._find()
        except LOST as error:
            await backoff.wait(error)

    async def _require_topics(self) -> None:
        """Wait for a topic created a moment ago: not every broker knows it at once."""
        backoff = Backoff(_TOPIC_CREATION_MS)
        while True:
            await self._find()
            missing = self._missing_topic()
            if missing is None:
                break
            await backoff.wait(missing)
        for topic, partitions in (self._selection.partitions or {}).items():
            gone = [each for each in partitions if each not in self._views[topic].leaders]
            if gone:
                count = len(self._views[topic].leaders)
                raise ClientError(f"topic {topic!r} has no partition {gone[0]}: they are 0 to {count - 1}")

    def _missing_topic(self) -> ClientError | None:
        for name in self._selection.required_topics or ():
            if name not in self._views:
                return NoSuchTopic(
                    f"topic {name!r} does not exist", next_step=f"create it: headrace topics create {name}"
                )
            if not self._views[name].leaders:
                return ClientError(
                    f"topic {name!r} has no partitions",
                    next_step=f"see whether it is being created or deleted: headrace topics describe {name}",
                )
        return None

    async def _find(self) -> None:
        required = self._selection.required_topics
        views = await self._client.topics(required)
        self._views = {name: view for name, view in views.items() if self._selection.includes(name)}

    async def _take_snapshot(self) -> Snapshot:
        await self._find()
        places = [
            TopicPartition(name, partition)
            for name, view in self._views.items()
            for partition in view.partitions
            if self._selection.includes(name, partition)
        ]
        firsts, ends = await asyncio.gather(
            self._offsets(dict.fromkeys(places, EARLIEST)), self._offsets(dict.fromkeys(places, LATEST))
        )
        partitions: dict[str, dict[int, PartitionState]] = defaultdict(dict)
        for place in places:
            partitions[place.topic][place.partition] = PartitionState(
                epoch=self._epoch(place), first=firsts[place], end=ends[place]
            )
        return {
            name: TopicState(topic_id=_text(view.topic_id), partitions=partitions[name])
            for name, view in self._views.items()
        }

    def _epoch(self, place: TopicPartition) -> int:
        view = self._views.get(place.topic)
        return NO_EPOCH if view is None else view.epochs.get(place.partition, NO_EPOCH)

    async def _offsets(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for node_id, places in self.by_leader(times).items():
            connection = await self._client.connection(node_id)
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
            reply = await connection.call(ApiKey.LIST_OFFSETS, fields)
            for topic in reply.topics:
                for entry in topic.partitions:
                    place = TopicPartition(str(topic.name), int(entry.partition_index))
                    _check(entry.error_code, place)
                    found[place] = int(entry.offset)
        return found

    async def _epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for node_id, places in self.by_leader(epochs).items():
            connection = await self._client.connection(node_id)
            if ApiKey.OFFSET_FOR_LEADER_EPOCH not in connection.versions:
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
            reply = await connection.call(ApiKey.OFFSET_FOR_LEADER_EPOCH, fields)
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
        raise BrokerError(f"partition {place.partition} of topic {place.topic!r}: {code.name}", code)


def _text(topic_id: Any) -> str | None:
    return None if topic_id is None else str(topic_id)
