# SPDX-License-Identifier: Apache-2.0
"""Records of several partitions in the order of their timestamps, onwards or backwards, until time is over.

A scan stops anywhere: `cursor` says where each partition goes on. Within a partition the order is that of
its offsets. Read next: directions.py, page.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.console.messages.decoding import DecodeLimits, Part, Wanted
from headrace.console.messages.directions import Direction, Lane, Reading, Run
from headrace.console.messages.record import StoredRecord
from headrace.console.messages.topic_fetch import TopicReader

_KEPT_BYTES = 16 << 20
"""Of all partitions together, before they are shown."""
_MOST_EMPTY_ROUNDS = 3


@dataclass(slots=True, kw_only=True)
class ScanOptions:
    run: Run
    wanted: Wanted
    limit: int
    """So many records are enough."""
    deadline: float
    """Of `time.monotonic`; whoever goes on for longer moves it."""


class Scan:
    """`peek` and `take` one record after the other; None at the end, or when time is over."""

    def __init__(
        self,
        reader: TopicReader,
        direction: Direction,
        ranges: Mapping[int, tuple[int, int]],
        options: ScanOptions,
    ) -> None:
        """`ranges`: partition to (first offset, the offset after the last)."""
        self.options = options
        self.looked_at = 0
        self._reader = reader
        self._direction = direction
        self._lanes = [direction.lane(each, *bounds) for each, bounds in sorted(ranges.items())]
        self._empty_rounds = 0

    async def peek(self) -> StoredRecord | None:
        while not self._time_is_over() and (hungry := self._hungry()):
            self.looked_at += await self._direction.feed(hungry, self._reading())
        lane = self._next_lane()
        return None if lane is None else lane.ready[0]

    def take(self) -> None:
        """The record that `peek` showed is used."""
        lane = self._next_lane()
        assert lane is not None
        lane.ready.popleft()

    def cursor(self) -> dict[int, int]:
        return {lane.partition: self._direction.resume(lane) for lane in self._lanes}

    @property
    def finished(self) -> bool:
        """Whether nothing is left to look at."""
        return not self._hungry() and not any(lane.ready for lane in self._lanes)

    def _time_is_over(self) -> bool:
        return time.monotonic() >= self.options.deadline

    def _hungry(self) -> list[Lane]:
        return [
            lane
            for lane in self._lanes
            if not lane.ready and lane.position != lane.limit and lane.partition not in self._reader.problems
        ]

    def _next_lane(self) -> Lane | None:
        ready = [lane for lane in self._lanes if lane.ready]
        return min(ready, key=lambda lane: self._direction.order(lane.ready[0]), default=None)

    def _reading(self) -> Reading:
        share = max(1, _KEPT_BYTES // len(self._lanes))
        limits = DecodeLimits(records=self.options.limit, size=share, deadline=self.options.deadline)
        return Reading(fetch=self._fetch, run=self.options.run, wanted=self.options.wanted, limits=limits)

    async def _fetch(self, ranges: Mapping[int, tuple[int, int]]) -> list[Part]:
        """No parts when time is over."""
        left = self.options.deadline - time.monotonic()
        if left <= 0:
            return []
        try:
            async with asyncio.timeout(left):
                parts = await self._reader.fetch(ranges)
        except TimeoutError:
            return []
        self._empty_rounds = 0 if parts else self._empty_rounds + 1
        if self._empty_rounds >= _MOST_EMPTY_ROUNDS:
            self._give_up(ranges)
        return parts

    def _give_up(self, ranges: Mapping[int, tuple[int, int]]) -> None:
        for partition in ranges:
            self._reader.problems.setdefault(partition, "its leader sends no more records")
