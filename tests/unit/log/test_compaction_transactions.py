# SPDX-License-Identifier: Apache-2.0
"""Compaction of transactions: aborted records count for nothing and go, markers go last (R29)."""

from __future__ import annotations

import pytest

from headrace.log.compaction.compaction import CompactionPlan, compact
from headrace.log.log_config import LogConfig
from headrace.log.producers.markers import read_marker
from headrace.testing.memory_files import MemoryFiles
from tests.harness.batches.log_tools import StillClock, batch, flush, open_log, read_all, read_batches
from tests.harness.batches.transactions import (
    TransactionalProducer,
    aborted_batches,
    filtered_batches,
    marker,
    stable_offset,
    transactions_of,
)

RETENTION_MS = 1000
CONFIG = LogConfig(
    segment_bytes=400,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=RETENTION_MS,
)


class Topic:
    def __init__(self, config: LogConfig = CONFIG) -> None:
        self.files = MemoryFiles()
        self.clock = StillClock()
        self.config = config
        self.log = open_log(self.files, config, clock=self.clock)

    def put(self, key: bytes, value: bytes) -> None:
        self.log.append(*batch(value, key=key), 0)

    def send(self, producer: TransactionalProducer, key: bytes, value: bytes = b"value") -> int:
        return producer.send(self.log, value, key=key)

    def roll(self) -> None:
        """Seals the active segment."""
        self.put(b"filler", bytes(400))
        self.put(b"filler", bytes(400))
        flush(self.log)

    def compact(self, limit: int | None = None) -> None:
        plan = self.plan(limit)
        assert plan is not None
        self.log.finish_compaction(plan, compact(plan))
        remove = self.log.collect_deleted(self.clock.monotonic())
        if remove is not None:
            remove()

    def plan(self, limit: int | None = None) -> CompactionPlan | None:
        limit = stable_offset(self.log, self.log.log_end_offset) if limit is None else limit
        return self.log.plan_compaction(self.clock.now_ms, limit)

    def compact_again(self) -> None:
        self.roll()
        self.compact()

    def expire(self) -> None:
        self.log.producers.expire(self.clock.now_ms + 10 * 86_400_000)

    def left(self) -> list[tuple[int, bytes | None]]:
        """Offsets and keys of records that are no markers."""
        markers = {header.base_offset for header, _ in read_batches(self.log) if header.is_control}
        records = read_all(self.log)
        return [(r.offset, r.key) for r in records if r.key != b"filler" and r.offset not in markers]

    def markers(self) -> list[int]:
        return [
            header.base_offset
            for header, data in read_batches(self.log)
            if header.is_control and read_marker(memoryview(data)) is not None
        ]


def test_aborted_record_does_not_displace_the_committed_one() -> None:
    topic = Topic()
    producer = TransactionalProducer(5)
    topic.put(b"a", b"committed")
    topic.send(producer, b"a")
    producer.abort(topic.log)
    topic.roll()
    topic.compact()
    assert topic.left() == [(0, b"a")]


def test_committed_record_of_a_transaction_displaces_older_ones() -> None:
    topic = Topic()
    producer = TransactionalProducer(5)
    topic.put(b"a", b"old")
    topic.send(producer, b"a")
    producer.commit(topic.log)
    topic.roll()
    topic.compact()
    assert topic.left() == [(1, b"a")]


@pytest.mark.parametrize("commits", [True, False])
def test_marker_above_the_limit_decides_what_is_below_it(commits: bool) -> None:
    topic = Topic()
    producer = TransactionalProducer(5)
    topic.put(b"a", b"committed")
    topic.send(producer, b"a")
    topic.roll()
    limit = topic.log._segments.active.base_offset
    topic.roll()
    assert producer.end(topic.log, commits=commits) > limit
    flush(topic.log)
    topic.compact(limit)
    assert topic.left() == [(1, b"a")] if commits else [(0, b"a")]


def test_transaction_that_began_before_the_dirty_part_is_known_there() -> None:
    topic = Topic()
    producer = TransactionalProducer(5)
    topic.put(b"a", b"committed")
    topic.send(producer, b"b")
    topic.roll()
    topic.compact(topic.log._segments.active.base_offset)
    topic.send(producer, b"a")
    producer.abort(topic.log)
    topic.roll()
    topic.compact()
    assert topic.left() == [(0, b"a")]


def test_aborted_data_goes_and_the_last_batch_of_a_known_producer_stays_emptied() -> None:
    topic = Topic()
    producer = TransactionalProducer(5)
    for key in (b"a", b"b", b"c"):
        topic.send(producer, key)
    producer.abort(topic.log)
    topic.roll()
    topic.compact()
    assert topic.left() == []
    own = [header for header, _ in read_batches(topic.log) if header.producer_id == 5]
    assert [(h.base_offset, h.record_count, h.is_transactional) for h in own] == [(2, 0, True), (3, 1, True)]
    assert aborted_batches(topic.log) == filtered_batches(topic.log, 0, topic.log.log_end_offset)


@pytest.mark.parametrize("commits", [True, False])
def test_marker_stays_while_an_emptied_batch_of_its_transaction_does(commits: bool) -> None:
    topic = Topic()
    producer = TransactionalProducer(5)
    topic.send(producer, b"a")
    end = producer.end(topic.log, commits=commits)
    topic.put(b"a", b"newer")
    topic.roll()
    for _ in range(4):
        topic.compact()
        topic.clock.now_ms += RETENTION_MS + 1
        topic.roll()
    assert topic.markers() == [end]
    assert all(each.marker_offset is not None for each in transactions_of(topic.log))


@pytest.mark.parametrize("commits", [True, False])
def test_marker_goes_when_nothing_is_left_and_its_horizon_is_past(commits: bool) -> None:
    topic = Topic()
    producer = TransactionalProducer(5)
    topic.send(producer, b"a")
    end = producer.end(topic.log, commits=commits)
    topic.put(b"a", b"newer")
    topic.roll()
    topic.expire()
    topic.compact()
    assert topic.markers() == [end], "this compaction removed the last batch"
    topic.clock.now_ms += 10 * RETENTION_MS
    topic.compact_again()
    header = next(header for header, _ in read_batches(topic.log) if header.is_control)
    assert header.has_delete_horizon
    assert header.base_timestamp == topic.clock.now_ms + RETENTION_MS
    assert topic.markers() == [end]
    topic.clock.now_ms += RETENTION_MS - 1
    topic.compact_again()
    assert topic.markers() == [end], "its horizon is not past"
    topic.clock.now_ms += 1
    assert topic.plan() is not None, "due although nothing was written"
    topic.compact()
    assert topic.markers() == []
    assert topic.log.aborted_transactions(0, topic.log.log_end_offset) == []


def test_last_marker_of_a_producer_without_batches_keeps_its_epoch() -> None:
    topic = Topic()
    producer = TransactionalProducer(5)
    topic.send(producer, b"a")
    topic.log.append(*marker(5, commits=False, epoch=1), 0)  # version 2: each end has a new epoch
    topic.roll()
    for _ in range(4):
        topic.compact()
        topic.clock.now_ms += RETENTION_MS + 1
        topic.roll()
    assert topic.markers() == []
    again = open_log(topic.files, CONFIG, clean=False)
    for name in topic.files.listdir(again.directory):
        if name.endswith(".snapshot"):
            topic.files.unlink(again.directory / name)
    again = open_log(topic.files, CONFIG, clean=False)
    entry = again.producers.get(5)
    assert entry is not None
    assert entry.epoch == 1
    assert again.producers.first_unstable_offset is None


def test_marker_that_a_snapshot_needs_stays() -> None:
    """Recovery may begin at a snapshot in which the transaction is open, and has to find its end."""
    topic = Topic()
    producer = TransactionalProducer(5)
    topic.send(producer, b"a")
    topic.put(b"x", bytes(200))
    topic.put(b"y", bytes(200))  # begins a segment, with a snapshot
    end = producer.abort(topic.log)
    topic.put(b"z", bytes(20))
    topic.roll()
    topic.expire()
    for _ in range(5):
        topic.compact()
        topic.clock.now_ms += RETENTION_MS + 1
        topic.roll()
    assert topic.left() == [(1, b"x"), (2, b"y"), (4, b"z")]
    assert not transactions_of(topic.log), "no batch of it is left"
    snapshot = topic.log._snapshots.read(2)
    assert snapshot is not None
    assert snapshot[0].transaction_start == 0
    assert topic.markers() == [end]
    again = open_log(topic.files, CONFIG, clean=False, recovery_point=2)
    again.high_watermark_is(again.log_end_offset)
    assert again.producers.first_unstable_offset is None


def test_indexes_of_joined_segments_are_joined() -> None:
    topic = Topic()
    producers = [TransactionalProducer(number) for number in range(1, 6)]
    topic.send(producers[0], b"long")
    for producer in producers[1:]:
        topic.send(producer, b"k")
        topic.put(b"plain", bytes(250))
        producer.abort(topic.log)
    end = producers[0].abort(topic.log)
    topic.roll()

    def segments_below_the_end() -> int:
        return sum(base <= end for base in topic.log._segments.base_offsets)

    before = segments_below_the_end()
    topic.compact()
    topic.compact_again()
    assert segments_below_the_end() < before
    assert aborted_batches(topic.log), "emptied batches are left"
    assert aborted_batches(topic.log) == filtered_batches(topic.log, 0, topic.log.log_end_offset)
    again = open_log(topic.files, CONFIG, clean=False, recovery_point=topic.log.log_end_offset)
    assert aborted_batches(again) == filtered_batches(again, 0, again.log_end_offset)
