# SPDX-License-Identifier: Apache-2.0
"""Group commit: a few threads turn many waiting appends into few fsyncs (R23).

While a partition is flushed, its later appends gather for its next flush. Partitions do not wait for each
other, and the event loop never waits for the disk. An append to a partition that is not being flushed waits
for the rest of its turn of the loop only, so that one event alone is on disk as early as can be.
Read next: partition.py (`begin_flush`, `end_flush`), headrace/file_sync.py.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from itertools import cycle
from typing import NamedTuple, Protocol

from headrace.broker.metrics import Metrics
from headrace.log.flush import Flush
from headrace.world import Clock, Thread, World


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


FLUSH_THREADS = 8
"""A file system commits all fsyncs that wait at the same time together: on ext4, 16 files took 10 ms one by
one and 1.2 ms from eight threads; more threads gained nothing."""

MOST_AT_ONCE = 16 * FLUSH_THREADS
"""A flush pins its files; 2,000 partitions at once would need more descriptors than a node may have."""


class Flusher:
    """`on_disk_failure` is called once, at the first failure that any partition reports.

    Most flushes are one fsync of one file, for which `FileSync` is the shortest way to the disk and back;
    those after a roll or a start need more, and go to threads that run Python.
    """

    def __init__(self, world: World, metrics: Metrics, on_disk_failure: Callable[[OSError], None]) -> None:
        self._world = world
        self._metrics = metrics
        self._on_disk_failure = on_disk_failure
        self._files = world.tasks.file_sync(threads=FLUSH_THREADS, capacity=MOST_AT_ONCE)
        self._threads: list[Thread] = [world.tasks.thread(f"flush-{n}") for n in range(FLUSH_THREADS)]
        self._next_thread = cycle(self._threads)
        self._dirty: OrderedDict[FlushedPartition, None] = OrderedDict()
        """To be flushed, and not being flushed."""
        self._flushing: dict[FlushedPartition, bool] = {}
        """Whether it has to be flushed again. One flush per partition at a time: the next one relies on what
        this one fsyncs."""
        self._start_scheduled = False
        self._failed = False

    def request(self, partition: FlushedPartition) -> None:
        if partition in self._flushing:
            self._flushing[partition] = True
            return
        self._dirty[partition] = None
        if not self._start_scheduled:
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
        count = len(self._threads)
        shares = [flushes[number::count] for number in range(count)]
        jobs = [t.run(_sync_all, share) for t, share in zip(self._threads, shares, strict=True) if share]
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
        """Begins the flushes that wait, the oldest first."""
        self._start_scheduled = False
        while self._dirty and len(self._flushing) < MOST_AT_ONCE and not self._failed:
            partition, _ = self._dirty.popitem(last=False)
            try:
                begun = partition.begin_flush()
            except OSError as error:
                self.disk_failed(error)
                return
            if begun is not None:
                self._flushing[partition] = False
                self._start(partition, begun, self._world.clock.monotonic())

    def _start(self, partition: FlushedPartition, begun: BegunFlush, started: float) -> None:
        file = begun.flush.only_file
        if file is None:
            timed = _TimedFlush(begun.flush, self._world.clock)
            syncing = next(self._next_thread).run(timed.sync)
            self._world.tasks.spawn(self._sync_more(syncing, timed, partition, begun, started), name="flush")
            return

        def done(failure: OSError | None, took_s: float) -> None:
            begun.flush.synced = failure is None
            self._finish(partition, begun, started, took_s, failure)

        try:
            self._files.sync(file, done)
        except OSError as error:  # no thread could be started
            done(error, 0.0)

    async def _sync_more(
        self,
        syncing: Awaitable[None],
        timed: _TimedFlush,
        partition: FlushedPartition,
        begun: BegunFlush,
        started: float,
    ) -> None:
        failure: OSError | None = None
        try:
            await syncing
        except FileNotFoundError as error:
            failure = error if partition.online else None  # its topic was deleted meanwhile
        except Exception as error:  # noqa: BLE001 - after any error it is unknown what is on disk (R24)
            failure = error if isinstance(error, OSError) else OSError(f"a flush failed: {error!r}")
        finally:
            self._finish(partition, begun, started, timed.took_s, failure)

    def _finish(
        self,
        partition: FlushedPartition,
        begun: BegunFlush,
        started: float,
        took_s: float,
        failure: OSError | None,
    ) -> None:
        """The one place that every flush passes when it is over, whatever became of it.

        `took_s`: of it in its thread. That is the disk's time; the rest grows with the load (R16b).
        """
        if self._flushing.pop(partition):
            self._dirty[partition] = None
        self._metrics.fsync.observe(took_s)
        self._metrics.fsync_wait.observe(max(self._world.clock.monotonic() - started - took_s, 0.0))
        partition.end_flush(begun)
        if failure is not None:
            self.disk_failed(failure)
        elif self._dirty and not self._start_scheduled:
            self._start_waiting()


class _TimedFlush:
    """How long a flush took in its thread."""

    def __init__(self, flush: Flush, clock: Clock) -> None:
        self._flush = flush
        self._clock = clock
        self.took_s = 0.0

    def sync(self) -> None:
        began = self._clock.monotonic()
        try:
            self._flush.sync()
        finally:
            self.took_s = self._clock.monotonic() - began


def _sync_all(flushes: list[Flush]) -> None:
    """Files of a topic deleted meanwhile are missing: that flush is not marked as synced."""
    for flush in flushes:
        with suppress(FileNotFoundError):
            flush.sync()
