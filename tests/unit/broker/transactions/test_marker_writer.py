# SPDX-License-Identifier: Apache-2.0
"""Markers in partitions of this node: codes of each partition, the wait for acks=all, committed offsets."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.broker.coordinators.machine_driver import Answer
from headrace.broker.groups.coordinator import OFFSETS_TOPIC
from headrace.broker.partition.partition import Appended
from headrace.broker.transactions.marker_writer import ACK_TIMEOUT_S, Marker, MarkerCodes, MarkerWriter
from headrace.errors import ApiError
from headrace.log.producers.markers import EndTransactionMarker
from headrace.machines.machine import ReplyBody
from headrace.types import TopicPartition
from headrace.wire.coordinator.group_records import TransactionMarkerRecord
from headrace.wire.error_codes import ErrorCode

NONE = ErrorCode.none
T0, T1, OFFSETS = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition(OFFSETS_TOPIC, 7)
COMMIT = Marker(producer_id=5, producer_epoch=3, committed=True, coordinator_epoch=9, transaction_version=2)


class FakeClock:
    def monotonic(self) -> float:
        return 100.0

    def wall_ms(self) -> int:
        return 0


class FakePartition:
    """Answers an append with `answer` (None: it waits for replicas), or raises `refusal`."""

    def __init__(self, *, answer: ErrorCode | None = NONE, refusal: ErrorCode | None = None) -> None:
        self.takes_writes = True
        self.answer = answer
        self.refusal = refusal
        self.written: list[tuple[EndTransactionMarker, int, int, int]] = []
        self.waiting: list[tuple[int, float, Callable[[ErrorCode], None]]] = []

    def append_marker(
        self,
        marker: EndTransactionMarker,
        *,
        producer_id: int,
        producer_epoch: int,
        transaction_version: int,
    ) -> Appended:
        if self.refusal is not None:
            raise ApiError(self.refusal)
        self.written.append((marker, producer_id, producer_epoch, transaction_version))
        offset = 41 + len(self.written)
        return Appended(offset, offset, self.answer)

    def wait_for_ack(self, last_offset: int, deadline: float, done: Callable[[ErrorCode], None]) -> None:
        self.waiting.append((last_offset, deadline, done))


class FakeGroups:
    def __init__(self, refusal: ErrorCode | None = None) -> None:
        self.refusal = refusal
        self.ended: list[tuple[int, TransactionMarkerRecord, int]] = []

    def end_transaction(
        self, index: int, marker: TransactionMarkerRecord, append: Callable[[], int], answer: Answer
    ) -> None:
        if self.refusal is not None:
            answer(ApiError(self.refusal))
            return
        self.ended.append((index, marker, append()))
        answer(ReplyBody())


class Lab:
    def __init__(self, groups: FakeGroups | None = None) -> None:
        self.groups = groups or FakeGroups()
        self.partitions: dict[TopicPartition, FakePartition] = {}
        self.answers: list[MarkerCodes] = []
        self.writer = MarkerWriter(find_led=self._find_led, groups=self.groups, clock=FakeClock())

    def _find_led(self, topic: str, index: int) -> FakePartition:
        try:
            return self.partitions[TopicPartition(topic, index)]
        except KeyError:
            raise ApiError(ErrorCode.unknown_topic_or_partition) from None

    def add(self, name: TopicPartition, partition: FakePartition) -> FakePartition:
        self.partitions[name] = partition
        return partition

    def write(self, *names: TopicPartition) -> None:
        self.writer.write(COMMIT, names, self.answers.append)


def test_a_marker_that_is_committed_at_once_is_answered_before_the_call_returns() -> None:
    lab = Lab()
    partition = lab.add(T0, FakePartition())
    lab.write(T0)
    assert lab.answers == [{T0: NONE}]
    assert partition.written == [(EndTransactionMarker(commits=True, coordinator_epoch=9), 5, 3, 2)]


def test_the_answer_waits_until_the_replicas_have_every_marker() -> None:
    lab = Lab()
    lab.add(T0, FakePartition())
    partition = lab.add(T1, FakePartition(answer=None))
    lab.write(T0, T1)
    assert lab.answers == []
    ((offset, deadline, done),) = partition.waiting
    assert (offset, deadline) == (42, 100.0 + ACK_TIMEOUT_S)
    done(ErrorCode.not_enough_replicas_after_append)
    assert lab.answers == [{T0: NONE, T1: ErrorCode.not_enough_replicas_after_append}]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.not_leader_or_follower,
        ErrorCode.invalid_producer_epoch,
        ErrorCode.transaction_coordinator_fenced,
        ErrorCode.not_enough_replicas,
    ],
)
def test_each_partition_has_its_own_code(code: ErrorCode) -> None:
    lab = Lab()
    lab.add(T0, FakePartition(refusal=code))
    written = lab.add(T1, FakePartition())
    unknown = TopicPartition("gone", 3)
    lab.write(T0, unknown, T1)
    assert lab.answers == [{T0: code, unknown: ErrorCode.unknown_topic_or_partition, T1: NONE}]
    assert len(written.written) == 1


def test_nothing_to_write_and_a_partition_named_twice_are_answered_once() -> None:
    lab = Lab()
    partition = lab.add(T0, FakePartition())
    lab.write()
    lab.write(T0, T0)
    assert lab.answers == [{}, {T0: NONE}]
    assert len(partition.written) == 1


def test_a_marker_for_committed_offsets_is_written_by_the_group_coordinator() -> None:
    lab = Lab()
    partition = lab.add(OFFSETS, FakePartition(answer=None))
    lab.write(OFFSETS)
    record = TransactionMarkerRecord(producer_id=5, committed=True)
    assert lab.groups.ended == [(7, record, 42)], "the group coordinator decides when it is appended"
    assert len(partition.written) == 1
    assert lab.answers == [{OFFSETS: NONE}]


@pytest.mark.parametrize(
    ("of_groups", "code"),
    [
        (ErrorCode.coordinator_load_in_progress, ErrorCode.not_leader_or_follower),
        (ErrorCode.coordinator_not_available, ErrorCode.not_leader_or_follower),
        (ErrorCode.not_coordinator, ErrorCode.not_leader_or_follower),
        (ErrorCode.transaction_coordinator_fenced, ErrorCode.transaction_coordinator_fenced),
    ],
)
def test_codes_of_groups_are_told_as_those_of_a_leader(of_groups: ErrorCode, code: ErrorCode) -> None:
    lab = Lab(FakeGroups(of_groups))
    lab.add(OFFSETS, FakePartition())
    lab.write(OFFSETS)
    assert lab.answers == [{OFFSETS: code}]


def test_groups_are_not_asked_before_the_leader_takes_writes() -> None:
    """A failed append would end the driver of all groups of the partition."""
    lab = Lab()
    lab.add(OFFSETS, FakePartition()).takes_writes = False
    lab.write(OFFSETS)
    assert lab.groups.ended == []
    assert lab.answers == [{OFFSETS: ErrorCode.not_leader_or_follower}]
