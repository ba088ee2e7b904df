# SPDX-License-Identifier: Apache-2.0
"""Offsets and fetches of one topic's partitions. What fails is told for each partition.

Read next: scan.py (what is fetched when), decoding.py.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Protocol

from headrace.client.arrow.fetch.fetcher import Fetcher, PartitionReply
from headrace.client.arrow.read.bounds import EARLIEST, LATEST, Bounds
from headrace.client.errors import ClientError
from headrace.client.network_client import NetworkClient, TopicView
from headrace.client.retry import is_retriable
from headrace.console.messages.decoding import Part
from headrace.console.views.view import ViewError
from headrace.types import TopicPartition
from headrace.wire.error_codes import ErrorCode

LANE = "messages"
"""Fetches have connections of their own: what the views ask for does not wait behind them."""
_BUDGET = 8 << 20
_ALL_DECIDED = 1 << 63


class TopicReader(Protocol):
    """What a scan reads from."""

    problems: dict[int, str]
    """Why a partition cannot be read."""

    async def fetch(self, ranges: Mapping[int, tuple[int, int]]) -> list[Part]:
        """Records from each range's first offset on; not of every partition each time."""
        ...


class TopicFetch:
    """Open it with `open_topic`. One event loop only."""

    def __init__(
        self, client: NetworkClient, view: TopicView, *, uncommitted: bool, lane: str = LANE
    ) -> None:
        self.topic = view.name
        self.problems: dict[int, str] = {}
        self._client = client
        self._view = view
        self._uncommitted = uncommitted
        self._settled: dict[int, int] = {}
        self._fetchers = {
            committed: Fetcher(
                client, lambda _: self._view, budget=_BUDGET, committed_only=committed, lane=lane
            )
            for committed in (True, False)
        }

    @property
    def partitions(self) -> list[int]:
        return self._view.partitions

    def chosen(self, wanted: Iterable[int] | None) -> list[int]:
        """ViewError when the topic has no such partition."""
        if wanted is None:
            return self.partitions
        for partition in wanted:
            if partition not in self._view.leaders:
                raise ViewError(
                    f"topic {self.topic!r} has no partition {partition}",
                    next_step=f"choose from 0 to {len(self._view.leaders) - 1}",
                )
        return sorted(set(wanted))

    # -- offsets -------------------------------------------------------------------------------------------

    async def starts(self, partitions: Iterable[int]) -> dict[int, int]:
        return await self._offsets(partitions, EARLIEST, committed=False)

    async def ends(self, partitions: Iterable[int]) -> dict[int, int]:
        """Where reading ends now: open transactions hold it up unless uncommitted records are wanted."""
        self._settled = await self._offsets(partitions, LATEST, committed=True)
        if not self._uncommitted:
            return self._settled
        return await self._offsets(self._settled, LATEST, committed=False)

    async def at_time(self, partitions: Iterable[int], time_ms: int) -> dict[int, int]:
        """The first offset at that time or later; -1 where there is none."""
        return await self._offsets(partitions, time_ms, committed=not self._uncommitted)

    async def _offsets(self, partitions: Iterable[int], moment: int, *, committed: bool) -> dict[int, int]:
        bounds = Bounds(committed_only=committed)
        found: dict[int, int] = {}
        by_leader: dict[int, list[int]] = defaultdict(list)
        for partition in partitions:
            by_leader[self._view.leaders[partition]].append(partition)
        for leader, led in by_leader.items():
            if leader < 0:
                self._fail(led, "it has no leader now")
                continue
            try:
                found |= await bounds.offsets(self._client, self._view, dict.fromkeys(led, moment))
            except ClientError as error:
                self._fail(led, error.what)
        return found

    # -- records -------------------------------------------------------------------------------------------

    async def fetch(self, ranges: Mapping[int, tuple[int, int]]) -> list[Part]:
        """One request to each leader; moved leaders are looked up again for the next call."""
        calls = [
            self._fetch_from(leader, committed, {each: ranges[each] for each in partitions})
            for (leader, committed), partitions in self._by_leader(ranges).items()
        ]
        found = await asyncio.gather(*calls)
        if any(moved for _, moved in found):
            await self._look_again()
        return [part for parts, _ in found for part in parts]

    def _by_leader(self, ranges: Mapping[int, tuple[int, int]]) -> dict[tuple[int, bool], list[int]]:
        groups: dict[tuple[int, bool], list[int]] = defaultdict(list)
        for partition, (position, _) in ranges.items():
            leader = self._view.leaders.get(partition, -1)
            if leader < 0:
                self._fail([partition], "it has no leader now")
            else:
                committed = not self._uncommitted or position < self._settled.get(partition, 0)
                groups[leader, committed].append(partition)
        return groups

    async def _fetch_from(
        self, leader: int, committed: bool, ranges: Mapping[int, tuple[int, int]]
    ) -> tuple[list[Part], bool]:
        """(parts, whether a leader moved)."""
        positions = {TopicPartition(self.topic, each): first for each, (first, _) in ranges.items()}
        try:
            replies = await self._fetchers[committed].fetch(leader, lambda: positions) or []
        except ClientError as error:
            if not is_retriable(error):
                raise
            return [], True
        parts, moved = [], False
        for reply in replies:
            partition = reply.partition.partition
            if reply.error_code is ErrorCode.none:
                if reply.records:
                    parts.append(self._part(reply, ranges[partition][1], committed=committed))
            elif reply.error.retriable:
                moved = True
            else:
                self._fail([partition], _words(reply))
        return parts, moved

    def _part(self, reply: PartitionReply, end: int, *, committed: bool) -> Part:
        partition = reply.partition.partition
        settled = _ALL_DECIDED if committed else self._settled.get(partition, 0)
        return Part(fetched=reply.fetched(end), settled=settled, show_aborted=self._uncommitted)

    async def _look_again(self) -> None:
        await asyncio.sleep(0.1)  # an election takes some time
        self._view = await self._client.topic(self.topic)

    def _fail(self, partitions: Iterable[int], reason: str) -> None:
        for partition in partitions:
            self.problems[partition] = reason


async def open_topic(
    client: NetworkClient, topic: str, *, uncommitted: bool = False, lane: str = LANE
) -> TopicFetch:
    """ClientError when there is no such topic, or no broker answers."""
    return TopicFetch(client, await client.topic(topic), uncommitted=uncommitted, lane=lane)


def _words(reply: PartitionReply) -> str:
    if reply.error_code is ErrorCode.offset_out_of_range:
        return f"offset {reply.position} was removed by retention meanwhile; load the page again"
    return reply.error_code.name
