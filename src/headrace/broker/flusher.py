"""Group commit: a few threads turn many waiting appends into few fsyncs (R23).

While a partition is on its way to the disk, its later appends gather for its next flush. Partitions do not
wait for each other. The loop never waits for the disk. Read next: partition.py (what a finished flush does).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from headrace.broker.metrics import Metrics
from headrace.world import Thread, World

if TYPE_CHECKING:
    from headrace.broker.partition_roles import BegunFlush
    from headrace.broker.partition_roles import PartitionRoles as Partition
    from headrace.log.flush import Flush

Share = list[tuple["Partition", "BegunFlush"]]

FLUSH_THREADS = 8
"""A file system commits all fsyncs that wait at the same time together: on ext4, 16 files took 10 ms one by
one and 1.2 ms from eight threads; more threads gained nothing."""

MOST_PER_THREAD = 16
"""A flush keeps its files open; 2,000 partitions at once would need more descriptors than a node may have."""


class Flusher:
    """`on_disk_failure` is called once, whoever noticed the failure first."""

    def __init__(self, world: World, metrics: Metrics, on_disk_failure: Callable[[OSError], None]) -> None:
        self._world = world
        self._metrics = metrics
        self._on_disk_failure = on_disk_failure
        self._idle: list[Thread] = [world.tasks.thread(f"flush-{n}") for n in range(FLUSH_THREADS)]
        self._dirty: dict[Partition, None] = {}
        self._flushing: dict[Partition, None] = {}
        """By one thread at a time: the later flush of a partition relies on what the earlier one took."""
        self._sharing_out = False
        self._failed = False

    def request(self, partition: Partition) -> None:
        self._dirty[partition] = None
        if self._idle and not self._sharing_out and partition not in self._flushing:
            self._sharing_out = True  # at the end of this turn of the loop, with what else it brings
            self._world.tasks.call_soon(self._share_out)

    async def flush_all(self, partitions: Iterable[Partition]) -> None:
        """Returns when all that was appended before the call is on disk, or never will be."""
        unsafe = [(p, p.log_end_offset) for p in partitions if p.flushed_offset < p.log_end_offset]
        for partition, _ in unsafe:
            partition.request_flush()
        while unsafe := [(p, end) for p, end in unsafe if self._will_flush(p) and p.flushed_offset < end]:
            await self._world.tasks.sleep(0.001)

    async def sync_last(self, flushes: list[Flush]) -> None:
        """At the end of a node: all side by side. Which ones failed can be seen on them."""
        shares = [flushes[number :: len(self._idle)] for number in range(len(self._idle))]
        jobs = [t.run(_sync_all, share) for t, share in zip(self._idle, shares, strict=True) if share]
        for job in jobs:
            try:
                await job
            except OSError as error:
                self.disk_failed(error)

    def _will_flush(self, partition: Partition) -> bool:
        return partition in self._flushing or (partition in self._dirty and not self._failed)

    def disk_failed(self, error: OSError) -> None:
        """R24: nothing is tried again, since the pages that were not written may be gone."""
        if not self._failed:
            self._failed = True
            self._on_disk_failure(error)

    def _share_out(self) -> None:
        """Gives the partitions that wait to the threads that do not."""
        self._sharing_out = False
        waiting = [partition for partition in self._dirty if partition not in self._flushing]
        del waiting[len(self._idle) * MOST_PER_THREAD :]
        threads = min(len(self._idle), len(waiting))
        for number in range(threads):
            if self._failed:
                return
            self._start(waiting[number::threads])

    def _start(self, partitions: list[Partition]) -> None:
        begun: Share = []
        try:
            for partition in partitions:
                del self._dirty[partition]
                begun_flush = partition.begin_flush()
                if begun_flush is not None:
                    begun.append((partition, begun_flush))
                    self._flushing[partition] = None
        except OSError as error:
            self.disk_failed(error)
        if begun:
            thread = self._idle.pop()
            syncing = thread.run(_sync_all, [begun_flush.flush for _, begun_flush in begun])
            self._world.tasks.spawn(self._finish(syncing, thread, begun), name="flush")

    async def _finish(self, syncing: Awaitable[OSError | None], thread: Thread, begun: Share) -> None:
        started = self._world.clock.monotonic()
        failure: OSError | None = None
        try:
            missing = await syncing
            if any(partition.online and not begun_flush.flush.synced for partition, begun_flush in begun):
                failure = missing
            self._metrics.fsync_done(self._world.clock.monotonic() - started)
        except Exception as error:  # noqa: BLE001 - whatever it was, nobody knows what is on disk (R24)
            failure = error if isinstance(error, OSError) else OSError(f"a flush failed: {error!r}")
        finally:
            self._idle.append(thread)
            for partition, begun_flush in begun:
                del self._flushing[partition]
                partition.end_flush(begun_flush)
        if failure is not None:
            self.disk_failed(failure)
        elif self._dirty:
            self._share_out()


def _sync_all(flushes: list[Flush]) -> OSError | None:
    """The files of a topic that was deleted meanwhile are gone; its flush does not count as done."""
    missing: OSError | None = None
    for flush in flushes:
        try:
            flush.sync()
        except FileNotFoundError as error:
            missing = error
    return missing
