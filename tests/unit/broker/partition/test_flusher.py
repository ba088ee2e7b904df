# SPDX-License-Identifier: Apache-2.0
"""Group commit: what reaches the disk together, what a failure stops, and what is no failure."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from uuid import UUID

from headrace.broker.metrics import Histogram, Metrics, TopicCounters
from headrace.broker.partition.flusher import MOST_AT_ONCE, Flusher
from headrace.broker.partition.partition import Partition
from headrace.broker.partition.settings.topic_settings import TopicSettings
from headrace.log.flush import Flush
from headrace.log.log_config import LogConfig
from headrace.log.partition_log import PartitionLog
from headrace.log.segments.descriptors import DescriptorPool
from headrace.testing.memory_files import MemoryFiles
from headrace.testing.simworld import DATA_DIRECTORY, Simulation, SimWorld, WorkProfile
from headrace.types import TopicPartition
from tests.harness.batches.log_tools import batch


class Bench:
    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.files: MemoryFiles = world.files
        self.failures: list[OSError] = []
        self.writable = True
        self.pool = DescriptorPool(self.files, 1000)
        self.flusher = Flusher(world, Metrics(world.clock), self.failures.append)

    def partition(self, index: int = 0) -> Partition:
        log = PartitionLog.open(
            self.files,
            self.world.clock,
            DATA_DIRECTORY / f"t-{index}",
            LogConfig(),
            descriptors=self.pool,
            clean=True,
            topic_id=UUID(int=1),
        )
        return Partition(
            topic_partition=TopicPartition("t", index),
            topic_id=UUID(int=1),
            leader_epoch=0,
            log=log,
            settings=TopicSettings(log=LogConfig()),
            clock=self.world.clock,
            flusher=self.flusher,
            counters=TopicCounters(),
            disk=self,
            call_soon=self.world.tasks.call_soon,
            persist_offsets=self._persist,
        )

    async def _persist(self) -> None: ...

    def append(self, partition: Partition) -> None:
        view, _ = batch(b"value", timestamp=self.world.clock.wall_ms())
        partition.append(view, 0, len(view))


def simulated(scenario: Callable[[Bench], Awaitable[None]]) -> None:
    with Simulation(3) as simulation:
        world = simulation.start_process("node")
        world.machine.work = WorkProfile(slow_probability=0)

        async def main() -> None:
            async def inside() -> None:
                await scenario(Bench(world))

            await world.tasks.spawn(inside(), name="scenario")

        simulation.run(main())


def test_appends_that_come_while_the_disk_is_busy_are_flushed_together() -> None:
    async def scenario(bench: Bench) -> None:
        partition = bench.partition()
        bench.append(partition)
        await asyncio.sleep(0)
        before = bench.flusher._metrics.fsync.count
        for _ in range(100):
            bench.append(partition)
        await bench.flusher.flush_all([partition])
        assert partition.high_watermark == 101
        assert bench.flusher._metrics.fsync.count - before <= 2

    simulated(scenario)


def test_nothing_is_committed_before_its_own_fsync_is_done() -> None:
    """R23, for the first flush of a log, which needs more than one file, and for those after it."""

    async def scenario(bench: Bench) -> None:
        partition, synced = bench.partition(), 0

        def look(operation: str, path: object) -> None:
            nonlocal synced
            if operation == "fsync" and str(path).endswith(".log"):
                assert partition.high_watermark <= synced
                synced = partition.log_end_offset

        bench.files.on_operation = look
        for turn in range(1, 20):
            bench.append(partition)
            assert partition.high_watermark < turn
            await partition.flushed()
            assert partition.high_watermark == turn <= synced

    simulated(scenario)


def test_an_append_during_a_flush_is_flushed_after_it_without_a_further_request() -> None:
    async def scenario(bench: Bench) -> None:
        partition = bench.partition()
        bench.append(partition)
        await bench.flusher.flush_all([partition])
        late: list[int] = []

        def append_meanwhile(operation: str, path: object) -> None:
            if operation == "fsync" and len(late) < 50:
                assert partition.flushing
                late.append(partition.log_end_offset)
                bench.append(partition)

        bench.files.on_operation = append_meanwhile
        bench.append(partition)
        await asyncio.sleep(5)
        assert len(late) == 50
        assert partition.high_watermark == partition.log_end_offset == 52

    simulated(scenario)


def test_a_file_of_which_the_fsync_cannot_even_begin_is_a_failure_of_the_disk() -> None:
    async def scenario(bench: Bench) -> None:
        partition = bench.partition()
        bench.append(partition)
        await bench.flusher.flush_all([partition])

        def refuse(file: object, done: object) -> None:
            raise OSError(errno.EAGAIN, "no more threads")

        bench.flusher._files.sync = refuse  # type: ignore[assignment, method-assign]
        bench.append(partition)
        await bench.flusher.flush_all([partition])
        assert [error.errno for error in bench.failures] == [errno.EAGAIN]
        assert (partition.high_watermark, partition.flushing) == (1, False)

    simulated(scenario)


def test_no_more_files_are_kept_open_for_flushes_than_threads_can_take() -> None:
    async def scenario(bench: Bench) -> None:
        partitions = [bench.partition(index) for index in range(600)]
        most = 0

        def look(operation: str, path: object) -> None:
            nonlocal most
            if operation == "fsync":
                most = max(most, bench.pool.pinned_count)

        for partition in partitions:
            bench.append(partition)
        bench.files.on_operation = look
        await bench.flusher.flush_all(partitions)
        assert all(partition.high_watermark == 1 for partition in partitions)
        assert 0 < most <= MOST_AT_ONCE
        assert bench.pool.pinned_count == 0

    simulated(scenario)


def test_the_time_of_the_disk_is_told_apart_from_the_wait_for_a_thread() -> None:
    """R16b: the same disk, one log and then two hundred. Each fsync takes 20 to 22 ms."""

    async def scenario(bench: Bench) -> None:
        bench.world.machine.work = WorkProfile(least_ms=10, most_ms=11, slow_probability=0)
        partitions = [bench.partition(index) for index in range(200)]
        for partition in partitions:  # the first flush of a log needs more than its one file
            bench.append(partition)
        await bench.flusher.flush_all(partitions)
        metrics = bench.flusher._metrics
        metrics.fsync, metrics.fsync_wait = Histogram(), Histogram()
        bench.append(partitions[0])
        await bench.flusher.flush_all(partitions)
        assert (metrics.fsync.count, metrics.fsync_wait.count) == (1, 1)
        assert 0.020 <= metrics.fsync.seconds <= 0.022
        assert metrics.fsync_wait.seconds < 0.001
        for partition in partitions:
            bench.append(partition)
        await bench.flusher.flush_all(partitions)
        assert metrics.fsync.count == 201
        assert 201 * 0.020 <= metrics.fsync.seconds <= 201 * 0.022
        assert metrics.fsync_wait.seconds > 10 * metrics.fsync.seconds

    simulated(scenario)


def test_a_failed_fsync_is_reported_once_and_nothing_is_flushed_after_it() -> None:
    async def scenario(bench: Bench) -> None:
        partitions = [bench.partition(index) for index in range(20)]
        for partition in partitions[10:]:  # of these it is the flush of one file that fails
            bench.append(partition)
        await bench.flusher.flush_all(partitions)
        flushed = [partition.high_watermark for partition in partitions]
        assert flushed == 10 * [0] + 10 * [1]
        bench.files.errors["fsync:.log"] = OSError(errno.EIO, "Input/output error")
        for partition in partitions:
            bench.append(partition)
        await asyncio.sleep(1)
        assert [error.errno for error in bench.failures] == [errno.EIO]
        bench.files.errors.clear()
        assert [partition.high_watermark for partition in partitions] == flushed
        await bench.flusher.flush_all(partitions)
        assert [partition.high_watermark for partition in partitions] == flushed
        assert bench.pool.pinned_count == 0

    simulated(scenario)


def test_an_unexpected_error_of_a_flush_counts_as_a_disk_error() -> None:
    """R24: what is on disk is unknown. Nothing waits for a flush that will never end."""

    async def scenario(bench: Bench) -> None:
        partition = bench.partition()
        bench.append(partition)

        def fail() -> None:
            raise ValueError("not foreseen")

        begin = partition.log.begin_flush

        def begin_failing() -> Flush | None:
            flush = begin()
            if flush is not None:
                flush.before = fail
            return flush

        partition.log.begin_flush = begin_failing  # type: ignore[method-assign]
        await bench.flusher.flush_all([partition])
        assert [str(error) for error in bench.failures] == ["a flush failed: ValueError('not foreseen')"]
        assert not partition.flushing

    simulated(scenario)


def test_a_topic_deleted_while_it_is_flushed_is_no_failure_of_the_disk() -> None:
    async def scenario(bench: Bench) -> None:
        for index in range(50):
            doomed, kept = bench.partition(2 * index), bench.partition(2 * index + 1)
            bench.append(doomed)
            bench.append(kept)
            await asyncio.sleep(0.0001 * index)
            doomed.resign()
            doomed.log.delete()()
            await bench.flusher.flush_all([kept])
            assert kept.high_watermark == 1
        await asyncio.sleep(1)
        assert bench.failures == []

    simulated(scenario)


def test_a_directory_that_vanishes_under_a_topic_that_exists_is_a_failure() -> None:
    async def scenario(bench: Bench) -> None:
        partition = bench.partition()
        bench.append(partition)
        bench.files.remove_tree(DATA_DIRECTORY / "t-0")
        await asyncio.sleep(1)
        assert [error.errno for error in bench.failures] == [errno.ENOENT]

    simulated(scenario)


def test_flush_all_returns_although_appends_go_on() -> None:
    async def scenario(bench: Bench) -> None:
        partition = bench.partition()
        going_on = True

        async def append() -> None:
            while going_on:
                bench.append(partition)
                await asyncio.sleep(0.0001)

        appending = asyncio.ensure_future(append())
        await asyncio.sleep(0.1)
        end = partition.log_end_offset
        await asyncio.wait_for(bench.flusher.flush_all([partition]), 5)
        assert partition.flushed_offset >= end
        going_on = False
        await appending

    simulated(scenario)
