# SPDX-License-Identifier: Apache-2.0
"""Markers: sent until every partition has one, again after a load, and given up only when fenced."""

from __future__ import annotations

import pytest

from headrace.machines.transactions.events import LeaderElected, MarkerOutcome, MarkersAnswered, Producer
from headrace.machines.transactions.markers import outcome_of
from headrace.machines.transactions.transactional_id import MARKERS
from headrace.machines.transactions.versions import KIP_890
from headrace.types import TopicPartition
from headrace.wire.coordinator.transaction_records import (
    TransactionMetadata,
    TransactionRecord,
    TransactionState,
)
from headrace.wire.error_codes import ErrorCode
from tests.harness.transactions.coordinator import ID, START, TIMEOUT_MS, Coordinator, partitions

S = TransactionState


def ended(*names: str) -> tuple[Coordinator, Producer]:
    """A transaction of these partitions that is decided, and its producer."""
    coordinator = Coordinator()
    producer = coordinator.producer()
    coordinator.add(producer, *names)
    coordinator.end(producer, committed=True)
    return coordinator, producer


def test_markers_may_be_answered_one_by_one() -> None:
    coordinator, _ = ended("t-0", "t-1", "u-0")
    (command,) = coordinator.sent
    assert command.partitions == partitions("t-0", "t-1", "u-0")
    coordinator.answer(command, MarkerOutcome.WRITTEN, "t-1")
    coordinator.answer(command, MarkerOutcome.WRITTEN, "u-0")
    assert coordinator.state is S.PREPARE_COMMIT
    assert coordinator.machine.partitions_without_marker == partitions("t-0")
    coordinator.answer(command, MarkerOutcome.WRITTEN, "t-0")
    assert coordinator.state is S.COMPLETE_COMMIT


def test_the_partition_of_a_deleted_topic_counts_as_written() -> None:
    coordinator, _ = ended("t-0", "t-1")
    (command,) = coordinator.sent
    coordinator.answer(command, MarkerOutcome.PARTITION_DELETED, "t-0")
    coordinator.answer(command, MarkerOutcome.WRITTEN, "t-1")
    assert coordinator.state is S.COMPLETE_COMMIT


def test_what_failed_is_sent_again_and_only_that() -> None:
    coordinator, _ = ended("t-0", "t-1")
    (first,) = coordinator.sent
    coordinator.answer(first, MarkerOutcome.RETRY, "t-0")
    coordinator.answer(first, MarkerOutcome.WRITTEN, "t-1")
    coordinator.advance(20)
    second = coordinator.sent[1]
    assert second.partitions == partitions("t-0")
    assert (second.producer, second.committed, second.number) == (first.producer, True, first.number)
    coordinator.answer(second)
    assert coordinator.state is S.COMPLETE_COMMIT
    assert not coordinator.timers


def test_it_is_tried_for_ever_with_a_backoff_that_ends_at_a_second() -> None:
    coordinator, _ = ended("t-0")
    waited = []
    for attempt in range(50):
        coordinator.answer(coordinator.sent[attempt], MarkerOutcome.RETRY)
        waited.append(coordinator.timers[MARKERS] - coordinator.now.monotonic_ms)
        coordinator.advance(waited[-1])
    assert waited[:7] == [20, 40, 80, 160, 320, 640, 1000]
    assert set(waited[7:]) == {1000}
    assert len(coordinator.sent) == 51


def test_answers_of_failure_that_come_meanwhile_do_not_put_the_retry_off() -> None:
    coordinator, _ = ended("t-0", "t-1")
    (command,) = coordinator.sent
    coordinator.answer(command, MarkerOutcome.RETRY, "t-0")
    coordinator.advance(15)
    coordinator.answer(command, MarkerOutcome.RETRY, "t-1")
    coordinator.advance(5)
    assert coordinator.sent[1].partitions == partitions("t-0", "t-1")


def test_a_new_leader_gets_its_marker_at_once_and_the_backoff_begins_anew() -> None:
    coordinator, _ = ended("t-0", "t-1")
    for attempt in range(5):
        coordinator.answer(coordinator.sent[attempt], MarkerOutcome.RETRY)
        coordinator.advance(coordinator.timers[MARKERS] - coordinator.now.monotonic_ms)
    coordinator.answer(coordinator.sent[5], MarkerOutcome.RETRY)
    elect(coordinator, 0)
    assert coordinator.sent[6].partitions == partitions("t-0")
    assert MARKERS in coordinator.timers, "for the other one"
    elect(coordinator, 1)
    assert coordinator.sent[7].partitions == partitions("t-1")
    assert MARKERS not in coordinator.timers
    coordinator.answer(coordinator.sent[6], MarkerOutcome.WRITTEN)
    coordinator.answer(coordinator.sent[7], MarkerOutcome.RETRY)
    assert coordinator.timers[MARKERS] - coordinator.now.monotonic_ms == 20


def test_a_new_leader_changes_nothing_where_no_marker_waits() -> None:
    coordinator, _ = ended("t-0", "t-1")
    (command,) = coordinator.sent
    elect(coordinator, 0)
    assert len(coordinator.sent) == 1, "it is under way"
    coordinator.answer(command, MarkerOutcome.RETRY, "t-0")
    elect(coordinator, 0, number=command.number - 1)
    assert len(coordinator.sent) == 1, "that of an earlier transaction"
    coordinator.answer(command, MarkerOutcome.FENCED, "t-1")
    elect(coordinator, 0)
    assert len(coordinator.sent) == 1, "another coordinator sends it"


def elect(coordinator: Coordinator, index: int, *, number: int | None = None) -> None:
    sending = coordinator.sent[0].number if number is None else number
    coordinator.submit(LeaderElected(number=sending, partition=TopicPartition("t", index)))


def test_a_fenced_marker_ends_the_sending() -> None:
    coordinator, producer = ended("t-0", "t-1", "t-2")
    (command,) = coordinator.sent
    coordinator.answer(command, MarkerOutcome.RETRY, "t-2")
    coordinator.answer(command, MarkerOutcome.FENCED, "t-0")
    coordinator.answer(command, MarkerOutcome.WRITTEN, "t-1", "t-2")
    coordinator.advance(10_000)
    assert len(coordinator.sent) == 1
    assert coordinator.state is S.PREPARE_COMMIT
    assert coordinator.add(producer, "t-0") is ErrorCode.concurrent_transactions
    assert coordinator.timeline[-1] == "markers refused"


def test_a_load_sends_all_markers_of_a_decided_transaction_again() -> None:
    coordinator, _ = ended("t-0", "t-1")
    (first,) = coordinator.sent
    coordinator.answer(first, MarkerOutcome.WRITTEN, "t-0")
    coordinator.crash()
    again = coordinator.sent[1]
    assert again.partitions == partitions("t-0", "t-1")
    assert (again.producer, again.committed) == (first.producer, first.committed)
    coordinator.write_markers()
    assert coordinator.state is S.COMPLETE_COMMIT


def test_a_loaded_decision_that_is_not_committed_yet_waits_for_that() -> None:
    coordinator = Coordinator()
    producer = coordinator.producer()
    coordinator.add(producer, "t-0")
    coordinator.commits = False
    coordinator.send_end(producer, committed=False)
    coordinator.crash(keep=1)
    assert coordinator.state is S.PREPARE_ABORT
    assert coordinator.sent == []
    coordinator.commit()
    assert len(coordinator.sent) == 1


def test_a_loaded_decision_without_partitions_is_completed() -> None:
    """Kafka writes the two records one after the other."""
    prepared = TransactionMetadata(
        7, 4, TIMEOUT_MS, S.PREPARE_ABORT, frozenset(), START.wall_ms, START.wall_ms, 7, -1, KIP_890
    )
    coordinator = Coordinator(history=[TransactionRecord(ID, prepared)])
    assert coordinator.states == [S.PREPARE_ABORT, S.COMPLETE_ABORT]


def test_answers_to_an_earlier_transaction_are_ignored() -> None:
    coordinator, producer = ended("t-0")
    (first,) = coordinator.sent
    coordinator.write_markers()
    coordinator.add(producer, "t-0")
    coordinator.answer(first)
    coordinator.end(producer, committed=False)
    coordinator.answer(first)
    assert coordinator.state is S.PREPARE_ABORT
    coordinator.answer(coordinator.sent[1])
    assert coordinator.state is S.COMPLETE_ABORT


def test_answers_for_partitions_that_were_not_asked_for_are_ignored() -> None:
    coordinator, _ = ended("t-0")
    number = coordinator.sent[0].number
    (other,) = partitions("u-9")
    coordinator.submit(
        MarkersAnswered(
            number=number, outcomes=[(other, MarkerOutcome.RETRY), (other, MarkerOutcome.WRITTEN)]
        )
    )
    assert coordinator.state is S.PREPARE_COMMIT
    assert not coordinator.timers


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ErrorCode.none, MarkerOutcome.WRITTEN),
        (ErrorCode.invalid_producer_epoch, MarkerOutcome.FENCED),
        (ErrorCode.transaction_coordinator_fenced, MarkerOutcome.FENCED),
        (ErrorCode.unknown_topic_or_partition, MarkerOutcome.RETRY),
        (ErrorCode.not_leader_or_follower, MarkerOutcome.RETRY),
        (ErrorCode.not_enough_replicas, MarkerOutcome.RETRY),
        (ErrorCode.not_enough_replicas_after_append, MarkerOutcome.RETRY),
        (ErrorCode.request_timed_out, MarkerOutcome.RETRY),
        (ErrorCode.kafka_storage_error, MarkerOutcome.RETRY),
        (ErrorCode.unknown_server_error, MarkerOutcome.RETRY),
    ],
)
def test_what_the_answer_of_a_leader_means(error: ErrorCode, outcome: MarkerOutcome) -> None:
    assert outcome_of(error) is outcome
