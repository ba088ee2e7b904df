# SPDX-License-Identifier: Apache-2.0
"""One partition: who waits, what wakes them, and what a fault of its log means."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from headrace.broker.metrics import TopicCounters
from headrace.broker.partition.commit_tracker import FetchWaiter
from headrace.broker.partition.leader_role import LeaderRole
from headrace.broker.partition.partition import Partition
from headrace.broker.partition.roles import ReplicaFetch
from headrace.broker.partition.settings.topic_settings import (
    FLUSH_ACK,
    FLUSH_INTERVAL,
    FLUSH_OS,
    TopicSettings,
)
from headrace.errors import ApiError, CorruptLogError, StorageError
from headrace.log.log_config import LogConfig
from headrace.machines.replication.leader import Leader, LeaderSettings, Nodes, OwnLog
from headrace.testing.memory_files import MemoryFiles
from headrace.types import PartitionState, TopicPartition
from headrace.wire.error_codes import ErrorCode
from tests.harness.batches.log_tools import Producer, StillClock, batch, open_log


class FakeFlusher:
    def __init__(self) -> None:
        self.requested: list[Partition] = []
        self.failures: list[OSError] = []

    def request(self, partition: Partition) -> None:
        self.requested.append(partition)

    def disk_failed(self, error: OSError) -> None:
        self.failures.append(error)


class FakeTimer:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Bench:
    """A partition on a disk in memory; flushes happen when told."""

    def __init__(self, flush: str = FLUSH_ACK, **settings: Any) -> None:
        self.files = MemoryFiles()
        self.clock = StillClock()
        self.flusher = FakeFlusher()
        self.soon: list[Callable[[], None]] = []
        self.writable = True
        self.log = open_log(self.files, clock=self.clock)
        self.partition = Partition(
            topic_partition=TopicPartition("t", 0),
            topic_id=UUID(int=1),
            leader_epoch=3,
            log=self.log,
            settings=TopicSettings(log=LogConfig(), flush=flush, **settings),
            clock=self.clock,
            flusher=self.flusher,  # type: ignore[arg-type]
            counters=TopicCounters(),
            disk=self,
            call_soon=self.soon.append,
            persist_offsets=self._persist,
        )

    async def _persist(self) -> None: ...

    def append(self, *values: bytes, **fields: Any) -> int:
        view, _ = batch(*(values or (b"value",)), timestamp=self.clock.now_ms, **fields)
        return self.partition.append(view, 0, len(view)).last_offset

    def flush(self) -> None:
        begun = self.partition.begin_flush()
        assert begun is not None
        begun.flush.sync()
        self.partition.end_flush(begun)
        self.run_soon()

    def run_soon(self) -> None:
        while self.soon:
            self.soon.pop(0)()

    def wait_for(self, last_offset: int, deadline: float = 1e12) -> list[ErrorCode]:
        told: list[ErrorCode] = []
        self.partition.wait_for_ack(last_offset, deadline, told.append)
        return told

    def fetch(self, missing_bytes: int) -> list[str]:
        told: list[str] = []
        waiter = FetchWaiter([self.partition.commits], missing_bytes, lambda: told.append("done"))
        waiter.start_timer(FakeTimer())
        return told


# Producers that wait


def test_an_ack_comes_with_the_flush_that_covers_it_and_not_with_an_earlier_one() -> None:
    bench = Bench()
    first = bench.wait_for(bench.append())
    begun = bench.partition.begin_flush()
    second = bench.wait_for(bench.append())
    assert begun is not None
    begun.flush.sync()
    bench.partition.end_flush(begun)
    assert (first, second) == ([ErrorCode.none], [])
    bench.flush()
    assert second == [ErrorCode.none]


def test_nobody_waits_for_what_is_committed() -> None:
    bench = Bench(FLUSH_OS)
    assert bench.wait_for(bench.append()) == [ErrorCode.none]


@pytest.mark.parametrize(
    ("end", "code"),
    [("take_offline", ErrorCode.kafka_storage_error), ("resign", ErrorCode.not_leader_or_follower)],
)
def test_nobody_waits_for_a_partition_that_is_gone(end: str, code: ErrorCode) -> None:
    bench = Bench()
    last_offset = bench.append()
    before = bench.wait_for(last_offset)
    getattr(bench.partition, end)()
    after = bench.wait_for(last_offset)
    assert before == after == [code]
    with pytest.raises(ApiError) as raised:
        bench.append()
    assert raised.value.code is code


def test_the_duplicate_of_a_batch_that_is_not_on_disk_yet_waits_like_the_batch() -> None:
    bench = Bench()
    producer = Producer(7)
    original, _ = producer.batch(b"value")
    copy = memoryview(bytearray(original))
    first = bench.partition.append(original, 0, len(original))
    second = bench.partition.append(copy, 0, len(copy))
    assert second.base_offset == first.base_offset
    told = bench.wait_for(second.last_offset)
    assert told == []
    bench.flush()
    assert told == [ErrorCode.none]


def test_only_expired_waiters_time_out() -> None:
    bench = Bench()
    last_offset = bench.append()
    early, late = bench.wait_for(last_offset, deadline=10), bench.wait_for(last_offset, deadline=30)
    bench.partition.on_tick(20)
    assert (early, late) == ([ErrorCode.request_timed_out], [])


# Leaders


def lead_of_three(bench: Bench) -> LeaderRole:
    """Node 0 leads, nodes 1 and 2 follow; two have to be in sync."""
    state = PartitionState(replicas=(0, 1, 2), leader=0, leader_epoch=3, isr=(0, 1, 2), partition_epoch=7)
    own = OwnLog(log_end=0, durable_end=0, high_watermark=0)
    machine = Leader(0, state, Nodes({0: 10, 1: 11, 2: 12}), own, LeaderSettings(min_insync=2), 0)
    role = LeaderRole(bench.partition, machine, lambda: 0, lambda role: None, lambda node, ms: None)
    bench.partition.become_leader(role, 3)
    bench.partition.open_for_writes()
    return role


def fetch_as(node: int, offset: int) -> ReplicaFetch:
    return ReplicaFetch(node, 10 + node, 3, offset, -1, 0)


def test_the_leader_machine_answers_an_acks_all_produce() -> None:
    bench = Bench(FLUSH_OS)
    role = lead_of_three(bench)
    last_offset = bench.append()
    told = bench.wait_for(last_offset)
    role.fetched(fetch_as(1, 1))
    assert told == []
    role.fetched(fetch_as(2, 1))
    assert told == [ErrorCode.none]
    assert bench.wait_for(last_offset) == [ErrorCode.none]


def test_below_min_insync_nothing_is_acknowledged_and_nothing_appended() -> None:
    """As checkEnoughReplicasReachOffset of Apache Kafka: also what is committed gets the error (R17)."""
    bench = Bench(FLUSH_OS)
    role = lead_of_three(bench)
    committed = bench.append()
    role.fetched(fetch_as(1, 1))
    role.fetched(fetch_as(2, 1))
    waiting = bench.wait_for(bench.append())
    alone = replace(role.machine.state, isr=(0,), partition_epoch=8)
    role.machine.update(alone, Nodes({0: 10, 1: 11, 2: 12}), 0)
    role.update_high_watermark()
    assert bench.wait_for(committed) == [ErrorCode.not_enough_replicas_after_append]
    assert (waiting, bench.partition.high_watermark) == ([], 1)
    view, _ = batch(b"value", timestamp=bench.clock.now_ms)
    with pytest.raises(ApiError) as refused:
        bench.partition.append(view, 0, len(view), acks_all=True)
    assert refused.value.code is ErrorCode.not_enough_replicas
    assert bench.log.log_end_offset == 2


def test_a_replica_without_a_role_commits_and_serves_nothing() -> None:
    bench = Bench()
    bench.append()
    bench.partition.drop_role(3)
    bench.flush()
    assert bench.partition.high_watermark == 0
    with pytest.raises(ApiError) as refused:
        bench.partition.read(0, 100, committed_only=False, at_least_one=True)
    assert refused.value.code is ErrorCode.not_leader_or_follower


# Readers that wait


def test_a_reader_counts_what_became_readable_since_it_began_to_wait() -> None:
    bench = Bench(FLUSH_OS)
    for _ in range(10):
        bench.append(bytes(1000))
    told = bench.fetch(1500)
    bench.append(bytes(1000))
    bench.run_soon()
    assert told == []
    bench.append(bytes(1000))
    bench.run_soon()
    assert told == ["done"]


def test_a_reader_that_comes_between_an_append_and_its_announcement_does_not_count_it() -> None:
    bench = Bench(FLUSH_OS)
    first = bench.fetch(10_000)
    bench.append(bytes(1000))
    told = bench.fetch(500)
    bench.run_soon()
    assert told == []
    assert first == []


def test_readers_see_with_the_flush_and_not_with_the_append() -> None:
    bench = Bench()
    told = bench.fetch(1)
    bench.append()
    bench.run_soon()
    assert told == []
    bench.flush()
    assert told == ["done"]


def test_a_reader_is_answered_once_whatever_else_happens() -> None:
    bench = Bench()
    told: list[str] = []
    timer = FakeTimer()
    waiter = FetchWaiter([bench.partition.commits], 1, lambda: told.append("done"))
    waiter.start_timer(timer)
    waiter.finish()
    waiter.finish()
    waiter.more(5)
    bench.partition.take_offline()
    assert told == ["done"]
    assert timer.cancelled


def test_a_reader_that_gave_up_is_not_answered() -> None:
    bench = Bench()
    told: list[str] = []
    waiter = FetchWaiter([bench.partition.commits], 1, lambda: told.append("done"))
    waiter.cancel()
    bench.partition.take_offline()
    waiter.finish()
    assert told == []


def test_readers_are_woken_once_for_many_appends_of_one_turn() -> None:
    bench = Bench(FLUSH_OS)
    bench.fetch(1)
    for _ in range(100):
        bench.append()
    assert len(bench.soon) == 1


# Flush policies


def test_a_weaker_flush_policy_lets_readers_and_producers_go_on() -> None:
    bench = Bench()
    told, reader = bench.wait_for(bench.append()), bench.fetch(1)
    bench.partition.reconfigure(TopicSettings(log=LogConfig(), flush=FLUSH_OS))
    bench.run_soon()
    assert told == [ErrorCode.none]
    assert reader == ["done"]


def test_a_stronger_flush_policy_holds_from_the_next_append_on() -> None:
    bench = Bench(FLUSH_OS)
    bench.append()
    bench.partition.reconfigure(TopicSettings(log=LogConfig(), flush=FLUSH_ACK))
    assert bench.partition.high_watermark == 1
    told = bench.wait_for(bench.append())
    assert told == []
    bench.flush()
    assert told == [ErrorCode.none]


def test_flush_by_interval_is_for_those_who_asked_for_it() -> None:
    for flush, count in ((FLUSH_INTERVAL, 1), (FLUSH_OS, 0)):
        bench = Bench(flush)
        bench.append()
        bench.partition.flush_by_interval()
        assert len(bench.flusher.requested) == count


# Faults


def test_a_flush_on_a_full_disk_is_an_error_and_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    told = bench.wait_for(bench.append())

    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(bench.log, "begin_flush", full)
        assert bench.partition.begin_flush() is None
    assert told == [ErrorCode.kafka_storage_error]
    bench.flusher.requested.clear()
    bench.partition.on_tick(0)
    assert bench.flusher.requested == [bench.partition]
    bench.flush()
    assert bench.partition.high_watermark == 1


def test_a_write_error_is_the_end_of_the_disk(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    told = bench.wait_for(bench.append())
    bench.files.errors["pwritev:.log"] = OSError(errno.EIO, "Input/output error")
    with pytest.raises(ApiError) as raised:
        bench.append()
    assert raised.value.code is ErrorCode.kafka_storage_error
    assert [error.errno for error in bench.flusher.failures] == [errno.EIO]
    assert told == [ErrorCode.kafka_storage_error]
    assert not bench.partition.online


def test_a_full_disk_keeps_the_partition_readable_and_it_recovers() -> None:
    bench = Bench(FLUSH_OS)
    bench.append()
    bench.files.capacity = bench.files.used_bytes()
    with pytest.raises(ApiError) as raised:
        bench.append(bytes(1000))
    assert raised.value.code is ErrorCode.kafka_storage_error
    assert bench.partition.online
    assert bench.flusher.failures == []
    records = bench.partition.read(0, 1000, committed_only=False, at_least_one=True).records
    assert records is not None
    records.release()
    bench.files.capacity = 1 << 40
    bench.partition.recover_if_fenced()
    assert bench.append() == 1


@pytest.mark.parametrize(
    ("error", "online"),
    [
        (OSError(errno.EMFILE, "too many open files"), True),
        (OSError(errno.ENOSPC, "no room"), True),
        (OSError(errno.EIO, "bad sector"), False),
        (CorruptLogError("bit rot"), False),
        (StorageError("anything else"), False),
    ],
)
def test_transient_errors_keep_a_partition_online_and_others_take_it_offline(
    error: StorageError | OSError, online: bool, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    for _ in range(3):
        assert bench.partition.fault(error).code is ErrorCode.kafka_storage_error
    assert bench.partition.online is online
    assert len(caplog.messages) == (0 if online else 1)


def test_a_nearly_full_disk_refuses_before_anything_is_written() -> None:
    bench = Bench()
    bench.writable = False
    with pytest.raises(ApiError, match="nearly full"):
        bench.append()
    assert bench.log.log_end_offset == 0


# Reads


def test_a_read_tells_whether_more_records_follow() -> None:
    bench = Bench(FLUSH_OS)
    for _ in range(3):
        bench.append(bytes(1000))
    for max_bytes, at_least_one, size, more in (
        (1 << 20, True, 3, False),
        (1500, True, 1, True),
        (10, True, 1, True),
        (10, False, 0, True),
        (0, False, 0, True),
    ):
        read = bench.partition.read(0, max_bytes, committed_only=False, at_least_one=at_least_one)
        got = 0 if read.records is None else read.records.next_offset
        if read.records is not None:
            read.records.release()
        assert (got, read.more) == (size, more)
    at_end = bench.partition.read(3, 1 << 20, committed_only=False, at_least_one=False)
    assert not at_end.more


def test_offsets_outside_the_log_are_refused_and_its_very_end_is_not() -> None:
    bench = Bench()
    bench.append()
    assert bench.partition.read(1, 100, committed_only=False, at_least_one=True).records is None
    for offset in (-1, 2):
        with pytest.raises(ApiError) as raised:
            bench.partition.read(offset, 100, committed_only=False, at_least_one=True)
        assert raised.value.code is ErrorCode.offset_out_of_range


def test_nothing_overtakes_a_producers_first_batch_that_came_before_the_role() -> None:
    """Refused while the node does not lead yet; what was sent right behind it arrives when it does."""
    bench = Bench(flush=FLUSH_OS)
    bench.partition.drop_role(3)
    with pytest.raises(ApiError) as too_early:
        bench.append(producer_id=7, producer_epoch=0, base_sequence=0)
    assert too_early.value.code is ErrorCode.not_leader_or_follower
    bench.partition.become_sole_replica(4)
    with pytest.raises(ApiError) as overtaking:
        bench.append(producer_id=7, producer_epoch=0, base_sequence=1)
    assert overtaking.value.code is ErrorCode.out_of_order_sequence_number
    assert bench.append(producer_id=7, producer_epoch=0, base_sequence=0) == 0
    assert bench.append(producer_id=7, producer_epoch=0, base_sequence=1) == 1
