# SPDX-License-Identifier: Apache-2.0
"""T6: the power is cut before every operation on the disk, with many legal losses of unsynced data each."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from headrace.log.compaction.compaction import compact
from headrace.log.log_config import LogConfig
from headrace.log.partition_log import PartitionLog
from headrace.testing.memory_files import MemoryFiles
from headrace.wire.records import Record
from tests.harness import soak
from tests.harness.batches.log_tools import (
    DIRECTORY,
    NOW_MS,
    StillClock,
    batch_of,
    flush,
    open_log,
    read_all,
)

CONFIG = LogConfig(
    segment_bytes=900,
    index_interval_bytes=120,
    retention_ms=5_000,
    delete_retention_ms=1_000,
    cleanup_policy=frozenset({"compact", "delete"}),
    min_cleanable_dirty_ratio=0.0,
    file_delete_delay_ms=0,
)


@dataclass
class Expected:
    """What a start after a crash at this moment must find."""

    written: dict[int, Record] = field(default_factory=dict)
    current: set[int] = field(default_factory=set)
    """Offsets that are neither deleted nor compacted away."""
    flushed: int = 0
    end: int = 0
    log_start: int = 0
    recovery_point: int = 0


@dataclass
class Crash:
    disk: MemoryFiles
    expected: Expected
    operation: str


class Workload:
    """One run over everything a log does; a copy of the disk is kept before each operation."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.clock = StillClock()
        self.files = MemoryFiles(Random(seed))
        self.files.make_directory(DIRECTORY.parent)
        self.files.sync_directory(Path("/"))
        self.expected = Expected()
        self.crashes: list[Crash] = []
        self.files.on_operation = self._crash_here

    def _crash_here(self, operation: str, path: Path) -> None:
        expected = self.expected
        copy = Expected(
            written=dict(expected.written),
            current=set(expected.current),
            flushed=expected.flushed,
            end=expected.end,
            log_start=expected.log_start,
            recovery_point=expected.recovery_point,
        )
        self.crashes.append(Crash(self.files.clone(), copy, f"{operation} {path.name}"))

    def run(self) -> list[Crash]:
        log = self._open()
        for step in range(40):
            self._append(log)
            if step % 3 == 2:
                flush(log)
                self.expected.flushed = log.flushed_offset
            if step % 7 == 6:
                self.expected.recovery_point = log.flushed_offset
            if step % 10 == 9:
                self._compact(log)
            if step == 25:
                self._delete_old(log)
            if step == 30:
                log.close()
                self.expected.flushed = self.expected.recovery_point = log.log_end_offset
                log = self._open(clean=True)
        log.close()
        return self.crashes

    def _open(self, *, clean: bool = True) -> PartitionLog:
        return open_log(
            self.files,
            CONFIG,
            clock=self.clock,
            clean=clean,
            recovery_point=self.expected.recovery_point,
            log_start_offset=self.expected.log_start,
        )

    def _append(self, log: PartitionLog) -> None:
        random, expected = self.random, self.expected
        end = log.log_end_offset
        self.clock.now_ms += 100
        records = [
            Record(delta, self.clock.now_ms, random.choice([b"a", b"b", b"c"]), random.randbytes(20))
            for delta in range(random.randint(1, 4))
        ]
        for record in records:
            expected.written[end + record.offset] = record._replace(offset=end + record.offset)
        # From here on the bytes may be on disk; they must be there after the next flush.
        expected.end = end + len(records)
        view, batches = batch_of(records)
        log.append(view, batches, 0)
        expected.current.update(range(end, end + len(records)))

    def _compact(self, log: PartitionLog) -> None:
        plan = log.plan_compaction(self.clock.now_ms, log.log_end_offset)
        if plan is None:
            return
        limit = plan.segments[-1].end_offset
        last = {r.key: r.offset for o, r in self.expected.written.items() if o < limit}
        superseded = {o for o, r in self.expected.written.items() if o < limit and last[r.key] > o}
        self.expected.current -= superseded
        log.finish_compaction(plan, compact(plan))
        self._collect(log)

    def _delete_old(self, log: PartitionLog) -> None:
        self.clock.now_ms += CONFIG.retention_ms - 1_000
        expected = self.expected
        young = self.clock.now_ms - CONFIG.retention_ms
        expected.current = {o for o in expected.current if expected.written[o].timestamp >= young}
        assert log.apply_retention(self.clock.now_ms, log.log_end_offset)
        self._collect(log)

    def _collect(self, log: PartitionLog) -> None:
        remove = log.collect_deleted(self.clock.monotonic())
        if remove is not None:
            remove()


def check(crash: Crash, seed: int) -> None:
    """Opens, has all that was fsynced, and nothing that was never written (T6)."""
    expected = crash.expected
    disk = crash.disk.clone(Random(seed))
    disk.crash()
    log = open_log(
        disk,
        CONFIG,
        clean=False,
        recovery_point=expected.recovery_point,
        log_start_offset=expected.log_start,
    )
    found = {record.offset: record for record in read_all(log)}
    assert expected.flushed <= log.log_end_offset <= expected.end, crash.operation
    for offset, record in found.items():
        assert expected.written[offset] == record, crash.operation
    for offset in expected.current:
        assert offset in found or offset >= log.log_end_offset, f"{crash.operation}: lost {offset}"
    view, batches = batch_of([Record(0, NOW_MS, b"a", b"after")])
    end = log.append(view, batches, 1)
    log.close()
    again = open_log(disk, CONFIG, clean=True, recovery_point=end + 1, log_start_offset=expected.log_start)
    values = {offset: record.value for offset, record in found.items()}
    assert {record.offset: record.value for record in read_all(again)} == values | {end: b"after"}


def states(seed: int, losses: int) -> Iterator[tuple[Crash, int]]:
    for number, crash in enumerate(Workload(seed).run()):
        for loss in range(losses):
            yield crash, 1_000 * number + loss


def test_every_crash_state_opens_with_all_that_was_fsynced() -> None:
    count = 0
    for crash, seed in states(seed=1, losses=3):
        check(crash, seed)
        count += 1
    assert count >= 600


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_t6_crash_states_at_length() -> None:
    """Five minutes, and the seed that was begun then."""
    started, seeds = time.monotonic(), 0
    cuts: Counter[str] = Counter()
    for seed in soak.seeds_within(soak.minutes(5)):
        for crash, loss in states(seed, losses=10):
            check(crash, loss)
            cuts[crash.operation.split()[0]] += 1
        seeds += 1
    figures = {"first_seed": soak.first_seed(), "seeds": seeds, "cuts": cuts.total()}
    soak.write_report("T6", started, {**figures, "cut_before": dict(cuts)})
