"""Where a stream begins: what users write, turned into offsets of the partitions it was given.

Unlike bounds.py this is asked again and again, for partitions as they come. Read next: stream_core.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Literal

from headrace.client.arrow.bounds import EARLIEST, LATEST, Bounds, TryAgain, milliseconds
from headrace.client.arrow.cluster import LOST, Cluster, Patience, TopicView
from headrace.client.connection import ConnectionLost
from headrace.client.errors import ClientError
from headrace.client.membership.member import by_topic
from headrace.client.membership.watch import TopicWatch
from headrace.types import TopicPartition

Start = Literal["earliest", "latest", "committed"] | datetime

_TIMES = {"earliest": EARLIEST, "latest": LATEST}


def check_start(start: Start, *, has_group: bool) -> None:
    if not isinstance(start, datetime) and start not in (*_TIMES, "committed"):
        raise ClientError(
            f"{start!r} says nothing about where to begin",
            next_step='use "earliest", "latest", "committed" or a datetime',
        )
    if start == "committed" and not has_group:
        raise ClientError("without a group nothing is committed", next_step="give group=, or another start")


class Starts:
    """Asks the leaders; goes on asking while leaders move or a new partition is not known to all yet."""

    def __init__(self, cluster: Cluster, watch: TopicWatch, *, committed_only: bool, timeout_ms: int) -> None:
        self._cluster = cluster
        self._watch = watch
        self._bounds = Bounds(committed_only=committed_only)
        self._timeout_ms = timeout_ms

    async def find(self, partitions: Iterable[TopicPartition], start: Start) -> dict[TopicPartition, int]:
        """Partitions of topics that are gone by now are left out."""
        time = milliseconds(start) if isinstance(start, datetime) else _TIMES[start]
        found: dict[TopicPartition, int] = {}
        for topic, numbers in by_topic(partitions).items():
            offsets = await self._of_topic(topic, numbers, time)
            late = [number for number, offset in offsets.items() if offset < 0]
            offsets |= await self._of_topic(topic, late, LATEST) if late else {}
            found |= {TopicPartition(topic, number): offset for number, offset in offsets.items()}
        return found

    async def after_loss(self, partition: TopicPartition, position: int) -> dict[TopicPartition, int]:
        """Where to go on when the log does not hold the position: where it begins if that lies behind it."""
        begins = await self.find([partition], "earliest")
        if begins.get(partition, 0) > position:
            return begins
        return await self.find([partition], "latest")

    async def _of_topic(self, topic: str, numbers: list[int], time: int) -> dict[int, int]:
        patience = Patience(self._timeout_ms)
        while True:
            view = self._watch.views.get(topic)
            try:
                if view is not None:
                    return await self._ask(view, numbers, time)
                await self._watch.look()
                if topic not in self._watch.views:
                    return {}
            except (*LOST, TryAgain) as error:
                if isinstance(error, TryAgain) and not error.retriable:
                    raise
                await patience.wait(error)
                await self._watch.look()

    async def _ask(self, view: TopicView, numbers: list[int], time: int) -> dict[int, int]:
        for number in numbers:
            if view.leaders.get(number, -1) < 0:
                raise ConnectionLost(f"partition {number} of topic {view.name!r} has no leader now")
        return await self._bounds.offsets(self._cluster, view, dict.fromkeys(numbers, time))
