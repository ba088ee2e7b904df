"""Group commit: one thread per disk turns many waiting appends into few fsyncs (R23).

While one round is on the disk, later appends gather for the next. The loop never waits for the disk.
Read next: partition.py (what happens when a flush is done).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from headrace.broker.metrics import Metrics
from headrace.world import World

if TYPE_CHECKING:
    from headrace.broker.partition import Partition
    from headrace.log.flush import Flush


class Flusher:
    def __init__(self, world: World, metrics: Metrics, on_disk_failure: Callable[[OSError], None]) -> None:
        self._world = world
        self._metrics = metrics
        self._on_disk_failure = on_disk_failure
        self._thread = world.tasks.thread("flush")
        self._dirty: dict[Partition, None] = {}
        self._running = False
        self._failed = False

    def request(self, partition: Partition) -> None:
        self._dirty[partition] = None
        if not self._running and not self._failed:
            self._running = True
            self._world.tasks.spawn(self._run(), name="flush")

    async def flush_all(self, partitions: Iterable[Partition]) -> None:
        """Returns when all that was appended before the call is on disk."""
        for partition in partitions:
            partition.request_flush()
        while self._running:
            await self._world.tasks.sleep(0.001)

    async def _run(self) -> None:
        try:
            while self._dirty:
                await self._flush_round()
        except OSError as error:
            self._failed = True  # R24: never retried, since the dirty pages may be gone
            self._on_disk_failure(error)
        finally:
            self._running = False

    async def _flush_round(self) -> None:
        partitions, self._dirty = list(self._dirty), {}
        begun = [(p, begun_flush) for p in partitions if (begun_flush := p.begin_flush()) is not None]
        if not begun:
            return
        started = self._world.clock.monotonic()
        try:
            await self._thread.run(_sync_all, [begun_flush.flush for _, begun_flush in begun])
        finally:
            for partition, begun_flush in begun:
                partition.end_flush(begun_flush)
        self._metrics.fsync_done(self._world.clock.monotonic() - started)


def _sync_all(flushes: list[Flush]) -> None:
    for flush in flushes:
        flush.sync()
