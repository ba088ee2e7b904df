# SPDX-License-Identifier: Apache-2.0
"""Start offsets of a stream: earliest, latest or a time, looked up for partitions as they are assigned.

Read next: stream_core.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Literal

from headrace.client.arrow.read.bounds import EARLIEST, LATEST, Bounds, milliseconds
from headrace.client.connection import ConnectionLost
from headrace.client.errors import ClientError
from headrace.client.membership.member import by_topic
from headrace.client.membership.topic_watch import TopicWatch
from headrace.client.network_client import NetworkClient, TopicView
from headrace.client.retry import Backoff, retry
from headrace.types import TopicPartition

Start = Literal["earliest", "latest", "committed"] | datetime

_TIMES = {"earliest": EARLIEST, "latest": LATEST}


def check_start(start: Start, *, has_group: bool) -> None:
    if not isinstance(start, datetime) and start not in (*_TIMES, "committed"):
        raise ClientError(
            f"{start!r} is not a start",
            next_step='use "earliest", "latest", "committed" or a datetime',
        )
    if start == "committed" and not has_group:
        raise ClientError("without a group nothing is committed", next_step="give group=, or another start")


class Starts:
    """Asks the leaders, with retries while leaders move or a new partition is not known everywhere."""

    def __init__(
        self, client: NetworkClient, watch: TopicWatch, *, committed_only: bool, timeout_ms: int
    ) -> None:
        self._client = client
        self._watch = watch
        self._bounds = Bounds(committed_only=committed_only)
        self._timeout_ms = timeout_ms

    async def find(self, partitions: Iterable[TopicPartition], start: Start) -> dict[TopicPartition, int]:
        """Without partitions of topics that were deleted."""
        time = milliseconds(start) if isinstance(start, datetime) else _TIMES[start]
        found: dict[TopicPartition, int] = {}
        for topic, numbers in by_topic(partitions).items():
            offsets = await self._of_topic(topic, numbers, time)
            late = [number for number, offset in offsets.items() if offset < 0]
            offsets |= await self._of_topic(topic, late, LATEST) if late else {}
            found |= {TopicPartition(topic, number): offset for number, offset in offsets.items()}
        return found

    async def after_loss(self, partition: TopicPartition, position: int) -> dict[TopicPartition, int]:
        """Where to continue when out of range: at the log start offset if that is later, else at the end."""
        begins = await self.find([partition], "earliest")
        if begins.get(partition, 0) > position:
            return begins
        return await self.find([partition], "latest")

    async def _of_topic(self, topic: str, numbers: list[int], time: int) -> dict[int, int]:
        backoff = Backoff(self._timeout_ms)

        async def attempt() -> dict[int, int]:
            if topic not in self._watch.views:
                await self._watch.refresh()
            view = self._watch.views.get(topic)
            return {} if view is None else await self._ask(view, numbers, time)

        async def wait(error: ClientError) -> None:
            await backoff.wait(error)
            await self._watch.refresh()

        return await retry(attempt, wait)

    async def _ask(self, view: TopicView, numbers: list[int], time: int) -> dict[int, int]:
        for number in numbers:
            if view.leaders.get(number, -1) < 0:
                raise ConnectionLost(f"partition {number} of topic {view.name!r} has no leader now")
        return await self._bounds.offsets(self._client, view, dict.fromkeys(numbers, time))
