# SPDX-License-Identifier: Apache-2.0
"""The scrub: reads and checks every batch of this node's logs, again and again, at a low rate (R27).

The worker process reads and checks; here is decided what, when and how fast, and whether what was found is
still part of the log. A partition reacts by itself (partition.py, `report_damage`).
Read next: log/scrub.py.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

from headrace.broker.metrics import ScrubCounters
from headrace.broker.network.yielding import yielding
from headrace.broker.partition.partition import Partition
from headrace.broker.partition.registry import Partitions
from headrace.log.partition_log import PartitionLog
from headrace.log.scrub import SegmentCheck, check_segment
from headrace.world import World

STEP_BYTES = 2 << 20
"""Read in one call of the worker process, so that compaction and others wait a few milliseconds at most."""
LOGS_PER_YIELD = 50
"""Most logs of a node may be empty: nothing else would let other tasks have a turn."""
INTERVAL, RATE = "headrace.scrub.interval.ms", "headrace.scrub.bytes.per.second"


class Scrubber:
    """`setting` reads a numeric setting as it is at present."""

    def __init__(
        self, *, world: World, partitions: Partitions, setting: Callable[[str], int], counters: ScrubCounters
    ) -> None:
        self._clock = world.clock
        self._tasks = world.tasks
        self._partitions = partitions
        self._setting = setting
        self._counters = counters
        self._begun_at: float | None = None
        """On the monotonic clock; None: no pass has begun since the start, and all is of unknown state."""

    async def run_when_due(self) -> None:
        """Called once a second: one pass over all logs, if it is time for it."""
        interval_ms, now = self._setting(INTERVAL), self._clock.monotonic()
        if interval_ms < 0:
            return
        if self._begun_at is not None and now - self._begun_at < interval_ms / 1000:
            await self._check_repaired()
            return
        self._begun_at = now
        if await self._check_all():
            self._counters.passes += 1
            self._counters.ended_ms = self._clock.wall_ms()

    async def _check_all(self) -> bool:
        """False when the setting ended it before the last log."""
        waiting: dict[tuple[bool, bool], list[tuple[Partition, int]]] = {}
        behind = 0
        async for partition in yielding(self._partitions.all(), LOGS_PER_YIELD):
            if partition.online:
                size = partition.size_bytes
                waiting.setdefault(_urgency(partition), []).append((partition, size))
                behind += size
        in_order = chain.from_iterable(waiting[urgency] for urgency in sorted(waiting))
        try:
            async for partition, size in yielding(in_order, LOGS_PER_YIELD):
                if self._setting(INTERVAL) < 0:
                    return False
                behind -= size
                self._counters.bytes_left = behind + partition.size_bytes
                await self._check(partition)
        finally:
            self._counters.bytes_left = 0
        return True

    async def _check_repaired(self) -> None:
        """Logs of which a segment was damaged, without waiting for the next pass."""
        for partition in list(self._partitions.repaired):
            del self._partitions.repaired[partition]
            if partition.online:
                self._counters.bytes_left = partition.size_bytes
                await self._check(partition)
                self._counters.bytes_left = 0

    async def _check(self, partition: Partition) -> None:
        self._partitions.repaired.pop(partition, None)
        damaged, log = set(), partition.log
        segments = log.plan_scrub().segments
        versions = [log.segment_version(each.base_offset) for each in segments]  # as planned
        for segment, version in zip(segments, versions, strict=True):
            if not partition.online:
                return
            if not segment.size and segment.base_offset == segment.end_offset:
                continue  # nothing has been appended yet
            what = await self._check_segment(log, segment, version)
            if what is not None and partition.online:
                damaged.add(segment.base_offset)
                self._counters.faults += segment.base_offset not in partition.damaged_segments
                partition.report_damage(segment.base_offset, what)
        for base_offset in partition.damaged_segments.keys() - damaged:
            partition.damage_is_gone(base_offset)

    async def _check_segment(self, log: PartitionLog, segment: SegmentCheck, version: object) -> str | None:
        """What is wrong with it, if anything; None also when it was truncated, replaced or deleted since."""
        base_offset = segment.base_offset
        rest: SegmentCheck | None = segment
        while rest is not None and version is not None and log.segment_version(base_offset) == version:
            result = await self._tasks.bulk(check_segment, rest, STEP_BYTES)
            if log.segment_version(base_offset) != version:
                return None
            self._counters.batches += result.batches
            self._counters.bytes_checked += result.bytes_read
            self._counters.bytes_left -= result.bytes_read
            if result.missing:
                return f"{log.directory}: the file of the segment at offset {base_offset} is missing"
            if result.fault is not None:
                return str(result.fault)
            rest = result.rest
            await self._tasks.sleep(result.bytes_read / self._setting(RATE))
        return None


def _urgency(partition: Partition) -> tuple[bool, bool]:
    """Logs first that were not closed cleanly, then those that clients read here."""
    return partition.log.recovery.clean, not partition.leads
