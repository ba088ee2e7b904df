# SPDX-License-Identifier: Apache-2.0
"""The list model that the log is held against, and the machine that drives both.

The model knows records by offset and nothing of segments, indexes or files.
"""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace.errors import DiskFullError, StorageError
from headrace.log.compaction.compaction import compact
from headrace.log.log_config import LogConfig
from headrace.log.partition_log import PartitionLog
from headrace.log.segments.descriptors import DescriptorPool
from headrace.testing.memory_files import MemoryFiles
from headrace.wire.records import Record, read_records
from tests.harness.batches.log_tools import (
    DIRECTORY,
    NOW_MS,
    Producer,
    StillClock,
    batch_of,
    flush,
    open_log,
    read_all,
    read_batches,
)

KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"e" * 40])
VALUES = st.one_of(st.none(), st.binary(max_size=60))
TIMES = st.integers(0, 400)
ITEMS = st.tuples(KEYS, VALUES, TIMES)
CODECS = st.integers(0, 4)
Item = tuple[bytes, bytes | None, int]
CONFIG = LogConfig(
    segment_bytes=700,
    segment_ms=300,
    index_interval_bytes=90,
    retention_ms=150,
    retention_bytes=2000,
    cleanup_policy=frozenset({"compact", "delete"}),
    delete_retention_ms=100,
    min_cleanable_dirty_ratio=0.0,
    file_delete_delay_ms=50,
)


class LogMachine(RuleBasedStateMachine):
    """Every rule acts on the log and on the model; the invariant reads the whole log after each."""

    def __init__(self) -> None:
        super().__init__()
        self.files = MemoryFiles()
        self.files.make_directory(DIRECTORY.parent)
        self.files.sync_directory(Path("/"))
        self.clock = StillClock()
        self.pool = DescriptorPool(self.files, 3)
        self.log: PartitionLog = open_log(self.files, CONFIG, clock=self.clock, descriptors=self.pool)
        self.records: list[Record] = []
        self.boundaries = [0]
        """Offsets at which a batch begins; the last is the log end."""
        self.ever: dict[int, Record] = {}
        """What was last written at each offset, whatever became of it."""
        self.compacted_to = 0
        self.epoch = 0
        self.recovery_point = 0
        self.log_start_checkpoint = 0
        self.producers = {1: Producer(1), 2: Producer(2)}
        self.sent: list[tuple[int, Record]] = []
        """(producer id, a batch's only record) in order, for duplicates."""

    @initialize(seed=st.integers(0, 2**32))
    def seed(self, seed: int) -> None:
        self.files.random = Random(seed)

    # Producing

    @rule(batches=st.lists(st.tuples(st.lists(ITEMS, min_size=1, max_size=4), CODECS), max_size=6))
    def append(self, batches: list[tuple[list[Item], int]]) -> None:
        for items, codec in batches:
            self._append(items, codec=codec)

    @rule(items=st.lists(st.tuples(ITEMS, st.sampled_from([1, 2])), min_size=1, max_size=8))
    def append_idempotent(self, items: list[tuple[Item, int]]) -> None:
        for item, producer_id in items:
            producer = self.producers[producer_id]
            fields = {
                "producer_id": producer_id,
                "producer_epoch": producer.epoch,
                "base_sequence": producer.sequence,
            }
            self._append([item], **fields)
            producer.sequence += 1
            self.sent.append((producer_id, self.records[-1]))

    def _append(self, items: list[Item], **fields: int) -> None:
        end = self.boundaries[-1]
        records = [Record(i, NOW_MS + time, key, value) for i, (key, value, time) in enumerate(items)]
        view, batches = batch_of(records, **fields)
        assert self.log.append(view, batches, self.epoch) == end
        self.records += [record._replace(offset=end + record.offset) for record in records]
        self.ever.update((record.offset, record) for record in self.records[-len(records) :])
        self.boundaries.append(end + len(records))

    @rule(room=st.integers(0, 300))
    def fill_disk(self, room: int) -> None:
        """The append fails and leaves nothing; after room has returned all goes on."""
        self.files.capacity = self.files.used_bytes() + room
        view, batches = batch_of([Record(0, NOW_MS, b"a", bytes(20_000))])
        with pytest.raises(DiskFullError):
            self.log.append(view, batches, self.epoch)
        assert self.log.fenced
        assert read_all(self.log) == self.records
        self.files.capacity = 1 << 40
        self.log.recover_in_place()
        assert not self.log.fenced

    def break_disk(self) -> None:
        """A write error is never retried; a restart finds everything that was acknowledged (R24)."""
        self.files.errors["pwritev:.log"] = OSError(errno.EIO, "input/output error")
        view, batches = batch_of([Record(0, NOW_MS, b"a", b"1")])
        with pytest.raises(StorageError) as raised:
            self.log.append(view, batches, self.epoch)
        assert not isinstance(raised.value, DiskFullError)
        self.files.errors.clear()
        with pytest.raises(StorageError):
            self.log.append(view, batches, self.epoch)
        with pytest.raises(StorageError):
            self.log.recover_in_place()
        assert read_all(self.log) == self.records
        self.restart_after_kill()
        self.epoch += 1

    # Flushing and writing down

    @rule(write_down=st.booleans())
    def flush(self, write_down: bool) -> None:
        flush(self.log)
        assert self.log.flushed_offset == self.log.log_end_offset
        if write_down:
            self.checkpoint()

    def checkpoint(self) -> None:
        self.recovery_point = self.log.flushed_offset
        self.log_start_checkpoint = self.log.log_start_offset

    @rule(milliseconds=st.integers(1, 300))
    def time_passes(self, milliseconds: int) -> None:
        self.clock.now_ms += milliseconds
        self.log.producers.expire(self.clock.now_ms)
        self._collect()

    def _collect(self) -> None:
        remove = self.log.collect_deleted(self.clock.monotonic())
        if remove is not None:
            remove()

    # Removing

    @rule(data=st.data(), how=st.sampled_from(["retention", "delete_records", "truncate"]))
    def remove(self, data: st.DataObject, how: str) -> None:
        getattr(self, how)(data)

    def retention(self, data: st.DataObject) -> None:
        high_watermark = data.draw(st.sampled_from(self.boundaries))
        before = self.log.log_start_offset
        size = self.log.size_bytes
        self.log.apply_retention(self.clock.now_ms, high_watermark)
        start = self.log.log_start_offset
        assert before <= start <= max(high_watermark, before)
        gone = [record for record in self.records if record.offset < start]
        too_old = self.clock.now_ms - CONFIG.retention_ms
        assert size > CONFIG.retention_bytes or all(record.timestamp < too_old for record in gone)
        self._log_starts_at(start)

    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.log.log_start_offset, self.log.log_end_offset))
        self.log.delete_records_before(offset)
        assert self.log.log_start_offset == offset
        self._log_starts_at(offset)
        # DeleteRecords is answered when the log start is on disk; so is then the directory.
        flush(self.log)
        self.checkpoint()

    def _log_starts_at(self, start: int) -> None:
        self.records = [record for record in self.records if record.offset >= start]

    def truncate(self, data: st.DataObject) -> None:
        lowest = max(self.log.log_start_offset, self.compacted_to)
        offset = data.draw(st.integers(lowest, self.log.log_end_offset))
        end = max(boundary for boundary in self.boundaries if boundary <= offset)
        self.recovery_point = min(self.recovery_point, end)
        self.log.truncate_to(offset)
        self._log_ends_at(end)
        self.log_start_checkpoint = min(self.log_start_checkpoint, self.log.log_start_offset)
        self.epoch += 1

    def _log_ends_at(self, end: int) -> None:
        assert self.log.log_end_offset == end
        self.records = [record for record in self.records if record.offset < end]
        self.boundaries = [b for b in self.boundaries if b < end] + [end]
        self.sent = [(producer_id, record) for producer_id, record in self.sent if record.offset < end]
        for producer_id, producer in self.producers.items():
            entry = self.log.producers.get(producer_id)
            producer.sequence = entry.last_sequence + 1 if entry is not None else producer.sequence

    @rule(data=st.data())
    def compaction(self, data: st.DataObject) -> None:
        flush(self.log)
        if data.draw(st.booleans()):
            self._collect()
        limit = data.draw(st.sampled_from(self.boundaries[::-1]))
        plan = self.log.plan_compaction(self.clock.now_ms, limit)
        if plan is None:
            return
        limit = plan.segments[-1].end_offset
        self.compacted_to = max(self.compacted_to, limit)
        self.log.finish_compaction(plan, compact(plan))
        self._check_compacted(limit)

    def _check_compacted(self, limit: int) -> None:
        left = read_all(self.log)
        offsets = {record.offset for record in left}
        last = {record.key: record.offset for record in self.records if record.offset < limit}
        for record in self.records:
            if record.offset in offsets:
                continue
            assert record.offset < limit, "touched what it must not touch"
            superseded = record.offset < last[record.key]
            assert superseded or record.value is None, f"lost {record}"
        kept = {record.key for record in left if record.offset < limit}
        for record in left:
            if record.offset < min(limit, self.log._cleaner.first_dirty_offset):
                assert record.offset == last[record.key], f"{record} is superseded"
        assert kept <= last.keys()
        assert left == [record for record in self.records if record.offset in offsets]
        self.records = left

    # Stopping and starting

    @rule(how=st.sampled_from(["restart_cleanly", "restart_after_kill", "power_cut", "break_disk"]))
    def restart(self, how: str) -> None:
        getattr(self, how)()

    def restart_cleanly(self) -> None:
        self.log.close()
        assert self.pool.open_count == 0
        self.recovery_point = self.log.log_end_offset
        self.log_start_checkpoint = self.log.log_start_offset
        self._open(clean=True)
        assert self.log.recovery.clean

    def restart_after_kill(self) -> None:
        """The kernel lives: nothing that was appended is missing."""
        self._open(clean=False)
        assert self.log.recovery.bytes_cut == 0

    def power_cut(self) -> None:
        flushed, end = self.log.flushed_offset, self.log.log_end_offset
        earlier_start = self.log.log_start_offset
        self.files.crash()
        self._open(clean=False)
        assert flushed <= self.log.log_end_offset <= end, (flushed, end, self.log.recovery)
        start = self.log.log_start_offset
        assert self.log_start_checkpoint <= start
        # Of a log that was never flushed not even the first segment's name is safe: the rest begins later.
        assert start <= earlier_start or flushed == earlier_start
        self._log_starts_at(max(start, earlier_start))
        found = read_all(self.log)
        for record in found:
            assert self.ever[record.offset] == record, "a record that was never written"
        offsets = {record.offset for record in found}
        for record in self.records:
            assert record.offset in offsets or record.offset >= self.log.log_end_offset, f"lost {record}"
        self.records = found
        self._log_ends_at(self.log.log_end_offset)

    # What must hold after every step

    @invariant()
    def log_equals_model(self) -> None:
        log = self.log
        assert log.log_end_offset == self.boundaries[-1]
        assert read_all(log, max_bytes=1 + 37 * len(self.records) % 500) == self.records

    @invariant()
    def reads_respect_their_bounds(self) -> None:
        random = Random(len(self.records))
        boundaries = [b for b in self.boundaries if b >= self.log.log_start_offset]
        limit = random.choice(boundaries)
        offset = random.randint(self.log.log_start_offset, self.log.log_end_offset)
        found = [record for record in _records(self.log, offset, limit) if record.offset >= offset]
        assert found == [record for record in self.records if offset <= record.offset < limit]

    @invariant()
    def times_are_found(self) -> None:
        records = self.records
        for timestamp in (NOW_MS, NOW_MS + 200, NOW_MS + 390):
            first = next(((r.timestamp, r.offset) for r in records if r.timestamp >= timestamp), None)
            assert self.log.offset_for_timestamp(timestamp) == first
        latest = max(records, key=lambda record: (record.timestamp, -record.offset), default=None)
        assert self.log.offset_of_max_timestamp() == (latest and (latest.timestamp, latest.offset))

    @invariant()
    def last_batches_of_producers_are_known(self) -> None:
        for producer_id, producer in self.producers.items():
            last = next((r for sender, r in reversed(self.sent) if sender == producer_id), None)
            if last is None or last.offset < self.log.log_start_offset:
                continue
            header = producer.batch(b"")[1][0][1]
            producer.sequence -= 1
            assert self.log.producers.check(header) is None
            again = header._replace(base_sequence=producer.sequence - 1)
            assert self.log.producers.check(again) == last.offset

    def teardown(self) -> None:
        self.log.close()
        assert self.pool.open_count == 0

    def _open(self, *, clean: bool) -> None:
        self.pool = DescriptorPool(self.files, 3)
        self.log = open_log(
            self.files,
            CONFIG,
            clock=self.clock,
            clean=clean,
            recovery_point=self.recovery_point,
            log_start_offset=self.log_start_checkpoint,
            descriptors=self.pool,
        )


def _records(log: PartitionLog, offset: int, limit: int) -> list[Record]:
    batches = read_batches(log, offset, limit=limit, max_bytes=300)
    return [record for _, data in batches for record in read_records(memoryview(data))]
