# SPDX-License-Identifier: Apache-2.0
"""InitProducerId: new producers, raised epochs, fencing, and producer ids whose epochs are used up."""

from __future__ import annotations

import pytest

from headrace.machines.machine import Now
from headrace.machines.transactions.events import AllocateProducerId, InitProducerId, Producer, ProducerReply
from headrace.machines.transactions.transactional_id import TransactionalId, TransactionSettings
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
LAST = 32766
"""The last epoch that a client may have."""
PRODUCER = Producer(7, 3)


def at(
    epoch: int, state: TransactionState = S.EMPTY, *, version: int = BEFORE_KIP_890, previous: int = 7
) -> Coordinator:
    """A coordinator that loaded producer id 7 with this epoch."""
    metadata = TransactionMetadata(
        7,
        epoch,
        TIMEOUT_MS,
        state,
        partitions("t-0") if state is S.ONGOING else frozenset(),
        START.wall_ms,
        START.wall_ms,
        previous,
        client_transaction_version=version,
    )
    return Coordinator(history=[TransactionRecord(ID, metadata)])


def test_a_new_id_asks_for_a_producer_id_and_begins_with_epoch_0() -> None:
    coordinator = Coordinator()
    token = coordinator.token()
    asked = coordinator.submit(InitProducerId(token=token, timeout_ms=TIMEOUT_MS))
    assert (asked.questions, asked.records, asked.replies) == ([AllocateProducerId()], [], [])
    coordinator.allocate()
    assert coordinator.producer_reply(token).producer == Producer(FIRST_PRODUCER_ID, 0)
    written = coordinator.metadata
    assert written == TransactionMetadata(
        FIRST_PRODUCER_ID,
        0,
        TIMEOUT_MS,
        S.EMPTY,
        frozenset(),
        START.wall_ms,
        previous_producer_id=FIRST_PRODUCER_ID,
    )


def test_the_reply_waits_until_the_record_is_committed() -> None:
    coordinator = Coordinator(commits=False)
    token = coordinator.send_init()
    coordinator.allocate()
    assert token not in coordinator.replies
    coordinator.commit()
    assert coordinator.producer_reply(token).error is ErrorCode.none


def test_requests_that_come_while_a_producer_id_is_awaited_are_concurrent() -> None:
    coordinator = at(LAST)
    first = coordinator.send_init()
    assert coordinator.init_error() is ErrorCode.concurrent_transactions
    assert coordinator.add(Producer(7, LAST), "t-0") is ErrorCode.concurrent_transactions
    assert coordinator.end(Producer(7, LAST), committed=True).error is ErrorCode.concurrent_transactions
    coordinator.allocate_all()
    assert coordinator.producer_reply(first).producer == Producer(FIRST_PRODUCER_ID, 0)


def test_without_a_producer_id_the_request_gets_the_error_and_nothing_is_written() -> None:
    coordinator = Coordinator()
    token = coordinator.send_init()
    coordinator.allocate(ErrorCode.coordinator_not_available)
    assert coordinator.producer_reply(token).error is ErrorCode.coordinator_not_available
    assert coordinator.log == []
    assert coordinator.machine.is_gone


def test_a_machine_that_waits_for_its_producer_id_is_not_gone() -> None:
    coordinator = Coordinator()
    coordinator.send_init()
    assert not coordinator.machine.is_gone


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_a_known_id_keeps_its_producer_id_and_raises_the_epoch(state: TransactionState) -> None:
    coordinator = at(3, state)
    assert coordinator.init().producer == Producer(7, 4)
    assert coordinator.metadata.state is S.EMPTY
    assert coordinator.metadata.start_timestamp == -1


@pytest.mark.parametrize(
    ("timeout_ms", "error"),
    [
        (0, ErrorCode.invalid_transaction_timeout),
        (-1, ErrorCode.invalid_transaction_timeout),
        (900_001, ErrorCode.invalid_transaction_timeout),
        (900_000, ErrorCode.none),
    ],
)
def test_the_timeout_is_positive_and_at_most_the_maximum(timeout_ms: int, error: ErrorCode) -> None:
    assert Coordinator().init(timeout_ms=timeout_ms).error is error


def test_the_maximum_is_a_setting() -> None:
    coordinator = Coordinator(lambda: TransactionalId(ID, TransactionSettings(max_timeout_ms=10)))
    assert coordinator.init(timeout_ms=11).error is ErrorCode.invalid_transaction_timeout


# A producer that goes on after an error (KIP-360).


def test_the_present_producer_gets_a_raised_epoch() -> None:
    coordinator = at(3)
    assert coordinator.init(expected=PRODUCER).producer == Producer(7, 4)


def test_the_same_request_again_gets_the_same_answer() -> None:
    coordinator = at(3)
    first = coordinator.init(expected=PRODUCER)
    assert coordinator.init(expected=PRODUCER) == first


def test_after_another_producer_began_the_same_request_is_fenced() -> None:
    coordinator = at(3)
    coordinator.init(expected=PRODUCER)
    coordinator.init()
    assert coordinator.init(expected=PRODUCER).error is ErrorCode.producer_fenced


@pytest.mark.parametrize("expected", [Producer(7, 2), Producer(7, 4), Producer(8, 3)])
def test_a_producer_that_is_not_the_present_one_is_fenced(expected: Producer) -> None:
    coordinator = at(3)
    assert coordinator.init(expected=expected) == ProducerReply(error=ErrorCode.producer_fenced)
    assert coordinator.metadata.producer_epoch == 3


def test_a_producer_of_an_id_that_expired_gets_a_new_producer_id() -> None:
    assert Coordinator().init(expected=PRODUCER).producer == Producer(FIRST_PRODUCER_ID, 0)


def test_a_repeated_raise_to_the_last_epoch_is_answered_not_raised_again() -> None:
    coordinator = at(LAST - 1)
    first = coordinator.init(expected=Producer(7, LAST - 1))
    assert first.producer == Producer(7, LAST)
    assert coordinator.init(expected=Producer(7, LAST - 1)) == first


# Epochs that are used up.


def test_after_the_last_epoch_comes_a_new_producer_id() -> None:
    coordinator = at(LAST)
    assert coordinator.init().producer == Producer(FIRST_PRODUCER_ID, 0)
    assert coordinator.metadata.previous_producer_id == 7


def test_a_producer_that_did_not_receive_its_new_producer_id_gets_it_again() -> None:
    coordinator = at(LAST)
    first = coordinator.init(expected=Producer(7, LAST))
    assert first.producer == Producer(FIRST_PRODUCER_ID, 0)
    assert coordinator.init(expected=Producer(7, LAST)) == first


def test_an_old_producer_id_with_epochs_left_is_fenced() -> None:
    coordinator = at(0, previous=6)
    assert coordinator.init(expected=Producer(6, LAST - 1)).error is ErrorCode.producer_fenced


@pytest.mark.parametrize("expected", [Producer(7, LAST - 1), Producer(7, 0)])
def test_at_the_last_epoch_a_stale_producer_is_fenced(expected: Producer) -> None:
    coordinator = at(LAST)
    assert coordinator.init(expected=expected).error is ErrorCode.producer_fenced


# A transaction that was left open.


@pytest.mark.parametrize("version", [BEFORE_KIP_890, KIP_890])
def test_an_open_transaction_is_aborted_and_its_producer_fenced_by_one_epoch(version: int) -> None:
    coordinator = at(3, S.ONGOING, version=version)
    assert coordinator.init() == ProducerReply(error=ErrorCode.concurrent_transactions)
    prepared = coordinator.metadata
    assert (prepared.state, prepared.producer_epoch) == (S.PREPARE_ABORT, 4)
    assert prepared.client_transaction_version == version, "ended by the version in its own record"
    (command,) = coordinator.sent
    assert (command.producer, command.committed) == (Producer(7, 4), False)
    assert command.transaction_version == version
    assert coordinator.init_error() is ErrorCode.concurrent_transactions
    coordinator.write_markers()
    assert coordinator.init().producer == Producer(7, 5)


@pytest.mark.parametrize("version", [BEFORE_KIP_890, KIP_890])
def test_a_producer_may_go_on_after_its_own_open_transaction(version: int) -> None:
    coordinator = at(3, S.ONGOING, version=version)
    assert coordinator.init(expected=PRODUCER).error is ErrorCode.concurrent_transactions
    coordinator.write_markers()
    assert coordinator.init(expected=PRODUCER).producer == Producer(7, 4)


def test_the_reply_of_the_abort_waits_for_the_decision() -> None:
    coordinator = at(3, S.ONGOING)
    coordinator.commits = False
    token = coordinator.send_init()
    assert token not in coordinator.replies
    assert coordinator.sent == []
    coordinator.commit()
    assert coordinator.producer_reply(token).error is ErrorCode.concurrent_transactions
    assert len(coordinator.sent) == 1


def test_aborting_a_transaction_of_kip_890_in_the_last_epoch_brings_a_new_producer_id() -> None:
    coordinator = at(LAST, S.ONGOING, version=KIP_890)
    token = coordinator.send_init()
    assert coordinator.metadata.state is S.ONGOING, "the producer id comes first"
    coordinator.allocate()
    assert coordinator.producer_reply(token).error is ErrorCode.concurrent_transactions
    assert coordinator.sent[0].producer == Producer(7, 32767)
    coordinator.write_markers()
    assert coordinator.metadata.state is S.COMPLETE_ABORT
    assert (coordinator.metadata.producer_id, coordinator.metadata.producer_epoch) == (FIRST_PRODUCER_ID, 0)
    assert coordinator.init().producer == Producer(FIRST_PRODUCER_ID, 1)


def test_aborting_an_older_transaction_in_the_last_epoch_leaves_the_new_producer_id_to_the_next_request() -> (
    None
):
    coordinator = at(LAST, S.ONGOING)
    coordinator.init()
    coordinator.write_markers()
    assert (coordinator.metadata.producer_id, coordinator.metadata.producer_epoch) == (7, 32767)
    assert coordinator.init().producer == Producer(FIRST_PRODUCER_ID, 0)


def test_a_transaction_that_was_left_with_the_highest_epoch_of_all_can_be_ended() -> None:
    """A log may have it: coordinators of Apache Kafka before 4.3 gave this epoch out (KAFKA-20090)."""
    coordinator = at(32767, S.ONGOING, version=KIP_890)
    coordinator.init()
    coordinator.write_markers()
    assert (coordinator.metadata.producer_id, coordinator.metadata.producer_epoch) == (FIRST_PRODUCER_ID, 0)


def test_an_id_begins_its_time_with_the_wall_clock_of_the_record() -> None:
    coordinator = at(3)
    coordinator.now = Now(START.monotonic_ms + 5, START.wall_ms + 500)
    coordinator.init()
    assert coordinator.metadata.last_update_timestamp == START.wall_ms + 500
