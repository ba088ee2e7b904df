# SPDX-License-Identifier: Apache-2.0
"""AddPartitionsToTxn, added and only verified, and what the version of a request makes of errors."""

from __future__ import annotations

import pytest

from headrace.machines.transactions.events import Producer
from headrace.machines.transactions.versions import (
    BEFORE_KIP_890,
    KIP_890,
    error_for,
    error_of_produce,
    error_of_txn_offset_commit,
    version_of_add_partitions,
    version_of_end,
)
from headrace.wire.api_key import ApiKey
from headrace.wire.coordinator.transaction_records import TransactionState
from headrace.wire.error_codes import ErrorCode
from tests.harness.transactions.coordinator import START, Coordinator, partitions

S = TransactionState


def test_the_first_partitions_begin_a_transaction() -> None:
    coordinator = Coordinator()
    producer = coordinator.producer()
    assert coordinator.add(producer, "t-0", "u-3", version=KIP_890) is ErrorCode.none
    written = coordinator.metadata
    assert (written.state, written.partitions) == (S.ONGOING, partitions("t-0", "u-3"))
    assert written.start_timestamp == written.last_update_timestamp == START.wall_ms
    assert written.client_transaction_version == KIP_890


def test_further_partitions_join_it_and_its_start_remains() -> None:
    coordinator = Coordinator()
    producer = coordinator.producer()
    coordinator.add(producer, "t-0")
    coordinator.advance(5)
    coordinator.add(producer, "t-1")
    written = coordinator.metadata
    assert written.partitions == partitions("t-0", "t-1")
    assert (written.start_timestamp, written.last_update_timestamp) == (START.wall_ms, START.wall_ms + 5)


def test_partitions_that_are_there_already_write_nothing() -> None:
    coordinator = Coordinator()
    producer = coordinator.producer()
    coordinator.add(producer, "t-0", "t-1")
    before = len(coordinator.log)
    assert coordinator.add(producer, "t-1") is ErrorCode.none
    assert len(coordinator.log) == before


def test_that_they_are_there_is_answered_when_it_is_committed() -> None:
    coordinator = Coordinator()
    producer = coordinator.producer()
    coordinator.commits = False
    first, second = coordinator.send_add(producer, "t-0"), coordinator.send_add(producer, "t-0")
    assert not {first, second} & coordinator.replies.keys()
    coordinator.commit()
    assert {first, second} <= coordinator.replies.keys()


def test_partitions_are_added_to_what_is_not_committed_yet() -> None:
    coordinator = Coordinator()
    producer = coordinator.producer()
    coordinator.commits = False
    coordinator.send_add(producer, "t-0")
    coordinator.send_add(producer, "t-1")
    assert coordinator.metadata.partitions == partitions("t-0", "t-1")


def test_an_unknown_id_has_no_producer() -> None:
    assert Coordinator().add(Producer(7, 0), "t-0") is ErrorCode.invalid_producer_id_mapping


def test_only_the_present_producer_may_add() -> None:
    coordinator = Coordinator()
    producer_id, _ = coordinator.producer()
    coordinator.producer()
    assert coordinator.add(Producer(producer_id + 1, 1), "t-0") is ErrorCode.invalid_producer_id_mapping
    assert coordinator.add(Producer(producer_id, 0), "t-0") is ErrorCode.producer_fenced
    assert coordinator.add(Producer(producer_id, 2), "t-0") is ErrorCode.producer_fenced
    assert coordinator.add(Producer(producer_id, 1), "t-0") is ErrorCode.none


def test_while_markers_are_missing_nothing_is_added_by_anybody() -> None:
    coordinator = Coordinator()
    producer = coordinator.producer()
    coordinator.add(producer, "t-0")
    coordinator.end(producer, committed=True)
    assert coordinator.add(producer, "t-0") is ErrorCode.concurrent_transactions
    assert coordinator.add(Producer(1, 1), "t-0") is ErrorCode.concurrent_transactions
    coordinator.write_markers()
    assert coordinator.add(producer, "t-0") is ErrorCode.none


# Verification.


def test_partitions_of_the_transaction_are_verified_one_by_one() -> None:
    coordinator = Coordinator()
    producer = coordinator.producer()
    coordinator.add(producer, "t-1")
    before = len(coordinator.log)
    assert coordinator.verify(producer, "t-0", "t-1") == (ErrorCode.transaction_abortable, ErrorCode.none)
    assert len(coordinator.log) == before


def test_verification_before_the_transaction_began_or_after_it_ended_is_abortable() -> None:
    coordinator = Coordinator()
    producer = coordinator.producer()
    assert coordinator.verify(producer, "t-0") == (ErrorCode.transaction_abortable,)
    coordinator.add(producer, "t-0")
    coordinator.end(producer, committed=True)
    coordinator.write_markers()
    assert coordinator.verify(producer, "t-0") == (ErrorCode.transaction_abortable,)


def test_verification_names_what_is_wrong_with_the_producer() -> None:
    coordinator = Coordinator()
    assert coordinator.verify(Producer(7, 0), "t-0", "t-1") == (ErrorCode.invalid_producer_id_mapping,) * 2
    producer_id, epoch = producer = coordinator.producer()
    coordinator.add(producer, "t-0")
    assert coordinator.verify(Producer(1, epoch), "t-0") == (ErrorCode.invalid_producer_id_mapping,)
    assert coordinator.verify(Producer(producer_id, epoch + 1), "t-0") == (ErrorCode.producer_fenced,)
    coordinator.end(producer, committed=True)
    assert coordinator.verify(producer, "t-0") == (ErrorCode.concurrent_transactions,)


# Versions.


def test_the_version_of_a_request_is_that_of_the_protocol() -> None:
    assert [version_of_add_partitions(version) for version in range(6)] == [BEFORE_KIP_890] * 4 + [
        KIP_890
    ] * 2
    assert [version_of_end(version) for version in range(6)] == [BEFORE_KIP_890] * 5 + [KIP_890]


@pytest.mark.parametrize(
    ("api", "first"),
    [
        (ApiKey.INIT_PRODUCER_ID, 4),
        (ApiKey.ADD_PARTITIONS_TO_TXN, 2),
        (ApiKey.ADD_OFFSETS_TO_TXN, 2),
        (ApiKey.END_TXN, 2),
    ],
)
def test_versions_that_do_not_know_producer_fenced_get_invalid_producer_epoch(
    api: ApiKey, first: int
) -> None:
    fenced = ErrorCode.producer_fenced
    assert error_for(api, first - 1, fenced) is ErrorCode.invalid_producer_epoch
    assert error_for(api, first, fenced) is fenced
    assert error_for(api, 0, ErrorCode.invalid_txn_state) is ErrorCode.invalid_txn_state


@pytest.mark.parametrize(
    ("version", "error", "told"),
    [
        (10, ErrorCode.transaction_abortable, ErrorCode.invalid_txn_state),
        (11, ErrorCode.transaction_abortable, ErrorCode.transaction_abortable),
        (11, ErrorCode.concurrent_transactions, ErrorCode.not_enough_replicas),
        (12, ErrorCode.concurrent_transactions, ErrorCode.concurrent_transactions),
        (12, ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch),
        (12, ErrorCode.not_coordinator, ErrorCode.not_enough_replicas),
        (12, ErrorCode.network_exception, ErrorCode.not_enough_replicas),
        (9, ErrorCode.coordinator_load_in_progress, ErrorCode.not_enough_replicas),
        (9, ErrorCode.coordinator_not_available, ErrorCode.not_enough_replicas),
        (9, ErrorCode.invalid_producer_id_mapping, ErrorCode.invalid_producer_id_mapping),
        (9, ErrorCode.none, ErrorCode.none),
    ],
)
def test_what_a_producer_is_told_when_its_partition_is_not_confirmed(
    version: int, error: ErrorCode, told: ErrorCode
) -> None:
    assert error_of_produce(version, error) is told


@pytest.mark.parametrize(
    ("version", "error", "told"),
    [
        (3, ErrorCode.transaction_abortable, ErrorCode.invalid_txn_state),
        (4, ErrorCode.transaction_abortable, ErrorCode.transaction_abortable),
        (4, ErrorCode.concurrent_transactions, ErrorCode.coordinator_load_in_progress),
        (5, ErrorCode.concurrent_transactions, ErrorCode.concurrent_transactions),
        (5, ErrorCode.network_exception, ErrorCode.coordinator_load_in_progress),
        (5, ErrorCode.not_coordinator, ErrorCode.coordinator_load_in_progress),
        (5, ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch),
        (3, ErrorCode.invalid_producer_id_mapping, ErrorCode.invalid_producer_id_mapping),
    ],
)
def test_what_a_producer_is_told_when_the_partition_of_its_group_is_not_confirmed(
    version: int, error: ErrorCode, told: ErrorCode
) -> None:
    assert error_of_txn_offset_commit(version, error) is told


def test_old_producers_that_commit_offsets_do_not_hear_of_a_load() -> None:
    loading = ErrorCode.coordinator_load_in_progress
    assert error_for(ApiKey.TXN_OFFSET_COMMIT, 1, loading) is ErrorCode.coordinator_not_available
    assert error_for(ApiKey.TXN_OFFSET_COMMIT, 2, loading) is loading
