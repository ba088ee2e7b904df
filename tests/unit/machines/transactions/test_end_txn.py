# SPDX-License-Identifier: Apache-2.0
"""EndTxn of both versions: decisions, repetitions, and what is refused in which state."""

from __future__ import annotations

import pytest

from headrace.machines.machine import Reply
from headrace.machines.transactions.events import EndTxn, Producer, ProducerReply, SendMarkers
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
COMMIT, ABORT = True, False


def at(state: TransactionState, epoch: int = 3, *, version: int = KIP_890, previous: int = 7) -> Coordinator:
    metadata = TransactionMetadata(
        7,
        epoch,
        TIMEOUT_MS,
        state,
        partitions("t-0", "t-1") if state in (S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT) else frozenset(),
        START.wall_ms,
        START.wall_ms - 9,
        previous,
        client_transaction_version=version,
    )
    return Coordinator(history=[TransactionRecord(ID, metadata)])


@pytest.mark.parametrize("version", [BEFORE_KIP_890, KIP_890])
@pytest.mark.parametrize("committed", [COMMIT, ABORT])
def test_the_decision_is_a_record_and_everything_else_follows_its_commit(
    version: int, committed: bool
) -> None:
    coordinator = at(S.ONGOING)
    coordinator.commits = False
    token = coordinator.token()
    effects = coordinator.submit(
        EndTxn(token=token, producer=Producer(7, 3), committed=committed, transaction_version=version)
    )
    epoch = 4 if version == KIP_890 else 3
    prepared = TransactionMetadata(
        7,
        epoch,
        TIMEOUT_MS,
        S.PREPARE_COMMIT if committed else S.PREPARE_ABORT,
        partitions("t-0", "t-1"),
        START.wall_ms,
        START.wall_ms - 9,
        7,
        client_transaction_version=version,
    )
    told = ProducerReply(producer=Producer(7, 4)) if version == KIP_890 else ProducerReply()
    assert effects.records == [TransactionRecord(ID, prepared)]
    assert effects.replies == [Reply(token, told)]
    assert effects.commands == [
        SendMarkers(
            number=1,
            producer=Producer(7, epoch),
            committed=committed,
            transaction_version=version,
            partitions=partitions("t-0", "t-1"),
        )
    ]
    assert coordinator.replies == {}
    assert coordinator.sent == []
    coordinator.commit()
    assert coordinator.replies == {token: told}
    assert coordinator.sent == effects.commands


def test_a_decision_that_is_lost_before_it_is_committed_sent_no_marker() -> None:
    coordinator = at(S.ONGOING)
    coordinator.commits = False
    coordinator.send_end(Producer(7, 3), committed=COMMIT, version=KIP_890)
    coordinator.crash()
    assert coordinator.state is S.ONGOING
    assert coordinator.sent == []


def test_the_markers_are_followed_by_a_record_without_partitions() -> None:
    coordinator = at(S.ONGOING)
    coordinator.end(Producer(7, 3), committed=COMMIT, version=KIP_890)
    coordinator.write_markers()
    written = coordinator.metadata
    assert (written.state, written.producer_epoch) == (S.COMPLETE_COMMIT, 4)
    assert (written.partitions, written.start_timestamp) == (frozenset(), START.wall_ms - 9)


def test_an_unknown_id_has_no_producer() -> None:
    for version in (BEFORE_KIP_890, KIP_890):
        reply = Coordinator().end(Producer(7, 3), committed=COMMIT, version=version)
        assert reply.error is ErrorCode.invalid_producer_id_mapping


# What is answered without a change, by state: (producer id, epoch, commit or abort).

FENCED, STATE = ErrorCode.producer_fenced, ErrorCode.invalid_txn_state
MAPPING, CONCURRENT = ErrorCode.invalid_producer_id_mapping, ErrorCode.concurrent_transactions
DONE = ErrorCode.none


@pytest.mark.parametrize(
    ("state", "producer", "committed", "error"),
    [
        (S.EMPTY, (7, 3), COMMIT, STATE),
        (S.EMPTY, (7, 3), ABORT, STATE),
        (S.ONGOING, (8, 3), COMMIT, MAPPING),
        (S.ONGOING, (7, 2), COMMIT, FENCED),
        (S.ONGOING, (7, 4), ABORT, FENCED),
        (S.PREPARE_COMMIT, (8, 3), COMMIT, MAPPING),
        (S.PREPARE_COMMIT, (7, 2), COMMIT, FENCED),
        (S.PREPARE_COMMIT, (7, 3), COMMIT, CONCURRENT),
        (S.PREPARE_COMMIT, (7, 3), ABORT, CONCURRENT),
        (S.PREPARE_ABORT, (7, 3), ABORT, CONCURRENT),
        (S.COMPLETE_COMMIT, (7, 3), COMMIT, DONE),
        (S.COMPLETE_COMMIT, (7, 3), ABORT, STATE),
        (S.COMPLETE_COMMIT, (7, 2), COMMIT, FENCED),
        (S.COMPLETE_ABORT, (7, 3), ABORT, DONE),
        (S.COMPLETE_ABORT, (7, 3), COMMIT, STATE),
    ],
)
def test_before_kip_890(
    state: TransactionState, producer: tuple[int, int], committed: bool, error: ErrorCode
) -> None:
    coordinator = at(state)
    before = list(coordinator.log)
    reply = coordinator.end(Producer(*producer), committed=committed)
    assert reply == ProducerReply(error=error)
    assert coordinator.log == before


@pytest.mark.parametrize(
    ("state", "producer", "committed", "error"),
    [
        (S.EMPTY, (7, 3), COMMIT, STATE),
        (S.EMPTY, (7, 2), ABORT, FENCED),
        (S.EMPTY, (7, 2), COMMIT, FENCED),
        (S.EMPTY, (8, 3), ABORT, MAPPING),
        (S.ONGOING, (8, 3), COMMIT, MAPPING),
        (S.ONGOING, (7, 2), COMMIT, FENCED),
        (S.ONGOING, (7, 4), COMMIT, FENCED),
        (S.PREPARE_COMMIT, (7, 2), COMMIT, CONCURRENT),
        (S.PREPARE_COMMIT, (7, 2), ABORT, CONCURRENT),
        (S.PREPARE_COMMIT, (99, 0), COMMIT, CONCURRENT),
        (S.PREPARE_ABORT, (7, 2), ABORT, CONCURRENT),
        (S.COMPLETE_COMMIT, (7, 2), COMMIT, DONE),
        (S.COMPLETE_COMMIT, (7, 2), ABORT, STATE),
        (S.COMPLETE_COMMIT, (7, 3), COMMIT, STATE),
        (S.COMPLETE_COMMIT, (7, 1), COMMIT, FENCED),
        (S.COMPLETE_COMMIT, (7, 4), COMMIT, FENCED),
        (S.COMPLETE_ABORT, (7, 2), ABORT, DONE),
        (S.COMPLETE_ABORT, (7, 2), COMMIT, STATE),
        (S.COMPLETE_ABORT, (7, 3), COMMIT, STATE),
        (S.COMPLETE_ABORT, (8, 2), ABORT, MAPPING),
    ],
)
def test_with_kip_890(
    state: TransactionState, producer: tuple[int, int], committed: bool, error: ErrorCode
) -> None:
    coordinator = at(state)
    before = list(coordinator.log)
    reply = coordinator.end(Producer(*producer), committed=committed, version=KIP_890)
    assert reply == (
        ProducerReply(producer=Producer(7, 3)) if error is DONE else ProducerReply(error=error)
    ), "a repeated end gets the answer of the first"
    assert coordinator.log == before


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_with_kip_890_a_transaction_that_has_not_begun_may_be_aborted(state: TransactionState) -> None:
    coordinator = at(state)
    reply = coordinator.end(Producer(7, 3), committed=ABORT, version=KIP_890)
    assert reply.producer == Producer(7, 4)
    assert coordinator.states[1:] == [S.PREPARE_ABORT, S.COMPLETE_ABORT]
    assert coordinator.metadata.start_timestamp == START.wall_ms
    assert coordinator.sent == []
    again = coordinator.end(Producer(7, 3), committed=ABORT, version=KIP_890)
    assert again == reply


def test_an_end_is_repeated_with_the_same_answer_after_a_load() -> None:
    coordinator = at(S.ONGOING)
    first = coordinator.end(Producer(7, 3), committed=COMMIT, version=KIP_890)
    coordinator.crash()
    coordinator.write_markers()
    assert coordinator.end(Producer(7, 3), committed=COMMIT, version=KIP_890) == first


def test_clients_of_both_versions_may_share_an_id() -> None:
    coordinator = Coordinator()
    old = coordinator.producer()
    coordinator.add(old, "t-0", version=BEFORE_KIP_890)
    assert coordinator.end(old, committed=COMMIT, version=BEFORE_KIP_890) == ProducerReply()
    coordinator.write_markers()
    new = coordinator.producer()
    coordinator.add(new, "t-0", version=KIP_890)
    reply = coordinator.end(new, committed=COMMIT, version=KIP_890)
    assert reply.producer == Producer(new.producer_id, new.epoch + 1)
    coordinator.write_markers()
    assert coordinator.end(old, committed=COMMIT, version=BEFORE_KIP_890).error is FENCED


@pytest.mark.parametrize("committed", [COMMIT, ABORT])
def test_a_producer_fenced_by_an_older_client_does_not_get_its_epoch_by_repeating_an_end(
    committed: bool,
) -> None:
    coordinator = Coordinator()
    fenced = coordinator.producer()
    present = coordinator.producer()
    coordinator.add(present, "t-0", version=BEFORE_KIP_890)
    coordinator.end(present, committed=committed, version=BEFORE_KIP_890)
    coordinator.write_markers()
    assert coordinator.end(fenced, committed=committed, version=KIP_890).error is FENCED


def test_a_client_ends_by_the_version_of_its_request_whatever_began_the_transaction() -> None:
    coordinator = at(S.ONGOING, version=KIP_890)
    coordinator.end(Producer(7, 3), committed=COMMIT, version=BEFORE_KIP_890)
    assert coordinator.metadata.client_transaction_version == BEFORE_KIP_890
    assert coordinator.sent[0].transaction_version == BEFORE_KIP_890


# The last epoch.


def test_the_end_in_the_last_epoch_brings_a_new_producer_id() -> None:
    coordinator = at(S.ONGOING, LAST)
    token = coordinator.send_end(Producer(7, LAST), committed=COMMIT, version=KIP_890)
    assert coordinator.state is S.ONGOING
    coordinator.allocate()
    assert coordinator.producer_reply(token).producer == Producer(FIRST_PRODUCER_ID, 0)
    prepared = coordinator.metadata
    assert (prepared.producer_id, prepared.producer_epoch) == (7, 32767)
    assert prepared.next_producer_id == FIRST_PRODUCER_ID
    assert coordinator.sent[0].producer == Producer(7, 32767)
    new = Producer(FIRST_PRODUCER_ID, 0)
    assert coordinator.add(new, "t-0", version=KIP_890) is CONCURRENT, "known, but not complete"
    coordinator.write_markers()
    written = coordinator.metadata
    assert (written.producer_id, written.producer_epoch) == new
    assert (written.previous_producer_id, written.next_producer_id) == (7, -1)
    assert coordinator.add(new, "t-0", version=KIP_890) is DONE


def test_the_end_in_the_last_epoch_is_repeated_with_the_new_producer_id() -> None:
    coordinator = at(S.ONGOING, LAST)
    first = coordinator.end(Producer(7, LAST), committed=COMMIT, version=KIP_890)
    coordinator.write_markers()
    assert coordinator.end(Producer(7, LAST), committed=COMMIT, version=KIP_890) == first
    assert coordinator.end(Producer(7, LAST), committed=ABORT, version=KIP_890).error is STATE
    coordinator.crash()
    assert coordinator.end(Producer(7, LAST), committed=COMMIT, version=KIP_890) == first


def test_the_new_producer_id_survives_a_load_before_the_markers_are_written() -> None:
    coordinator = at(S.ONGOING, LAST)
    coordinator.end(Producer(7, LAST), committed=COMMIT, version=KIP_890)
    coordinator.crash()
    coordinator.write_markers()
    assert (coordinator.metadata.producer_id, coordinator.metadata.producer_epoch) == (FIRST_PRODUCER_ID, 0)


def test_without_a_new_producer_id_the_transaction_stays_open() -> None:
    coordinator = at(S.ONGOING, LAST)
    token = coordinator.send_end(Producer(7, LAST), committed=COMMIT, version=KIP_890)
    coordinator.allocate(ErrorCode.coordinator_load_in_progress)
    assert coordinator.producer_reply(token).error is ErrorCode.coordinator_load_in_progress
    assert coordinator.state is S.ONGOING
    assert coordinator.end(Producer(7, LAST), committed=COMMIT, version=KIP_890).error is DONE


def test_before_kip_890_the_last_epoch_is_kept() -> None:
    coordinator = at(S.ONGOING, LAST)
    coordinator.end(Producer(7, LAST), committed=COMMIT, version=BEFORE_KIP_890)
    coordinator.write_markers()
    assert (coordinator.metadata.producer_id, coordinator.metadata.producer_epoch) == (7, LAST)
