"""What a node does on its own: retention, compaction, checkpoints, flush by interval, time-outs, disk room.

Each chore is a loop of its own; a chore that fails is logged and tried again at its next turn.
Read next: log/retention.py, log/compaction.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.broker.disk_guard import DiskGuard
from headrace.broker.group_timeline import WRITE_S
from headrace.broker.lag_samples import LOOK_S
from headrace.broker.partition import Partition
from headrace.broker.retention_clock import RetentionClock
from headrace.config import NODE_SETTINGS
from headrace.errors import HeadraceError, StorageError
from headrace.log.compaction import compact

if TYPE_CHECKING:
    from headrace.broker.node import Broker

logger = logging.getLogger(__name__)

LOOP_PROBE_S = 0.1
TICK_S = 1.0
TIDY_S = 5.0
CHECKPOINT_S = 60.0
HIGH_WATERMARK_S = 5.0
PRODUCER_EXPIRY_S = 600.0
_PARTITIONS_PER_TURN = 50
"""After this many, the loop gets a turn: chores must not be felt."""


class Housekeeping:
    def __init__(self, broker: Broker, disk: DiskGuard) -> None:
        self._broker = broker
        self._world = broker.world
        self._partitions = broker.partitions
        self._disk = disk
        self._time = RetentionClock(broker.world.clock)
        self._thread = broker.world.tasks.thread("housekeeping")
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        groups = self._broker.groups
        chores: tuple[tuple[str, float | str, Callable[[], Awaitable[None]]], ...] = (
            ("tick", TICK_S, self._tick),
            ("tidy", TIDY_S, self._tidy),
            ("flush by interval", "headrace.flush.interval.ms", self._flush),
            ("retention", "log.retention.check.interval.ms", self._retain),
            ("compaction", "log.cleaner.backoff.ms", self._compact),
            ("checkpoints", CHECKPOINT_S, self._broker.offsets.persist),
            ("high watermarks", HIGH_WATERMARK_S, self._broker.offsets.persist_high_watermarks),
            ("producer expiry", PRODUCER_EXPIRY_S, self._expire_producers),
            ("offsets retention", "offsets.retention.check.interval.ms", groups.check_retention),
            ("group events", WRITE_S, self._broker.timeline.write),
            ("lag samples", LOOK_S, self._broker.lag.look),
        )
        spawn = self._world.tasks.spawn
        self._tasks = [spawn(self._repeat(*chore), name=chore[0]) for chore in chores]
        self._tasks.append(spawn(self._watch_loop(), name="loop probe"))

    def look_at_the_disk(self) -> None:
        self._partitions.writable = self._disk.look()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _repeat(self, name: str, every: float | str, chore: Callable[[], Awaitable[None]]) -> None:
        """`every`: seconds, or the setting that has the milliseconds; it may be altered between two turns."""
        while True:
            every_s = self._setting(every) / 1000 if isinstance(every, str) else every
            await self._world.tasks.sleep(every_s)
            try:
                await chore()
            except (OSError, HeadraceError) as error:
                logger.error("%s failed, will be tried again: %s", name, error)
            except Exception:
                logger.exception("%s failed, will be tried again", name)

    def _setting(self, name: str) -> int:
        """As altered while the node runs, else as it was started."""
        altered = self._broker.controller.altered_node_settings().get(name)
        value: int = self._broker.config[name] if altered is None else NODE_SETTINGS[name].parse(altered)
        return value

    async def _watch_loop(self) -> None:
        """How late the loop comes to what is due: what every request waits besides its own work."""
        clock = self._world.clock
        while True:
            due = clock.monotonic() + LOOP_PROBE_S
            await self._world.tasks.sleep(LOOP_PROBE_S)
            self._broker.metrics.loop_delay(max(clock.monotonic() - due, 0.0))

    async def _each(self, action: Callable[[Partition], object]) -> None:
        for count, partition in enumerate(list(self._partitions.all()), 1):
            if partition.online:
                try:
                    action(partition)
                except (OSError, StorageError) as error:
                    partition.fault(error)
            if count % _PARTITIONS_PER_TURN == 0:
                await self._world.tasks.sleep(0)

    async def _tick(self) -> None:
        self._broker.hub.next_tick()
        self.look_at_the_disk()
        now, roomy = self._world.clock.monotonic(), self._disk.roomy

        def look_after(partition: Partition) -> None:
            partition.look_after(now)
            if roomy:
                partition.recover_if_fenced()

        await self._each(look_after)
        if roomy:
            self._partitions.open_again()
        self._broker.disk_report.look_again()

    async def _tidy(self) -> None:
        await self._thread.run(self._disk.keep_ballast)
        now = self._world.clock.monotonic()
        removals: list[Callable[[], None] | None] = []
        await self._each(lambda partition: removals.append(partition.log.collect_deleted(now)))
        for removal in filter(None, removals):
            await self._thread.run(removal)

    async def _flush(self) -> None:
        await self._each(Partition.flush_by_interval)

    async def _retain(self) -> None:
        now_ms = self._time.now_ms()
        await self._each(lambda partition: partition.log.apply_retention(now_ms, partition.high_watermark))

    async def _compact(self) -> None:
        for partition in list(self._partitions.all()):
            if partition.online and "compact" in partition.settings.log.cleanup_policy:
                try:
                    await self._compact_one(partition)
                except (OSError, HeadraceError) as error:
                    if partition.online:  # else its topic was deleted meanwhile, with all files
                        logger.error("%s: compaction failed: %s", partition.topic_partition, error)

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

