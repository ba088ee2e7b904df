# SPDX-License-Identifier: Apache-2.0
"""Time: transactions that take too long, on the monotonic clock, and ids that nobody uses any more."""

from __future__ import annotations

import pytest

from headrace.machines.machine import Now
from headrace.machines.transactions.events import ExpirationCheck, Producer
from headrace.machines.transactions.transactional_id import TIMEOUT
from headrace.machines.transactions.versions import BEFORE_KIP_890, KIP_890
from headrace.wire.coordinator.transaction_records import (
    TransactionMetadata,
    TransactionRecord,
    TransactionState,
)
from headrace.wire.error_codes import ErrorCode
from tests.harness.transactions.coordinator import (
    FIRST_PRODUCER_ID,
    ID,
    START,
    TIMEOUT_MS,
    Coordinator,
    partitions,
)

S = TransactionState
WEEK_MS = 7 * 24 * 60 * 60 * 1000
LAST = 32766
both_versions = pytest.mark.parametrize("version", [BEFORE_KIP_890, KIP_890])


def open_transaction(version: int) -> tuple[Coordinator, Producer]:
    coordinator = Coordinator()
    producer = coordinator.producer()
    coordinator.add(producer, "t-0", version=version)
    return coordinator, producer


def ongoing_in_the_last_epoch() -> Coordinator:
    metadata = TransactionMetadata(
        7, LAST, TIMEOUT_MS, S.ONGOING, partitions("t-0"), START.wall_ms, START.wall_ms, 7, -1, KIP_890
    )
    return Coordinator(history=[TransactionRecord(ID, metadata)])


@both_versions
def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(version: int) -> None:
    coordinator, producer = open_transaction(version)
    coordinator.advance(TIMEOUT_MS - 1)
    assert coordinator.state is S.ONGOING
    coordinator.advance(1)
    assert coordinator.state is S.PREPARE_ABORT
    (command,) = coordinator.sent
    assert command.producer == Producer(producer.producer_id, producer.epoch + 1)
    assert (command.committed, command.transaction_version) == (False, version)
    coordinator.write_markers()
    assert coordinator.add(producer, "t-0", version=version) is ErrorCode.producer_fenced


def test_a_commit_after_the_timeout_is_refused() -> None:
    coordinator, producer = open_transaction(BEFORE_KIP_890)
    coordinator.advance(TIMEOUT_MS)
    coordinator.write_markers()
    assert coordinator.end(producer, committed=True).error is ErrorCode.producer_fenced


def test_a_producer_of_kip_890_learns_its_epoch_by_aborting_what_timed_out() -> None:
    coordinator, producer = open_transaction(KIP_890)
    coordinator.advance(TIMEOUT_MS)
    coordinator.write_markers()
    commit = coordinator.end(producer, committed=True, version=KIP_890)
    assert commit.error is ErrorCode.invalid_txn_state
    abort = coordinator.end(producer, committed=False, version=KIP_890)
    assert abort.producer == Producer(producer.producer_id, producer.epoch + 1)


def test_further_partitions_do_not_extend_the_time() -> None:
    coordinator, producer = open_transaction(KIP_890)
    coordinator.advance(TIMEOUT_MS - 1)
    coordinator.add(producer, "t-1", version=KIP_890)
    coordinator.advance(1)
    assert coordinator.state is S.PREPARE_ABORT


def test_the_time_is_the_producers_own() -> None:
    coordinator = Coordinator()
    producer = coordinator.init(timeout_ms=100).producer
    coordinator.add(producer, "t-0")
    coordinator.advance(100)
    assert coordinator.state is S.PREPARE_ABORT


def test_a_transaction_that_ended_has_no_timer() -> None:
    coordinator, producer = open_transaction(KIP_890)
    assert coordinator.timers == {TIMEOUT: START.monotonic_ms + TIMEOUT_MS}
    coordinator.end(producer, committed=True, version=KIP_890)
    assert coordinator.timers == {}


def test_each_transaction_has_its_own_time() -> None:
    coordinator, producer = open_transaction(BEFORE_KIP_890)
    coordinator.advance(TIMEOUT_MS - 1)
    coordinator.end(producer, committed=True)
    coordinator.write_markers()
    coordinator.add(producer, "t-0")
    coordinator.advance(TIMEOUT_MS - 1)
    assert coordinator.state is S.ONGOING
    coordinator.advance(1)
    assert coordinator.state is S.PREPARE_ABORT


def test_a_jump_of_the_wall_clock_ends_no_transaction() -> None:
    coordinator, _ = open_transaction(KIP_890)
    coordinator.now = Now(coordinator.now.monotonic_ms, coordinator.now.wall_ms + WEEK_MS)
    coordinator.advance(TIMEOUT_MS - 1)
    assert coordinator.state is S.ONGOING


def test_the_time_begins_anew_at_a_load() -> None:
    coordinator, _ = open_transaction(KIP_890)
    coordinator.advance(TIMEOUT_MS - 1)
    coordinator.crash()
    coordinator.advance(TIMEOUT_MS - 1)
    assert coordinator.state is S.ONGOING
    coordinator.advance(1)
    assert coordinator.state is S.PREPARE_ABORT


def test_in_the_last_epoch_the_abort_waits_for_a_new_producer_id() -> None:
    coordinator = ongoing_in_the_last_epoch()
    coordinator.advance(TIMEOUT_MS)
    assert (coordinator.state, coordinator.questions) == (S.ONGOING, 1)
    assert coordinator.init_error() is ErrorCode.concurrent_transactions
    coordinator.allocate()
    assert coordinator.state is S.PREPARE_ABORT
    coordinator.write_markers()
    assert coordinator.metadata.producer_id == FIRST_PRODUCER_ID


def test_without_a_producer_id_the_abort_is_tried_again() -> None:
    coordinator = ongoing_in_the_last_epoch()
    coordinator.advance(TIMEOUT_MS)
    coordinator.allocate(ErrorCode.coordinator_not_available)
    assert coordinator.state is S.ONGOING
    coordinator.advance(1000)
    coordinator.allocate()
    assert coordinator.state is S.PREPARE_ABORT


def test_a_timeout_during_an_end_that_waits_for_its_producer_id_is_not_lost() -> None:
    coordinator = ongoing_in_the_last_epoch()
    token = coordinator.send_end(Producer(7, LAST), committed=True, version=KIP_890)
    coordinator.advance(TIMEOUT_MS)
    assert coordinator.state is S.ONGOING
    coordinator.allocate(ErrorCode.coordinator_not_available)
    assert coordinator.producer_reply(token).error is ErrorCode.coordinator_not_available
    coordinator.advance(1000)
    coordinator.allocate()
    assert coordinator.state is S.PREPARE_ABORT


def test_an_end_that_waited_for_its_producer_id_wins_over_the_timeout() -> None:
    coordinator = ongoing_in_the_last_epoch()
    token = coordinator.send_end(Producer(7, LAST), committed=True, version=KIP_890)
    coordinator.advance(TIMEOUT_MS)
    coordinator.allocate()
    assert coordinator.producer_reply(token).error is ErrorCode.none
    assert coordinator.state is S.PREPARE_COMMIT
    assert coordinator.timers == {}


# Expiration.


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_an_idle_id_expires_by_a_tombstone(state: TransactionState) -> None:
    idle = TransactionMetadata(7, 1, TIMEOUT_MS, state, frozenset(), START.wall_ms, START.wall_ms, 7)
    coordinator = Coordinator(history=[TransactionRecord(ID, idle)])
    coordinator.advance(WEEK_MS - 1)
    coordinator.submit(ExpirationCheck())
    assert coordinator.state is state
    coordinator.advance(1)
    coordinator.submit(ExpirationCheck())
    assert coordinator.log[-1] == TransactionRecord(ID, None)
    assert coordinator.machine.is_gone
    assert coordinator.add(Producer(7, 1), "t-0") is ErrorCode.invalid_producer_id_mapping
    assert coordinator.producer() == Producer(FIRST_PRODUCER_ID, 0)


@pytest.mark.parametrize("state", [S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_an_id_with_a_transaction_does_not_expire(state: TransactionState) -> None:
    busy = TransactionMetadata(7, 1, TIMEOUT_MS, state, partitions("t-0"), 0, 0, 7)
    coordinator = Coordinator(history=[TransactionRecord(ID, busy)])
    coordinator.submit(ExpirationCheck())
    assert coordinator.state is state


def test_an_id_that_waits_for_a_producer_id_does_not_expire() -> None:
    idle = TransactionMetadata(7, LAST, TIMEOUT_MS, S.EMPTY, frozenset(), 0, -1, 7)
    coordinator = Coordinator(history=[TransactionRecord(ID, idle)])
    token = coordinator.send_init()
    coordinator.submit(ExpirationCheck())
    coordinator.allocate()
    assert coordinator.producer_reply(token).producer == Producer(FIRST_PRODUCER_ID, 0)


def test_an_unknown_id_has_nothing_to_expire() -> None:
    coordinator = Coordinator()
    coordinator.submit(ExpirationCheck())
    assert coordinator.log == []


def test_a_tombstone_in_the_log_leaves_nothing() -> None:
    idle = TransactionMetadata(7, 1, TIMEOUT_MS, S.EMPTY, frozenset(), START.wall_ms, -1, 7)
    coordinator = Coordinator(history=[TransactionRecord(ID, idle), TransactionRecord(ID, None)])
    assert coordinator.machine.is_gone
