# SPDX-License-Identifier: Apache-2.0
"""Periodic jobs: retention, compaction, checkpoints, flush by interval, timeouts, disk room.

Each job is a task of its own; one that fails is logged and runs again after its interval.
Read next: log/retention.py, log/compaction/compaction.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.broker.metrics import Metrics
from headrace.broker.network.yielding import yielding
from headrace.broker.partition.checkpoints import OffsetSaver
from headrace.broker.partition.disk_guard import DiskGuard
from headrace.broker.partition.partition import Partition
from headrace.broker.partition.registry import Partitions
from headrace.broker.partition.retention_clock import ClockFile, RetentionClock
from headrace.broker.partition.scrubber import Scrubber
from headrace.errors import CorruptLogError, HeadraceError, StorageError
from headrace.log.compaction.compaction import compact
from headrace.log.kept_aside import kept_in, places
from headrace.world import World

logger = logging.getLogger(__name__)

LOOP_PROBE_S = 0.1
TICK_S = 1.0
TIDY_S = 5.0
COUNT_KEPT_S = 600.0
CHECKPOINT_S = 60.0
HIGH_WATERMARK_S = 5.0
PRODUCER_EXPIRY_S = 600.0
_PARTITIONS_PER_YIELD = 50
"""After this many, other tasks get a turn: jobs must not delay requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodicJob:
    name: str
    every: float | str
    """Seconds, or the name of the setting that has the milliseconds; it may be altered between two runs."""
    run: Callable[[], Awaitable[None]]
    by_wall_clock: bool = False
    """It removes what is too old: not while the clock may be wrong (R34)."""


class Housekeeping:
    """Runs the jobs of the partitions, and `jobs` of other components.

    `setting` reads a numeric setting as it is at present. `before_tick` and `after_tick` are called once a
    second, before and after the check of the disk and of every partition.
    """

    def __init__(
        self,
        *,
        world: World,
        directory: Path,
        partitions: Partitions,
        offsets: OffsetSaver,
        time: RetentionClock,
        clock_file: ClockFile,
        disk: DiskGuard,
        metrics: Metrics,
        setting: Callable[[str], int],
        before_tick: Callable[[], None],
        after_tick: Callable[[], None],
        jobs: Sequence[PeriodicJob],
    ) -> None:
        self._world = world
        self._directory = directory
        self._partitions = partitions
        self._disk = disk
        self._metrics = metrics
        self._setting = setting
        self._before_tick = before_tick
        self._after_tick = after_tick
        self._time = time
        self._clock_file = clock_file
        self._thread = world.tasks.thread("housekeeping")
        self._kept_counted = (float("-inf"), 0)
        """When what is kept aside was counted last, and how much had been repaired by then."""
        scrubber = Scrubber(world=world, partitions=partitions, setting=setting, counters=metrics.scrub)
        self._jobs = (
            PeriodicJob(name="tick", every=TICK_S, run=self._tick),
            PeriodicJob(name="tidy", every=TIDY_S, run=self._tidy),
            PeriodicJob(name="kept aside", every=TIDY_S, run=self._count_kept),
            PeriodicJob(name="flush by interval", every="headrace.flush.interval.ms", run=self._flush),
            PeriodicJob(name="retention", every="log.retention.check.interval.ms", run=self._retain),
            PeriodicJob(name="compaction", every="log.cleaner.backoff.ms", run=self._compact),
            PeriodicJob(name="scrub", every=TICK_S, run=scrubber.run_when_due),
            PeriodicJob(name="checkpoints", every=CHECKPOINT_S, run=offsets.persist),
            PeriodicJob(name="clock", every=CHECKPOINT_S, run=self._remember_time),
            PeriodicJob(name="high watermarks", every=HIGH_WATERMARK_S, run=offsets.persist_high_watermarks),
            PeriodicJob(name="producer expiry", every=PRODUCER_EXPIRY_S, run=self._expire_producers),
            *jobs,
        )
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        spawn = self._world.tasks.spawn
        self._tasks = [spawn(self._repeat(job), name=job.name) for job in self._jobs]
        self._tasks.append(spawn(self._measure_loop_delay(), name="loop probe"))

    def check_disk(self) -> None:
        self._partitions.writable = self._disk.has_room()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _repeat(self, job: PeriodicJob) -> None:
        while True:
            every_s = self._setting(job.every) / 1000 if isinstance(job.every, str) else job.every
            await self._world.tasks.sleep(every_s)
            if job.by_wall_clock and self._time.is_in_doubt:
                continue
            try:
                await job.run()
            except (OSError, HeadraceError) as error:
                logger.error("%s failed, will be retried: %s", job.name, error)
            except Exception:
                logger.exception("%s failed, will be retried", job.name)

    async def _measure_loop_delay(self) -> None:
        """Measures the delay of the event loop, which every request waits besides its own work."""
        clock = self._world.clock
        while True:
            due = clock.monotonic() + LOOP_PROBE_S
            await self._world.tasks.sleep(LOOP_PROBE_S)
            self._metrics.loop_delay(max(clock.monotonic() - due, 0.0))

    async def _each(self, action: Callable[[Partition], object]) -> None:
        async for partition in yielding(self._partitions.all(), _PARTITIONS_PER_YIELD):
            if partition.online:
                try:
                    action(partition)
                except (OSError, StorageError) as error:
                    partition.fault(error)

    async def _tick(self) -> None:
        self._before_tick()
        self.check_disk()
        now, roomy = self._world.clock.monotonic(), self._disk.roomy

        def tick(partition: Partition) -> None:
            partition.on_tick(now)
            if partition.log.fenced:
                self._partitions.trouble_at(partition)
            if roomy:
                partition.recover_if_fenced()

        await self._each(tick)
        if roomy:
            self._partitions.open_again()
        self._after_tick()

    async def _tidy(self) -> None:
        await self._thread.run(self._disk.keep_ballast)
        now = self._world.clock.monotonic()
        removals: list[Callable[[], None] | None] = []
        await self._each(lambda partition: removals.append(partition.log.collect_deleted(now)))
        for removal in filter(None, removals):
            await self._thread.run(removal)

    async def _count_kept(self) -> None:
        """When a repair kept something, and now and then. A few logs at a time: there may be thousands."""
        counters, now = self._metrics.scrub, self._world.clock.monotonic()
        last_at, last_repairs = self._kept_counted
        repairs = counters.repaired + counters.refetched
        if repairs == last_repairs and now - last_at < COUNT_KEPT_S:
            return
        files, found = self._world.files, []
        directories = await self._thread.run(places, files, self._directory)
        for start in range(0, len(directories), _PARTITIONS_PER_YIELD):
            some = directories[start : start + _PARTITIONS_PER_YIELD]
            found += await self._thread.run(kept_in, files, some)
        counters.kept, counters.kept_bytes = len(found), sum(each.size_bytes for each in found)
        self._kept_counted = now, repairs

    async def _flush(self) -> None:
        await self._each(Partition.flush_by_interval)

    async def _remember_time(self) -> None:
        await self._thread.run(self._clock_file.save, self._time.reading())

    async def _retain(self) -> None:
        now_ms = self._time.now_ms()
        await self._each(lambda partition: partition.log.apply_retention(now_ms, partition.high_watermark))

    async def _compact(self) -> None:
        async for partition in yielding(self._partitions.all(), _PARTITIONS_PER_YIELD):
            if partition.online and "compact" in partition.settings.log.cleanup_policy:
                try:
                    await self._compact_one(partition)
                except (OSError, HeadraceError) as error:
                    if not partition.online:
                        continue  # its topic was deleted meanwhile
                    logger.error("%s: compaction failed: %s", partition.topic_partition, error)
                    if isinstance(error, CorruptLogError) and error.base_offset is not None:
                        partition.report_damage(error.base_offset, str(error))

    async def _compact_one(self, partition: Partition) -> None:
        """R29: never at or above the first offset that may still change."""
        limit = min(partition.high_watermark, partition.last_stable_offset)
        plan = partition.log.plan_compaction(self._time.now_ms(), limit)
        if plan is None:
            return
        plan = replace(plan, key_map_bytes=self._setting("log.cleaner.dedupe.buffer.size"))
        result = await self._world.tasks.bulk(compact, plan)
        if not partition.online:
            return
        try:
            partition.log.finish_compaction(plan, result)
        except (OSError, StorageError) as error:
            partition.fault(error)

    async def _expire_producers(self) -> None:
        now_ms = self._time.now_ms()
        await self._each(lambda partition: partition.log.producers.expire(now_ms))
