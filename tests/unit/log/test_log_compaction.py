# SPDX-License-Identifier: Apache-2.0
"""Compaction: which records stay, what stays of batches, when it is due, how it gets in place (R29, R29b)."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from headrace.errors import CorruptLogError
from headrace.log.compaction.compaction import CompactionPlan, CompactionResult, KeyMap, compact
from headrace.log.log_config import LogConfig
from headrace.testing.memory_files import MemoryFiles
from headrace.wire.batch import write_crc
from headrace.wire.records import Record
from tests.harness.batches.log_tools import (
    DIRECTORY,
    NOW_MS,
    Producer,
    StillClock,
    batch,
    batch_of,
    flush,
    open_log,
    read_all,
    read_batches,
)

CONFIG = LogConfig(
    segment_bytes=400,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=1000,
)


class Topic:
    """A compacted log with short names for what the tests do to it."""

    def __init__(self, config: LogConfig = CONFIG) -> None:
        self.files = MemoryFiles()
        self.clock = StillClock()
        self.config = config
        self.log = open_log(self.files, config, clock=self.clock)

    def put(self, key: bytes, value: bytes | None, *, timestamp: int | None = None) -> None:
        self.log.append(*batch(value, key=key, timestamp=timestamp or self.clock.now_ms), 0)

    def roll(self) -> None:
        """Seals the active segment."""
        self.log.append(*batch(bytes(400), key=b"filler"), 0)
        self.log.append(*batch(bytes(400), key=b"filler"), 0)
        flush(self.log)

    def plan(self, limit: int | None = None) -> CompactionPlan | None:
        end = self.log.log_end_offset if limit is None else limit
        return self.log.plan_compaction(self.clock.now_ms, end)

    def compact(self, limit: int | None = None) -> CompactionResult:
        plan = self.plan(limit)
        assert plan is not None
        result = compact(plan)
        self.log.finish_compaction(plan, result)
        self.collect()
        return result

    def collect(self) -> None:
        remove = self.log.collect_deleted(self.clock.monotonic())
        if remove is not None:
            remove()

    def left(self) -> list[tuple[int, bytes | None, bytes | None]]:
        records = read_all(self.log)
        return [(r.offset, r.key, r.value) for r in records if r.key != b"filler"]

    def reopen(self, *, clean: bool = False) -> None:
        if clean:
            self.log.close()
        self.log = open_log(self.files, self.config, clock=self.clock, clean=clean)


def test_last_record_of_each_key_stays_with_its_offset() -> None:
    topic = Topic()
    for key, value in ((b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b"4"), (b"b", b"5")):
        topic.put(key, value)
    topic.roll()
    topic.compact()
    assert topic.left() == [(2, b"a", b"3"), (3, b"c", b"4"), (4, b"b", b"5")]


def test_records_inside_a_batch_go_one_by_one_and_the_codec_stays() -> None:
    for codec in range(5):
        topic = Topic()
        records = [Record(i, NOW_MS + i, key, bytes([i])) for i, key in enumerate([b"a", b"b", b"a", b"c"])]
        topic.log.append(*batch_of(records, codec=codec), 0)
        topic.put(b"c", b"new")
        topic.roll()
        topic.compact()
        assert topic.left() == [(1, b"b", b"\x01"), (2, b"a", b"\x02"), (4, b"c", b"new")]
        header, _ = read_batches(topic.log)[0]
        assert (header.codec, header.base_offset, header.last_offset, header.record_count) == (codec, 0, 3, 2)
        assert header.max_timestamp == NOW_MS + 2


def test_headers_and_timestamps_of_kept_records_are_unchanged() -> None:
    topic = Topic()
    records = [
        Record(0, NOW_MS, b"old", b"x"),
        Record(1, NOW_MS - 700, b"kept", b"y", (("trace", b"1"), ("none", None))),
    ]
    topic.log.append(*batch_of(records), 0)
    topic.put(b"old", b"z")
    topic.roll()
    topic.compact()
    assert read_all(topic.log)[0] == records[1]


def test_active_segment_and_what_is_not_committed_are_not_touched() -> None:
    topic = Topic()
    for _ in range(12):
        topic.put(b"a", bytes(50))
    flush(topic.log)
    committed = topic.log._segments[1].base_offset + 1
    topic.compact(limit=committed)
    first_segment_end = topic.log._segments[1].base_offset
    left = [offset for offset, _, _ in topic.left()]
    assert left == list(range(first_segment_end - 1, 12))


def test_unflushed_segments_wait() -> None:
    topic = Topic()
    for _ in range(12):
        topic.put(b"a", bytes(50))
    assert topic.plan() is None
    flush(topic.log)
    assert topic.plan() is not None


def test_only_topics_that_compact_are_compacted() -> None:
    topic = Topic(replace(CONFIG, cleanup_policy=frozenset({"delete"})))
    topic.put(b"a", b"1")
    topic.roll()
    assert topic.plan() is None


class TestTombstones:
    def test_stays_for_delete_retention_ms_from_the_first_compaction_on(self) -> None:
        topic = Topic()
        topic.put(b"a", b"1")
        topic.put(b"a", None)
        topic.roll()
        topic.clock.now_ms += 50_000  # time in the active segment does not count
        topic.compact()
        assert topic.left() == [(1, b"a", None)]
        header = next(header for header, _ in read_batches(topic.log) if header.last_offset == 1)
        assert header.has_delete_horizon
        assert header.base_timestamp == topic.clock.now_ms + 1000
        assert topic.plan() is None, "nothing is due"
        topic.clock.now_ms += 999
        assert topic.plan() is None
        topic.clock.now_ms += 1
        topic.compact()
        assert topic.left() == []
        assert topic.plan() is None

    def test_timestamp_of_a_tombstone_survives_its_horizon(self) -> None:
        topic = Topic()
        topic.put(b"a", None, timestamp=NOW_MS - 12345)
        topic.roll()
        topic.compact()
        assert read_all(topic.log)[0].timestamp == NOW_MS - 12345

    def test_horizon_is_written_once(self) -> None:
        topic = Topic()
        topic.put(b"a", None)
        topic.roll()
        topic.compact()
        topic.clock.now_ms += 600
        topic.put(b"b", b"1")
        topic.roll()
        topic.compact()
        topic.clock.now_ms += 500
        topic.put(b"b", b"2")
        topic.roll()
        topic.compact()
        assert [key for _, key, _ in topic.left()] == [b"b"]

    def test_due_time_survives_a_restart(self) -> None:
        topic = Topic()
        topic.put(b"a", None)
        topic.roll()
        topic.compact()
        topic.reopen(clean=True)
        assert topic.plan() is None
        topic.clock.now_ms += 1000
        topic.compact()
        assert topic.left() == []

    def test_value_after_a_tombstone_wins(self) -> None:
        topic = Topic()
        for value in (b"1", None, b"2"):
            topic.put(b"a", value)
        topic.roll()
        topic.compact()
        topic.clock.now_ms += 10**6
        topic.put(b"x", b"")
        topic.roll()
        topic.compact()
        assert (2, b"a", b"2") in topic.left()


class TestBatchesThatStay:
    def test_last_batch_of_a_producer_stays_as_an_empty_header(self) -> None:
        topic = Topic()
        producer = Producer(77)
        for value in (b"1", b"2"):
            topic.log.append(*producer.batch(value), 0)
        topic.put(b"key", b"from somebody else")
        topic.roll()
        topic.compact()
        headers = [header for header, _ in read_batches(topic.log) if header.producer_id == 77]
        assert [(h.base_offset, h.record_count, h.base_sequence) for h in headers] == [(1, 0, 1)]

    def test_duplicate_is_known_after_compaction_and_restart_without_snapshots(self) -> None:
        topic = Topic()
        producer = Producer(77)
        for value in (b"1", b"2", b"3"):
            topic.log.append(*producer.batch(value), 0)
        topic.put(b"key", b"from somebody else")
        topic.roll()
        topic.compact()
        topic.log.close()
        for name in topic.files.listdir(DIRECTORY):
            if name.endswith(".snapshot"):
                topic.files.unlink(DIRECTORY / name)
        topic.reopen()
        producer.sequence = 2
        assert topic.log.producers.check(producer.batch(b"again")[1][0][1]) == 2

    def test_expired_producers_leave_nothing(self) -> None:
        topic = Topic()
        topic.log.append(*Producer(77).batch(b"1"), 0)
        topic.put(b"key", b"2")
        topic.roll()
        topic.log.producers.expire(NOW_MS + 10**9)
        topic.compact()
        assert not [header for header, _ in read_batches(topic.log) if header.producer_id == 77]

    def test_control_batches_stay(self) -> None:
        topic = Topic()
        marker = Record(0, NOW_MS, b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x09")
        fields = {"producer_id": 5, "producer_epoch": 0, "is_transactional": True, "is_control": True}
        topic.log.append(*batch_of([marker], **fields), 0)
        topic.roll()
        topic.compact()
        assert read_batches(topic.log)[0][0].is_control

    def test_a_segment_ends_where_it_ended(self) -> None:
        """So that a missing segment can be told from a compacted one."""
        topic = Topic()
        for _ in range(20):
            topic.put(b"a", bytes(50))
        topic.roll()
        topic.compact()
        segments = topic.log._segments
        for slot in range(len(segments) - 1):
            assert segments[slot].find_end() == segments[slot + 1].base_offset

    def test_batch_that_cannot_be_read_stays_as_it_is(self) -> None:
        topic = Topic()
        view, batches = batch(b"value", key=b"a")
        view[61:65] = b"\xff\xff\xff\x0f"  # a record of an absurd length
        write_crc(view, 0, len(view))
        topic.log.append(view, batches, 0)
        topic.put(b"a", b"2")
        topic.roll()
        topic.compact()
        assert read_batches(topic.log)[0][1][12:] == bytes(view)[12:]

    def test_records_without_a_key_go(self) -> None:
        topic = Topic()
        topic.log.append(*batch(b"keyless", key=None), 0)
        topic.put(b"a", b"1")
        topic.roll()
        topic.compact()
        assert topic.left() == [(1, b"a", b"1")]


class TestWhenItIsDue:
    def test_dirty_ratio(self) -> None:
        topic = Topic(replace(CONFIG, min_cleanable_dirty_ratio=0.5))
        for number in range(20):
            topic.put(b"%d" % number, bytes(50))
        topic.roll()
        topic.compact()
        for _ in range(4):
            topic.put(b"x", bytes(50))
        flush(topic.log)
        assert topic.plan() is None
        for _ in range(40):
            topic.put(b"x", bytes(50))
        flush(topic.log)
        assert topic.plan() is not None

    def test_min_compaction_lag_keeps_young_records(self) -> None:
        topic = Topic(replace(CONFIG, min_compaction_lag_ms=1000))
        for _ in range(20):
            topic.put(b"a", bytes(50))
            topic.clock.now_ms += 100
        flush(topic.log)
        topic.compact()
        left = read_all(topic.log)
        assert all(r.timestamp > topic.clock.now_ms - 1000 - 400 for r in left)
        assert sum(r.timestamp > topic.clock.now_ms - 1000 for r in left) >= 9

    def test_max_compaction_lag_overrules_the_ratio(self) -> None:
        topic = Topic(replace(CONFIG, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=5000))
        topic.put(b"a", b"1")
        topic.roll()
        assert topic.plan() is None
        topic.clock.now_ms += 5001
        assert topic.plan() is not None

    def test_cleaned_offsets_survive_restarts(self) -> None:
        topic = Topic()
        topic.put(b"a", b"1")
        topic.roll()
        topic.compact()
        for clean in (True, False):
            topic.reopen(clean=clean)
            assert topic.plan() is None

    def test_no_second_one_before_the_first_is_on_disk(self) -> None:
        topic = Topic()
        topic.put(b"a", b"1")
        topic.put(b"a", b"2")
        topic.roll()
        plan = topic.plan()
        assert plan is not None
        topic.log.finish_compaction(plan, compact(plan))
        topic.put(b"a", b"3")
        topic.roll()
        assert topic.plan() is None
        topic.collect()
        assert topic.plan() is not None


class TestInPlace:
    def test_small_segments_are_joined(self) -> None:
        topic = Topic()
        for number in range(60):
            topic.put(b"%d" % (number % 3), bytes(60))
        topic.roll()
        before = topic.log.segment_count
        topic.compact()
        topic.put(b"x", b"")
        topic.roll()
        topic.compact()
        assert topic.log.segment_count < before / 2
        assert [offset for offset, _, _ in topic.left()][-4:] == [57, 58, 59, 62]
        logs = [name for name in topic.files.listdir(DIRECTORY) if name.endswith(".log")]
        assert len(logs) == topic.log.segment_count

    def test_key_map_that_is_too_small_needs_several_passes(self) -> None:
        topic = Topic()
        for _ in range(3):
            for number in range(40):
                topic.put(b"key-%d" % number, b"value")
        topic.roll()
        passes = 0
        while (plan := topic.plan()) is not None:
            result = compact(replace(plan, key_map_bytes=20 * 170))
            topic.log.finish_compaction(plan, result)
            topic.collect()
            passes += 1
        assert passes > 3
        assert len(topic.left()) == 40
        assert [offset for offset, _, _ in topic.left()] == list(range(80, 120))

    def test_unchanged_segments_are_not_replaced(self) -> None:
        topic = Topic()
        for number in range(20):
            topic.put(b"%d" % number, bytes(50))
        topic.roll()
        files_before = {s.base_offset: s.pooled for s in topic.log._segments}
        result = topic.compact()
        assert result.groups == ()
        assert {s.base_offset: s.pooled for s in topic.log._segments} == files_before
        assert not [name for name in topic.files.listdir(DIRECTORY) if "cleaned" in name]

    def test_reader_of_a_replaced_segment_finishes(self) -> None:
        topic = Topic()
        for _ in range(3):
            topic.put(b"a", bytes(50))
        topic.roll()
        piece = topic.log.read(0, 10_000, topic.log.log_end_offset)
        assert piece is not None
        before = piece.bytes()
        topic.compact()
        assert piece.bytes() == before
        piece.release()

    def test_result_for_segments_that_were_deleted_is_thrown_away(self) -> None:
        topic = Topic()
        for _ in range(20):
            topic.put(b"a", bytes(50))
        flush(topic.log)
        plan = topic.plan()
        assert plan is not None
        result = compact(plan)
        topic.log.delete_records_before(topic.log._segments[2].base_offset)
        topic.log.finish_compaction(plan, result)
        topic.collect()
        assert [offset for offset, _, _ in topic.left()][-1] == 19
        assert not [name for name in topic.files.listdir(DIRECTORY) if "cleaned" in name]

    def test_result_for_a_log_that_was_truncated_is_thrown_away(self) -> None:
        topic = Topic()
        for _ in range(20):
            topic.put(b"a", bytes(50))
        flush(topic.log)
        plan = topic.plan()
        assert plan is not None
        result = compact(plan)
        topic.log.truncate_to(3)
        topic.log.finish_compaction(plan, result)
        assert [offset for offset, _, _ in topic.left()] == [0, 1, 2]
        assert not [name for name in topic.files.listdir(DIRECTORY) if "cleaned" in name]

    def test_bit_rot_stops_compaction_and_changes_nothing(self) -> None:
        topic = Topic()
        for _ in range(20):
            topic.put(b"a", bytes(50))
        flush(topic.log)
        plan = topic.plan()
        assert plan is not None
        file = topic.files.open(topic.log._segments[1].pooled.path, "write")
        file.pwritev([b"\xff"], 70)
        with pytest.raises(CorruptLogError, match="CRC"):
            compact(plan)
        assert not [name for name in topic.files.listdir(DIRECTORY) if "cleaned" in name]

    def test_full_disk_stops_compaction_and_leaves_nothing(self) -> None:
        topic = Topic()
        for _ in range(20):
            topic.put(b"a", bytes(50))
        flush(topic.log)
        plan = topic.plan()
        assert plan is not None
        topic.files.capacity = topic.files.used_bytes() + 20
        with pytest.raises(OSError, match=r"No space|only"):
            compact(plan)
        assert not [name for name in topic.files.listdir(DIRECTORY) if "cleaned" in name]
        topic.files.capacity = 1 << 40
        topic.compact()

    def test_kill_before_the_replaced_segments_are_unlinked(self) -> None:
        topic = Topic()
        for number in range(60):
            topic.put(b"%d" % (number % 3), bytes(60))
        topic.roll()
        topic.compact()
        topic.put(b"x", b"")
        topic.roll()
        plan = topic.plan()
        assert plan is not None
        topic.log.finish_compaction(plan, compact(plan))
        expected, segments = topic.left(), topic.log.segment_count
        topic.reopen()
        assert topic.left() == expected
        assert topic.log.segment_count == segments


def test_plan_and_result_travel_to_another_process() -> None:
    topic = Topic()
    topic.put(b"a", b"1")
    topic.roll()
    plan = topic.plan()
    assert plan is not None
    portable = replace(plan, files=_Picklable())
    assert pickle.loads(pickle.dumps(portable)).segments == plan.segments
    result = compact(plan)
    assert pickle.loads(pickle.dumps(result)) == result


class _Picklable:
    """Stands for RealFiles, which has no state."""


def test_long_keys_are_distinguished_from_short_ones_and_each_other() -> None:
    keys = KeyMap(1 << 20)
    long, longer = b"x" * 100, b"x" * 101
    for offset, key in enumerate((b"x" * 32, b"x" * 33, long, longer)):
        keys.put(key, offset)
    assert [keys.last_offset(k) for k in (b"x" * 32, b"x" * 33, long, longer, b"x")] == [0, 1, 2, 3, -1]


def test_compact_and_delete_together() -> None:
    config = replace(CONFIG, cleanup_policy=frozenset({"compact", "delete"}), retention_ms=10_000)
    topic = Topic(config)
    for _ in range(20):
        topic.put(b"a", bytes(50))
    topic.roll()
    topic.compact()
    topic.clock.now_ms += 10_001
    assert topic.log.apply_retention(topic.clock.now_ms, topic.log.log_end_offset) > 0
    assert topic.left() == []
