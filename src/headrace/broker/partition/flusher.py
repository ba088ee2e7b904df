# SPDX-License-Identifier: Apache-2.0
"""Group commit: a few threads turn many waiting appends into few fsyncs (R23).

While a partition is flushed, its later appends gather for its next flush. Partitions do not wait for each
other, and the event loop never waits for the disk. Read next: partition.py (`begin_flush`, `end_flush`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple, Protocol

from headrace.broker.metrics import Metrics
from headrace.log.flush import Flush
from headrace.world import Thread, World


class BegunFlush(NamedTuple):
    flush: Flush
    appended_bytes: int
    """Of the partition when the flush began: what is readable when it is done."""


class FlushedPartition(Protocol):
    """A partition as the flusher sees it."""

    online: bool

    @property
    def log_end_offset(self) -> int: ...
    @property
    def flushed_offset(self) -> int: ...
    def request_flush(self) -> None: ...
    def begin_flush(self) -> BegunFlush | None: ...
    def end_flush(self, begun: BegunFlush) -> None: ...


Share = list[tuple[FlushedPartition, BegunFlush]]

FLUSH_THREADS = 8
"""A file system commits all fsyncs that wait at the same time together: on ext4, 16 files took 10 ms one by
one and 1.2 ms from eight threads; more threads gained nothing."""

MAX_PER_THREAD = 16
"""A flush pins its files; 2,000 partitions at once would need more descriptors than a node may have."""


class Flusher:
    """`on_disk_failure` is called once, at the first failure that any partition reports."""

    def __init__(self, world: World, metrics: Metrics, on_disk_failure: Callable[[OSError], None]) -> None:
        self._world = world
        self._metrics = metrics
        self._on_disk_failure = on_disk_failure
        self._idle: list[Thread] = [world.tasks.thread(f"flush-{n}") for n in range(FLUSH_THREADS)]
        self._dirty: dict[FlushedPartition, None] = {}
        self._flushing: dict[FlushedPartition, None] = {}
        """One flush per partition at a time: the next one relies on what this one fsyncs."""
        self._start_scheduled = False
        self._failed = False

    def request(self, partition: FlushedPartition) -> None:
        self._dirty[partition] = None
        if self._idle and not self._start_scheduled and partition not in self._flushing:
            self._start_scheduled = True  # at the end of this turn of the loop, with what else it brings
            self._world.tasks.call_soon(self._start_waiting)

    async def flush_all(self, partitions: Iterable[FlushedPartition]) -> None:
        """Returns when all that was appended before the call is on disk, or cannot be flushed any more."""
        unflushed = [(p, p.log_end_offset) for p in partitions if p.flushed_offset < p.log_end_offset]
        for partition, _ in unflushed:
            partition.request_flush()
        while unflushed := [
            (p, end) for p, end in unflushed if self._will_flush(p) and p.flushed_offset < end
        ]:
            await self._world.tasks.sleep(0.001)

    async def sync_last(self, flushes: list[Flush]) -> None:
        """Runs the last flushes of a stopping node in parallel; `Flush.synced` tells which succeeded."""
        shares = [flushes[number :: len(self._idle)] for number in range(len(self._idle))]
        jobs = [t.run(_sync_all, share) for t, share in zip(self._idle, shares, strict=True) if share]
        for job in jobs:
            try:
                await job
            except OSError as error:
                self.disk_failed(error)

    def _will_flush(self, partition: FlushedPartition) -> bool:
        return partition in self._flushing or (partition in self._dirty and not self._failed)

    def disk_failed(self, error: OSError) -> None:
        """R24: no retry, since the kernel may have dropped the pages that were not written."""
        if not self._failed:
            self._failed = True
            self._on_disk_failure(error)

    def _start_waiting(self) -> None:
        """Distributes the waiting partitions over the idle threads."""
        self._start_scheduled = False
        waiting = [partition for partition in self._dirty if partition not in self._flushing]
        del waiting[len(self._idle) * MAX_PER_THREAD :]
        threads = min(len(self._idle), len(waiting))
        for number in range(threads):
            if self._failed:
                return
            self._start(waiting[number::threads])

    def _start(self, partitions: list[FlushedPartition]) -> None:
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
            self._metrics.fsync.observe(self._world.clock.monotonic() - started)
        except Exception as error:  # noqa: BLE001 - after any error it is unknown what is on disk (R24)
            failure = error if isinstance(error, OSError) else OSError(f"a flush failed: {error!r}")
        finally:
            self._idle.append(thread)
            for partition, begun_flush in begun:
                del self._flushing[partition]
                partition.end_flush(begun_flush)
        if failure is not None:
            self.disk_failed(failure)
        elif self._dirty:
            self._start_waiting()


def _sync_all(flushes: list[Flush]) -> OSError | None:
    """Files of a topic deleted meanwhile are missing: that flush is not marked as synced."""
    missing: OSError | None = None
    for flush in flushes:
        try:
            flush.sync()
        except FileNotFoundError as error:
            missing = error
    return missing
