# SPDX-License-Identifier: Apache-2.0
"""How one partition is read: onwards from an offset, or backwards in windows that grow.

Read next: scan.py, which puts partitions together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from headrace.console.messages.decoding import (
    DecodeLimits,
    Found,
    Part,
    Wanted,
    decode_forward,
    decode_newest,
)
from headrace.console.messages.record import StoredRecord

Run = Callable[..., Awaitable[Any]]
"""Runs a blocking function in a thread: `Source.run`."""
Fetch = Callable[[Mapping[int, tuple[int, int]]], Awaitable[list[Part]]]
"""Ranges by partition; no parts when time is over."""

_FIRST_WINDOW = 16
_LARGEST_WINDOW = 20_000


@dataclass(slots=True)
class Lane:
    """One partition. Of the offsets between `position` and `limit` nothing is known yet."""

    partition: int
    position: int
    limit: int
    ready: deque[StoredRecord] = field(default_factory=deque)
    """Matching records that are not taken yet, the next one first."""
    window: int = _FIRST_WINDOW


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    fetch: Fetch
    run: Run
    wanted: Wanted
    limits: DecodeLimits


class Direction(Protocol):
    def lane(self, partition: int, first: int, end: int) -> Lane: ...

    async def feed(self, lanes: Sequence[Lane], reading: Reading) -> int:
        """Looks at more of these partitions; how many records that were."""
        ...

    def order(self, record: StoredRecord) -> tuple[int, int, int]:
        """The lowest comes first."""
        ...

    def resume(self, lane: Lane) -> int:
        """Where the partition goes on after the records that were taken."""
        ...


class Onwards:
    def lane(self, partition: int, first: int, end: int) -> Lane:
        return Lane(partition, first, end)

    async def feed(self, lanes: Sequence[Lane], reading: Reading) -> int:
        by_partition = {lane.partition: lane for lane in lanes}
        parts = await reading.fetch({lane.partition: (lane.position, lane.limit) for lane in lanes})
        looked_at = 0
        for part, found in await reading.run(_decode_forward, parts, reading.wanted, reading.limits):
            lane = by_partition[part.fetched.partition]
            lane.position, lane.ready = found.next_offset, found.records
            looked_at += found.looked_at
        return looked_at

    def order(self, record: StoredRecord) -> tuple[int, int, int]:
        return record.timestamp_ms or 0, record.partition, record.offset

    def resume(self, lane: Lane) -> int:
        return lane.ready[0].offset if lane.ready else lane.position


class Backwards:
    def lane(self, partition: int, first: int, end: int) -> Lane:
        return Lane(partition, end, first)

    async def feed(self, lanes: Sequence[Lane], reading: Reading) -> int:
        """A window of each partition is read as a whole: its newest records come last."""
        ends = {lane.partition: lane.position for lane in lanes}
        found = {
            lane.partition: Found(next_offset=max(lane.limit, lane.position - lane.window)) for lane in lanes
        }
        starts = {each: window.next_offset for each, window in found.items()}
        open_windows = dict(found)
        while open_windows:
            parts = await reading.fetch(
                {each: (window.next_offset, ends[each]) for each, window in open_windows.items()}
            )
            if not parts or not await reading.run(_decode_newest, parts, found, reading):
                break
            open_windows = {
                each: window for each, window in open_windows.items() if window.next_offset < ends[each]
            }
        for lane in lanes:
            if lane.partition not in open_windows:
                _take_window(lane, found[lane.partition], starts[lane.partition])
        return sum(window.looked_at for window in found.values())

    def order(self, record: StoredRecord) -> tuple[int, int, int]:
        return -(record.timestamp_ms or 0), record.partition, -record.offset

    def resume(self, lane: Lane) -> int:
        return lane.ready[0].offset + 1 if lane.ready else lane.position


def _take_window(lane: Lane, found: Found, start: int) -> None:
    lane.position = found.records[0].offset if found.dropped else start
    lane.ready = deque(reversed(found.records))
    lane.window = min(lane.window * 2, _LARGEST_WINDOW)


def _decode_forward(parts: Sequence[Part], wanted: Wanted, limits: DecodeLimits) -> list[tuple[Part, Found]]:
    return [(part, decode_forward(part, wanted, limits)) for part in parts]


def _decode_newest(parts: Sequence[Part], found: Mapping[int, Found], reading: Reading) -> bool:
    """False when time is over."""
    return all(
        decode_newest(part, reading.wanted, reading.limits, found[part.fetched.partition]) for part in parts
    )
