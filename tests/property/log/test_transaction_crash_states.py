# SPDX-License-Identifier: Apache-2.0
"""T6 for transactions: the power is cut before every operation on the disk.

After each cut, readers of the log that is left leave out exactly what its own batches say was aborted, and
the last stable offset is that of its own batches.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from headrace.broker.partition.commit_tracker import CommitTracker
from headrace.log.compaction.compaction import compact
from headrace.log.log_config import LogConfig
from headrace.log.partition_log import PartitionLog
from headrace.testing.memory_files import MemoryFiles
from tests.harness import soak
from tests.harness.batches.log_tools import DIRECTORY, StillClock, batch, flush, open_log
from tests.harness.batches.transactions import (
    TransactionalProducer,
    aborted_batches,
    filtered_batches,
    stable_offset,
)

CONFIG = LogConfig(
    segment_bytes=600,
    index_interval_bytes=120,
    delete_retention_ms=0,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    file_delete_delay_ms=0,
)


@dataclass
class Crash:
    disk: MemoryFiles
    recovery_point: int
    operation: str


class Workload:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.clock = StillClock()
        self.files = MemoryFiles(Random(seed))
        self.files.make_directory(DIRECTORY.parent)
        self.files.sync_directory(Path("/"))
        self.recovery_point = 0
        self.producers = [TransactionalProducer(number) for number in (1, 2, 3)]
        self.crashes: list[Crash] = []

    def run(self) -> list[Crash]:
        log = open_log(self.files, CONFIG, clock=self.clock)
        self.files.on_operation = self._crash_here
        for step in range(45):
            self._write(log)
            if step % 3 == 2:
                flush(log)
            if step % 5 == 4:
                self.recovery_point = log.flushed_offset
            if step % 9 == 8:
                self._compact(log)
            if step == 20:
                self.recovery_point = min(self.recovery_point, log.log_end_offset - 2)
                log.truncate_to(log.log_end_offset - 2)
            if step == 30:
                log.close()
                self.recovery_point = log.log_end_offset
                log = open_log(self.files, CONFIG, clock=self.clock, recovery_point=self.recovery_point)
        return self.crashes

    def _crash_here(self, operation: str, path: Path) -> None:
        self.crashes.append(Crash(self.files.clone(), self.recovery_point, f"{operation} {path.name}"))

    def _write(self, log: PartitionLog) -> None:
        producer = self.random.choice(self.producers)
        for _ in range(self.random.randint(0, 2)):
            producer.send(log, bytes(30), key=self.random.choice([b"a", b"b"]))
        if self.random.random() < 0.5:
            producer.end(log, commits=self.random.random() < 0.4)
        log.append(*batch(bytes(60), key=self.random.choice([b"a", b"b", b"c"])), 0)

    def _compact(self, log: PartitionLog) -> None:
        flush(log)
        self.clock.now_ms += 10
        plan = log.plan_compaction(self.clock.now_ms, stable_offset(log, log.log_end_offset))
        if plan is not None:
            log.finish_compaction(plan, compact(plan))
            remove = log.collect_deleted(self.clock.monotonic())
            if remove is not None:
                remove()


def check(crash: Crash, seed: int) -> None:
    disk = crash.disk.clone(Random(seed))
    disk.crash()
    log = open_log(disk, CONFIG, clean=False, recovery_point=crash.recovery_point)
    _check_answers(log, crash.operation)
    log.close()
    again = open_log(disk, CONFIG, recovery_point=log.log_end_offset)
    _check_answers(again, crash.operation)


def _check_answers(log: PartitionLog, operation: str) -> None:
    end = log.log_end_offset
    aborted = aborted_batches(log)
    assert filtered_batches(log, log.log_start_offset, end) == aborted, operation
    middle = end // 2
    expected = {each for each in aborted if each[1] >= middle}
    assert {each for each in filtered_batches(log, middle, end) if each[1] >= middle} == expected, operation
    commits = CommitTracker(log, end, lambda call: None, flushed_only=False)
    assert commits.last_stable_offset == stable_offset(log, end), operation


def test_crash_states_leave_out_what_was_aborted() -> None:
    """Every third one: the quick gate has no time for all."""
    crashes = Workload(1).run()
    assert len(crashes) >= 300
    for number, crash in enumerate(crashes[::3]):
        check(crash, number)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_t6_every_crash_state_of_transactions_at_length() -> None:
    """Five minutes, and the seed that was begun then."""
    started, seeds = time.monotonic(), 0
    cuts: Counter[str] = Counter()
    for seed in soak.seeds_within(soak.minutes(5)):
        for number, crash in enumerate(Workload(seed).run()):
            for loss in range(10):
                check(crash, 1_000 * number + loss)
                cuts[crash.operation.split()[0]] += 1
        seeds += 1
    figures = {"first_seed": soak.first_seed(), "seeds": seeds, "cuts": cuts.total()}
    soak.write_report("T6-transactions", started, {**figures, "cut_before": dict(cuts)})
