# SPDX-License-Identifier: Apache-2.0
"""Transactions in a partition: appends by origin, what read_committed readers get and what wakes them."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from headrace.broker.metrics import TopicCounters
from headrace.broker.partition.commit_tracker import FetchWaiter
from headrace.broker.partition.partition import Partition
from headrace.broker.partition.settings.topic_settings import FLUSH_ACK, FLUSH_OS, TopicSettings
from headrace.errors import ApiError
from headrace.log.log_config import LogConfig
from headrace.log.producers.markers import EndTransactionMarker
from headrace.testing.memory_files import MemoryFiles
from headrace.types import TopicPartition
from headrace.wire.batch import read_header
from headrace.wire.error_codes import ErrorCode
from headrace.wire.records import Record, build_batch
from tests.harness.batches.log_tools import Producer, StillClock, batch, open_log

BATCH_BYTES = len(batch(b"value")[0])


class Bench:
    """A sole replica on a disk in memory."""

    def __init__(self, flush: str = FLUSH_OS, segment_bytes: int = 1 << 20) -> None:
        self.clock = StillClock()
        self.soon: list[Callable[[], None]] = []
        self.writable = True
        config = LogConfig(segment_bytes=segment_bytes)
        self.partition = Partition(
            topic_partition=TopicPartition("t", 0),
            topic_id=UUID(int=1),
            leader_epoch=3,
            log=open_log(MemoryFiles(), config, clock=self.clock),
            settings=TopicSettings(log=config, flush=flush),
            clock=self.clock,
            flusher=self,  # type: ignore[arg-type]
            counters=TopicCounters(),
            disk=self,
            call_soon=self.soon.append,
            persist_offsets=self._persist,
        )

    async def _persist(self) -> None: ...

    def request(self, partition: Partition) -> None: ...

    def plain(self) -> int:
        view, _ = batch(b"value")
        return self.partition.append(view, 0, len(view)).last_offset

    def send(self, producer: Producer) -> int:
        """With a guard, as after a verification."""
        view, _ = producer.batch(b"value", is_transactional=True)
        guard = self.partition.begin_verification(view, 0, begins_at_zero=False)
        return self.partition.append(view, 0, len(view), guard=guard).last_offset

    def end(self, producer: Producer, *, commits: bool, coordinator_epoch: int = 1, version: int = 1) -> int:
        return self.partition.append_marker(
            EndTransactionMarker(commits=commits, coordinator_epoch=coordinator_epoch),
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            transaction_version=version,
        ).last_offset

    def flush(self) -> None:
        begun = self.partition.begin_flush()
        assert begun is not None
        begun.flush.sync()
        self.partition.end_flush(begun)

    def wait(self, missing_bytes: int, *, committed_only: bool) -> list[str]:
        told: list[str] = []
        FetchWaiter(
            [self.partition.commits],
            missing_bytes,
            lambda: told.append("done"),
            committed_only=committed_only,
        )
        return told

    def run_soon(self) -> None:
        while self.soon:
            self.soon.pop(0)()

    def aborted(self, offset: int, max_bytes: int = 1 << 20) -> tuple[tuple[int, int], ...]:
        read = self.partition.read(offset, max_bytes, committed_only=True, at_least_one=True)
        assert read.records is not None
        read.records.release()
        return read.aborted


class TestAppends:
    def test_transactional_batch_without_verification_is_refused(self) -> None:
        bench = Bench()
        view, _ = Producer(1).batch(b"value", is_transactional=True)
        with pytest.raises(ApiError) as raised:
            bench.partition.append(view, 0, len(view))
        assert raised.value.code == ErrorCode.invalid_txn_state
        assert bench.partition.log_end_offset == 0

    def test_transactional_batch_without_a_producer_is_refused(self) -> None:
        bench = Bench()
        view, _ = batch(b"value", is_transactional=True)
        with pytest.raises(ApiError) as raised:
            bench.partition.append(view, 0, len(view))
        assert raised.value.code == ErrorCode.invalid_txn_state

    def test_client_writes_a_transaction_and_its_coordinator_ends_it(self) -> None:
        bench, producer = Bench(), Producer(1)
        assert [bench.send(producer), bench.send(producer)] == [0, 1]
        assert bench.partition.last_stable_offset == 0
        assert bench.end(producer, commits=True) == 2
        assert bench.partition.last_stable_offset == 3

    def test_offsets_of_a_transaction_have_no_sequences_and_may_repeat(self) -> None:
        bench = Bench()
        fields = {"producer_id": 1, "producer_epoch": 4, "is_transactional": True}
        for expected in (0, 1):
            made = build_batch([Record(0, bench.clock.now_ms, b"group", b"offset")], **fields)  # type: ignore[arg-type]
            assert bench.partition.append_own(made) == expected
        made = build_batch([Record(0, 0, b"group", b"old")], **{**fields, "producer_epoch": 3})  # type: ignore[arg-type]
        with pytest.raises(ApiError) as raised:
            bench.partition.append_own(made)
        assert raised.value.code == ErrorCode.invalid_producer_epoch

    def test_marker_of_an_older_coordinator_writes_nothing(self) -> None:
        bench, producer = Bench(), Producer(1)
        bench.send(producer)
        bench.end(producer, commits=True, coordinator_epoch=5)
        with pytest.raises(ApiError) as raised:
            bench.end(producer, commits=False, coordinator_epoch=4)
        assert raised.value.code == ErrorCode.transaction_coordinator_fenced
        assert bench.partition.log_end_offset == 2

    def test_offline_partition_takes_neither_markers_nor_offsets(self) -> None:
        bench, producer = Bench(), Producer(1)
        bench.partition.suspend()
        with pytest.raises(ApiError) as raised:
            bench.end(producer, commits=True)
        assert raised.value.code == ErrorCode.not_leader_or_follower
        made = build_batch([Record(0, 0, b"k", b"v")], producer_id=1, producer_epoch=0)
        with pytest.raises(ApiError) as raised:
            bench.partition.append_own(made)
        assert raised.value.code == ErrorCode.not_leader_or_follower

    def test_marker_is_stamped_with_the_append_time_of_the_partition(self) -> None:
        bench, producer = Bench(), Producer(1)
        bench.send(producer)
        bench.clock.now_ms += 77
        offset = bench.end(producer, commits=True)
        piece = bench.partition.log.read(offset, 1 << 20, offset + 1)
        assert piece is not None
        assert read_header(piece.bytes()).max_timestamp == bench.clock.now_ms
        piece.release()


class TestReaders:
    def test_aborted_transactions_are_those_of_the_records_returned(self) -> None:
        bench = Bench()
        first, second = Producer(1), Producer(2)
        bench.send(first)  # 0
        bench.end(first, commits=False)  # 1
        bench.send(second)  # 2
        bench.end(second, commits=True)  # 3
        bench.send(first)  # 4
        bench.end(first, commits=False)  # 5
        assert bench.aborted(0) == ((1, 0), (1, 4))
        assert bench.aborted(0, max_bytes=1) == ((1, 0),)
        assert bench.aborted(2, max_bytes=2 * BATCH_BYTES) == ()
        assert bench.aborted(4) == ((1, 4),)

    def test_marker_in_a_later_segment_is_found(self) -> None:
        bench, producer = Bench(segment_bytes=3 * BATCH_BYTES), Producer(1)
        bench.send(producer)
        for _ in range(9):
            bench.plain()
        bench.end(producer, commits=False)
        assert bench.partition.log.segment_count > 3
        assert bench.aborted(0, max_bytes=1) == ((1, 0),)
        assert bench.aborted(1, max_bytes=1) == ((1, 0),), "it may have batches there"

    def test_read_uncommitted_is_told_nothing(self) -> None:
        bench, producer = Bench(), Producer(1)
        bench.send(producer)
        bench.end(producer, commits=False)
        read = bench.partition.read(0, 1 << 20, committed_only=False, at_least_one=True)
        assert read.records is not None
        read.records.release()
        assert read.aborted == ()


class TestWaiting:
    def test_bytes_of_an_open_transaction_do_not_count_for_committed_readers(self) -> None:
        bench, producer = Bench(), Producer(1)
        committed = bench.wait(1, committed_only=True)
        uncommitted = bench.wait(1, committed_only=False)
        bench.send(producer)
        bench.plain()
        bench.run_soon()
        assert (committed, uncommitted) == ([], ["done"])
        bench.end(producer, commits=True)
        bench.run_soon()
        assert committed == ["done"]

    def test_bytes_before_the_transaction_do(self) -> None:
        bench, producer = Bench(), Producer(1)
        enough = bench.wait(2 * BATCH_BYTES, committed_only=True)
        too_few = bench.wait(2 * BATCH_BYTES + 1, committed_only=True)
        bench.plain()
        bench.plain()
        bench.send(producer)
        bench.run_soon()
        assert (enough, too_few) == (["done"], [])

    def test_all_bytes_that_an_end_makes_stable_count_at_once(self) -> None:
        bench, producer = Bench(segment_bytes=3 * BATCH_BYTES), Producer(1)
        bench.plain()
        bench.send(producer)
        waits = bench.wait(5 * BATCH_BYTES, committed_only=True)
        for _ in range(6):
            bench.plain()
        bench.run_soon()
        assert waits == []
        bench.end(producer, commits=False)
        bench.run_soon()
        assert waits == ["done"]

    def test_marker_wakes_nobody_before_it_is_committed(self) -> None:
        bench, producer = Bench(FLUSH_ACK), Producer(1)
        bench.send(producer)
        bench.flush()
        waits = bench.wait(1, committed_only=True)
        bench.end(producer, commits=True)
        bench.run_soon()
        assert waits == []
        bench.flush()
        bench.run_soon()
        assert waits == ["done"]

    def test_without_transactions_both_count_the_same(self) -> None:
        bench = Bench()
        waits = [bench.wait(BATCH_BYTES, committed_only=each) for each in (True, False)]
        bench.plain()
        bench.run_soon()
        assert waits == [["done"], ["done"]]
