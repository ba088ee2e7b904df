# SPDX-License-Identifier: Apache-2.0
"""Fetch requests to the leaders of partitions, within a budget of bytes: what reads and streams share.

Decides neither which partitions are due nor what to do about errors: ../read/prefetch.py does so for a range
of offsets, ../stream/live_fetch.py for partitions that come and go.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from headrace.client.arrow.fetch.sections import Fetched, whole_batches
from headrace.client.errors import BrokerError, ClientError
from headrace.client.network_client import NetworkClient, TopicView
from headrace.types import TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode

FIRST_VERSION_BY_ID = 13
READ_COMMITTED = 1
_FETCHES_IN_BUDGET = 8
_MAX_FETCH_BYTES = 16 << 20
_MAX_WAIT_MS = 500

Positions = Mapping[TopicPartition, int]
"""Partition to the offset to fetch next. Brokers fill a reply in this order."""


@dataclass(frozen=True, slots=True)
class PartitionReply:
    """What one Fetch returned for one partition."""

    partition: TopicPartition
    position: int
    """The offset that was asked for."""
    error_code: ErrorCode
    records: Any
    aborted: list[tuple[int, int]]

    @property
    def error(self) -> BrokerError:
        return BrokerError(f"{describe(self.partition)}: {self.error_code.name}", self.error_code)

    def next_offset(self) -> int:
        """The offset after the last whole batch."""
        found = self.position
        for _, header in whole_batches(memoryview(self.records)):
            found = header.next_offset
        if found == self.position:
            raise ClientError(
                f"{describe(self.partition)} returned no whole batch at offset {self.position}",
                next_step="use a larger budget",
            )
        return found

    def fetched(self, end: int) -> Fetched:
        """`end`: records from this offset on are not wanted."""
        return Fetched(self.partition.partition, self.records, self.position, end, self.aborted)


class Fetcher:
    """Sends Fetch requests while their replies fit into the budget. One event loop only.

    `view_of`: the topic as last described, None when it does not exist any more.
    """

    def __init__(
        self,
        client: NetworkClient,
        view_of: Callable[[str], TopicView | None],
        *,
        budget: int,
        committed_only: bool,
        lane: str = "",
    ) -> None:
        self._client = client
        self._view_of = view_of
        self._budget = budget
        self.fetch_bytes = max(1, min(budget // _FETCHES_IN_BUDGET, _MAX_FETCH_BYTES))
        self._isolation_level = READ_COMMITTED if committed_only else 0
        self._lane = lane
        self._held = self._handed_out = self._reserved = 0
        self._has_room = asyncio.Event()

    async def fetch(self, node_id: int, due: Callable[[], Positions]) -> list[PartitionReply] | None:
        """Waits for room, then fetches what is due at the node; None when nothing is.

        ConnectionLost and RequestTimedOut when no reply came.
        """
        async with self._room():
            positions = due()
            return await self._call(node_id, positions) if positions else None

    # -- the budget ----------------------------------------------------------------------------------------

    def hold(self, size: int) -> None:
        """So many bytes of replies wait to be handed out."""
        self._held += size

    def hand_out(self, size: int) -> None:
        """So many of the held bytes go to the reader, who no longer needs those of the time before."""
        self._held -= self._handed_out
        self._handed_out = size
        self._has_room.set()

    def discard(self, size: int) -> None:
        """So many of the held bytes are not handed out."""
        self._held -= size
        self._has_room.set()

    @asynccontextmanager
    async def _room(self) -> AsyncIterator[None]:
        """Reserves room for one reply in the budget, before it is asked for."""
        while (taken := self._held + self._reserved) and taken + self.fetch_bytes > self._budget:
            self._has_room.clear()
            await self._has_room.wait()
        self._reserved += self.fetch_bytes
        try:
            yield
        finally:
            self._reserved -= self.fetch_bytes
            self._has_room.set()

    # -- a request and its reply ---------------------------------------------------------------------------

    async def _call(self, node_id: int, positions: Positions) -> list[PartitionReply]:
        connection = await self._client.connection(node_id, self._lane)
        newest = connection.version_for(ApiKey.FETCH)
        views = {each.topic: self._view_of(each.topic) for each in positions}
        named = {
            topic: view.addressed(newest, FIRST_VERSION_BY_ID, "topic")
            for topic, view in views.items()
            if view is not None
        }
        entries = self._entries(positions)
        fields = {
            "max_wait": _MAX_WAIT_MS,
            "min_bytes": 1,
            "max_bytes": self.fetch_bytes,
            "isolation_level": self._isolation_level,
            "topics": [{**name, "partitions": entries[topic]} for topic, (_, name) in named.items()],
        }
        version = min((version for version, _ in named.values()), default=newest)
        reply = await connection.call(ApiKey.FETCH, fields, version=version)
        code = ErrorCode(int(getattr(reply, "error_code", 0)))
        if code is not ErrorCode.none:
            raise ClientError(f"fetch from node {node_id}: {code.name}", code=code.name.upper())
        topic_ids = {view.topic_id: topic for topic, view in views.items() if view is not None}
        return _partition_replies(reply, positions, topic_ids)

    def _entries(self, positions: Positions) -> dict[str, list[dict[str, int]]]:
        entries: dict[str, list[dict[str, int]]] = defaultdict(list)
        for (topic, partition), position in positions.items():
            entries[topic].append(
                {
                    "partition": partition,
                    "fetch_offset": position,
                    "partition_max_bytes": self.fetch_bytes,
                }
            )
        return entries


def _partition_replies(
    reply: Any, positions: Positions, topic_ids: Mapping[UUID | None, str]
) -> list[PartitionReply]:
    """Only partitions that were asked for."""
    found = []
    for response in reply.responses:
        topic = str(response.topic) if hasattr(response, "topic") else topic_ids.get(response.topic_id, "")
        for data in response.partitions:
            partition = TopicPartition(topic, int(data.partition_index))
            if partition in positions:
                aborted = [(int(t.producer_id), int(t.first_offset)) for t in data.aborted_transactions or ()]
                code = ErrorCode(int(data.error_code))
                found.append(PartitionReply(partition, positions[partition], code, data.records, aborted))
    return found


def describe(partition: TopicPartition) -> str:
    return f"partition {partition.partition} of topic {partition.topic!r}"
