# SPDX-License-Identifier: Apache-2.0
"""A model of compaction on one log: transactions, plain records and compactions, drawn from a seed.

The simulated cluster compacts nothing. Here the last committed record of every key must be left, and nothing
that was aborted. Larger: tests/property/log/transaction_model.py. Read next: log/compaction/transactions.py.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

from headrace.log.compaction.compaction import compact
from headrace.log.log_config import LogConfig
from headrace.log.partition_log import PartitionLog
from headrace.testing.memory_files import MemoryFiles
from headrace.wire.key_values import iter_key_values
from tests.harness.batches.log_tools import DIRECTORY, StillClock, batch, flush, open_log, read_batches
from tests.harness.batches.transactions import TransactionalProducer, aborted_batches, stable_offset
from tests.harness.simulation.clients import BrokenPromise

CONFIG = LogConfig(
    segment_bytes=400,
    index_interval_bytes=90,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    retention_ms=-1,
)
STEPS = 60
KEYS = (b"a", b"b", b"c")


class CompactionModel:
    def __init__(self, seed: int) -> None:
        self._random = Random(f"compaction {seed}")
        files = MemoryFiles()
        files.make_directory(DIRECTORY.parent)
        files.sync_directory(Path("/"))
        self._clock = StillClock()
        self._log: PartitionLog = open_log(files, CONFIG, clock=self._clock)
        self._producers = [TransactionalProducer(number) for number in (1, 2)]
        self._open: dict[TransactionalProducer, list[tuple[bytes, bytes]]] = {}
        self.committed: dict[bytes, bytes] = {}
        """The value that was written last of those that are committed."""
        self._places: dict[bytes, int] = {}
        self._written = 0

    def step(self) -> None:
        act = self._random.choice((self._send, self._send, self._send, self._end, self._plain, self._compact))
        act()

    def _value(self) -> bytes:
        self._written += 1
        return b"%d" % self._written

    def _plain(self) -> None:
        key, value = self._random.choice(KEYS), self._value()
        self._log.append(*batch(value, key=key), 0)
        self._is_committed(key, value)

    def _send(self) -> None:
        producer, key, value = self._random.choice(self._producers), self._random.choice(KEYS), self._value()
        producer.send(self._log, value, key=key)
        self._open.setdefault(producer, []).append((key, value))

    def _end(self) -> None:
        producer, commits = self._random.choice(self._producers), self._random.random() < 0.5
        producer.end(self._log, commits=commits)
        for key, value in self._open.pop(producer, []):
            if commits:
                self._is_committed(key, value)

    def _is_committed(self, key: bytes, value: bytes) -> None:
        """Compaction keeps what was written last, also where it was committed earlier."""
        if int(value) > self._places.get(key, 0):
            self._places[key], self.committed[key] = int(value), value

    def _compact(self) -> None:
        flush(self._log)
        remove = self._log.collect_deleted(self._clock.monotonic() + 1e9)
        if remove is not None:
            remove()
        plan = self._log.plan_compaction(
            self._clock.now_ms, stable_offset(self._log, self._log.log_end_offset)
        )
        if plan is not None:
            self._log.finish_compaction(plan, compact(plan))
            self.check()

    def check(self) -> None:
        found: dict[bytes | None, bytes | None] = {}
        aborted = aborted_batches(self._log)
        open_ = {value for records in self._open.values() for _, value in records}
        for header, data in read_batches(self._log):
            if header.is_control or (header.producer_id, header.base_offset) in aborted:
                continue
            records = iter_key_values(memoryview(data))
            found.update({key: value for _, key, value in records if value not in open_})
        left = {key: value for key, value in found.items() if key in self.committed}
        if left != self.committed:
            raise BrokenPromise(f"{left} is left of {self.committed} (R29)")


def run_seed(seed: int) -> None:
    model = CompactionModel(seed)
    for _ in range(STEPS):
        model.step()
    model.check()
