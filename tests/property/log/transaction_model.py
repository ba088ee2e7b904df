# SPDX-License-Identifier: Apache-2.0
"""Transactions in a log against a list of what was written: last stable offset, aborted batches, compaction.

The model keeps every batch ever written, also those that were compacted away or lie below the log start, and
answers each question by going through the list. It knows nothing of indexes, snapshots and segments.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace.broker.partition.commit_tracker import CommitTracker
from headrace.log.compaction.compaction import compact
from headrace.log.log_config import LogConfig
from headrace.log.partition_log import PartitionLog
from headrace.log.segments.descriptors import DescriptorPool
from headrace.testing.memory_files import MemoryFiles
from headrace.wire.error_codes import ErrorCode
from headrace.wire.records import read_records
from tests.harness.batches.log_tools import (
    DIRECTORY,
    StillClock,
    batch,
    flush,
    open_log,
    read_batches,
)
from tests.harness.batches.transactions import TransactionalProducer, filtered_batches, marker

CONFIG = LogConfig(
    segment_bytes=500,
    index_interval_bytes=90,
    cleanup_policy=frozenset({"compact", "delete"}),
    delete_retention_ms=100,
    min_cleanable_dirty_ratio=0.0,
    file_delete_delay_ms=50,
    retention_ms=-1,
)
KEYS = st.sampled_from([b"a", b"b", b"c"])
PRODUCERS = st.integers(1, 3)
WRITES = st.sampled_from(
    ["plain", "send", "send", "commit", "abort", "abort", "commit in a new epoch", "abort in a new epoch"]
)


class Written(NamedTuple):
    offset: int
    producer_id: int
    """-1: outside of any transaction."""
    key: bytes | None
    """None: a marker."""
    commits: bool = False


class Ended(NamedTuple):
    producer_id: int
    offsets: tuple[int, ...]
    marker: int | None
    commits: bool


class TransactionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.files = MemoryFiles()
        self.files.make_directory(DIRECTORY.parent)
        self.files.sync_directory(Path("/"))
        self.clock = StillClock()
        self.written: list[Written] = []
        self.producers = {number: TransactionalProducer(number) for number in (1, 2, 3)}
        self.high_watermark = 0
        self.recovery_point = 0
        self.log_start_checkpoint = 0
        self.settled = 0
        """The high watermark does not move back below this one, and nothing below it is truncated."""
        self.epoch = 0
        self.forgets_deleted = False
        """A truncation may take the only snapshot that knows transactions of deleted segments."""
        self._open(clean=True)

    @initialize(seed=st.integers(0, 2**32))
    def seed(self, seed: int) -> None:
        self.files.random = Random(seed)

    # Writing

    @rule(writes=st.lists(st.tuples(WRITES, PRODUCERS, KEYS), min_size=1, max_size=12))
    def write(self, writes: list[tuple[str, int, bytes]]) -> None:
        for what, number, key in writes:
            if what == "plain":
                self.plain(key)
            elif what == "send":
                self.send(number, key)
            else:
                self.end(number, commits="commit" in what, new_epoch="epoch" in what)

    def plain(self, key: bytes) -> None:
        offset = self.log.append(*batch(bytes(60), key=key), self.epoch)
        self.written.append(Written(offset, -1, key))

    def send(self, number: int, key: bytes) -> None:
        offset = self.producers[number].send(self.log, bytes(40), key=key, leader_epoch=self.epoch)
        self.written.append(Written(offset, number, key))

    def end(self, number: int, *, commits: bool, new_epoch: bool) -> None:
        """Before transaction version 2 with the producer's epoch, from then on with the next one."""
        producer = self.producers[number]
        if new_epoch:
            producer.epoch, producer.sequence = producer.epoch + 1, 0
        view, batches = marker(number, commits=commits, epoch=producer.epoch)
        self.written.append(Written(self.log.append(view, batches, self.epoch), number, None, commits))

    @rule(data=st.data())
    def replicate(self, data: st.DataObject) -> None:
        self._replicate(data.draw(st.integers(self.high_watermark, self.log.log_end_offset)))

    def _replicate(self, offset: int) -> None:
        self.high_watermark = offset
        self.commits.advance(self.high_watermark, 0, lambda last_offset: ErrorCode.none)

    @rule(data=st.data())
    def high_watermark_of_a_new_leader(self, data: st.DataObject) -> None:
        lowest = min(max(self.log.log_start_offset, self.settled), self.high_watermark)
        self.high_watermark = data.draw(st.integers(lowest, self.high_watermark))
        self.commits.reset(self.high_watermark)

    @rule(write_down=st.booleans())
    def flush(self, write_down: bool) -> None:
        flush(self.log)
        if write_down:
            self.recovery_point = self.log.flushed_offset
            self.log_start_checkpoint = self.log.log_start_offset

    @rule(milliseconds=st.integers(1, 200))
    def time_passes(self, milliseconds: int) -> None:
        self.clock.now_ms += milliseconds
        self._collect()

    def _collect(self) -> None:
        remove = self.log.collect_deleted(self.clock.monotonic())
        if remove is not None:
            remove()

    # Removing

    @rule(data=st.data(), how=st.sampled_from(["delete_records", "truncate"]))
    def remove(self, data: st.DataObject, how: str) -> None:
        getattr(self, how)(data)

    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.log.log_start_offset, self.high_watermark))
        self.log.delete_records_before(offset)
        flush(self.log)
        self.recovery_point = self.log.flushed_offset
        self.log_start_checkpoint = self.log.log_start_offset

    def truncate(self, data: st.DataObject) -> None:
        lowest = max(self.log.log_start_offset, self.settled)
        offset = data.draw(st.integers(lowest, self.log.log_end_offset))
        self.recovery_point = min(self.recovery_point, offset)
        self.log.truncate_to(offset)
        self._log_ends_at(self.log.log_end_offset)
        self.commits.reset(self.high_watermark)
        self.epoch += 1
        self.forgets_deleted = self.forgets_deleted or self.log.log_start_offset > 0

    def _log_ends_at(self, end: int) -> None:
        self.written = [each for each in self.written if each.offset < end]
        self.high_watermark = min(self.high_watermark, end)
        for number, producer in self.producers.items():
            entry = self.log.producers.get(number)
            if entry is not None:
                producer.epoch, producer.sequence = entry.epoch, entry.last_sequence + 1

    @rule(forget=st.booleans())
    def compaction(self, forget: bool) -> None:
        self._replicate(self.log.log_end_offset)
        if forget:  # producers that are known keep their last batches
            self.log.producers.expire(self.clock.now_ms + 10**9)
            self.settled = self.high_watermark  # which does not move back by a day
        flush(self.log)
        self._collect()
        plan = self.log.plan_compaction(self.clock.now_ms, self._stable_offset())
        if plan is None:
            return
        result = compact(plan)
        self.log.finish_compaction(plan, result)
        limit = result.first_dirty_offset
        self.settled = self.high_watermark
        left = {
            record.offset: record.key
            for header, data in read_batches(self.log, limit=limit)
            if not header.is_control
            for record in read_records(memoryview(data))
        }
        aborted = self._aborted_offsets()
        last = {
            each.key: each.offset
            for each in self.written
            if each.key is not None and each.offset < limit and each.offset not in aborted
        }
        assert not aborted & left.keys(), "an aborted record stays"
        start = self.log.log_start_offset
        kept = {offset for offset in last.values() if offset >= start}
        assert {offset for offset in left if offset >= start} == kept

    # Stopping and starting

    @rule(how=st.sampled_from(["restart_cleanly", "restart_after_kill", "power_cut"]))
    def restart(self, how: str) -> None:
        getattr(self, how)()

    def restart_cleanly(self) -> None:
        self.log.close()
        self.recovery_point = self.log.log_end_offset
        self.log_start_checkpoint = self.log.log_start_offset
        self._open(clean=True)

    def restart_after_kill(self) -> None:
        self._open(clean=False)

    def power_cut(self) -> None:
        flushed, start = self.log.flushed_offset, self.log.log_start_offset
        self.files.crash()
        self._open(clean=False)
        assert self.log.log_end_offset >= flushed
        # Of a log that was never flushed not even the first segment's name is safe.
        assert self.log.log_start_offset <= start or flushed <= start
        # What is left of the log is read again: a transaction of which no record is left is not in it.
        self.forgets_deleted = self.forgets_deleted or self.log.log_start_offset > 0
        self._log_ends_at(self.log.log_end_offset)
        self.commits.reset(self.high_watermark)

    def _open(self, *, clean: bool) -> None:
        self.log: PartitionLog = open_log(
            self.files,
            CONFIG,
            clock=self.clock,
            clean=clean,
            recovery_point=self.recovery_point,
            log_start_offset=self.log_start_checkpoint,
            descriptors=DescriptorPool(self.files, 3, index_bytes=100),
        )
        at_least_start = max(self.high_watermark, self.log.log_start_offset)
        self.high_watermark = min(at_least_start, self.log.log_end_offset)
        self.commits = CommitTracker(self.log, self.high_watermark, lambda call: None, flushed_only=False)

    # The model's answers

    def _transactions(self) -> list[Ended]:
        open_: dict[int, list[int]] = {}
        found = []
        for offset, number, key, commits in self.written:
            if key is not None and number > 0:
                open_.setdefault(number, []).append(offset)
            elif key is None and number in open_:
                found.append(Ended(number, tuple(open_.pop(number)), offset, commits))
        return found + [Ended(number, tuple(offsets), None, False) for number, offsets in open_.items()]

    def _stable_offset(self, *, left_only: bool = False) -> int:
        """`left_only`: as if what lies below the log start had never been."""
        start = self.log.log_start_offset
        undecided = [
            offset
            for each in self._transactions()
            if each.marker is None or each.marker >= self.high_watermark
            for offset in each.offsets
            if offset >= start or not left_only
        ]
        first = min(undecided, default=self.high_watermark)
        return min(self.high_watermark, max(start, first))

    def _aborted_offsets(self) -> set[int]:
        ended = [each for each in self._transactions() if each.marker is not None and not each.commits]
        return {offset for each in ended for offset in each.offsets}

    # What must hold after every step

    @invariant()
    def last_stable_offset_is_that_of_the_definition(self) -> None:
        found, expected = self.commits.last_stable_offset, self._stable_offset()
        if self.forgets_deleted:  # no record that is left is misjudged
            assert expected <= found <= self._stable_offset(left_only=True)
        else:
            assert found == expected

    @invariant()
    def readers_leave_out_what_was_aborted_and_nothing_else(self) -> None:
        log, stable = self.log, self.commits.last_stable_offset
        random = Random(len(self.written))
        start = random.randint(log.log_start_offset, max(stable, log.log_start_offset))
        aborted = self._aborted_offsets()
        for begin, end in ((log.log_start_offset, stable), (start, stable), (start, start + 1)):
            if begin < end <= stable:
                headers = [header for header, _ in read_batches(log, begin, limit=end)]
                data = {
                    (header.producer_id, header.base_offset)
                    for header in headers
                    if header.is_transactional and not header.is_control
                }
                expected = {each for each in data if each[1] in aborted}
                assert filtered_batches(log, begin, end) == expected, (begin, end)

    def teardown(self) -> None:
        self.log.close()
