from __future__ import annotations

import logging
from typing import Any

import pytest
from read_side import FakeBroker, FakePartition, topic

from headrace.broker.handlers import producers
from headrace.broker.handlers.producers import describe_producers, find_coordinator, init_producer_id
from headrace.log.producer_state import ProducerEntry
from headrace.wire.error_codes import ErrorCode

GROUP, TRANSACTION, SHARE = 0, 1, 2


# InitProducerId


@pytest.mark.parametrize("version", range(6))
def test_an_idempotent_producer_gets_an_id_of_its_own_at_epoch_0(version: int) -> None:
    broker = FakeBroker()
    first = broker.ask(init_producer_id, version, transactional_id=None, transaction_timeout=1000)
    second = broker.ask(init_producer_id, version, transactional_id=None, transaction_timeout=1000)
    assert (first.error_code, first.producer_epoch, second.producer_epoch) == (ErrorCode.none, 0, 0)
    assert first.producer_id != second.producer_id


@pytest.mark.parametrize("version", [3, 4, 5])
def test_an_idempotent_producer_that_names_its_old_id_gets_a_new_one(version: int) -> None:
    reply = FakeBroker().ask(
        init_producer_id, version, transactional_id=None, producer_id=5, producer_epoch=7
    )
    assert (reply.error_code, reply.producer_id, reply.producer_epoch) == (ErrorCode.none, 1000, 0)


@pytest.mark.parametrize(("producer_id", "epoch"), [(5, -1), (-1, 7)])
def test_half_an_identity_is_an_invalid_request(producer_id: int, epoch: int) -> None:
    reply = FakeBroker().ask(
        init_producer_id, 5, transactional_id=None, producer_id=producer_id, producer_epoch=epoch
    )
    assert reply.error_code is ErrorCode.invalid_request


@pytest.mark.parametrize(
    ("transactional_id", "error"),
    [("x", ErrorCode.transactional_id_authorization_failed), ("", ErrorCode.invalid_request)],
)
def test_a_transactional_producer_is_refused(transactional_id: str, error: ErrorCode) -> None:
    broker = FakeBroker()
    reply = broker.ask(init_producer_id, 4, transactional_id=transactional_id)
    assert (reply.error_code, reply.producer_id, reply.producer_epoch) == (error, -1, -1)
    assert broker.metrics.errors == {(22, error): 1}


# FindCoordinator


def found(version: int, key_type: int, key: str = "x") -> Any:
    fields: dict[str, Any] = {"coordinator_keys": [key]} if version >= 4 else {"key": key}
    if version >= 1:
        fields["key_type"] = key_type
    reply = FakeBroker().ask(find_coordinator, version, **fields)
    if version < 4:
        return reply
    (answer,) = reply.coordinators
    assert answer.key == key
    return answer


@pytest.mark.parametrize("version", range(1, 7))
def test_transactions_are_refused_with_a_code_that_no_client_retries_and_a_reason(version: int) -> None:
    answer = found(version, TRANSACTION)
    assert answer.error_code is ErrorCode.cluster_authorization_failed
    assert "transactions are not served" in answer.error_message
    assert (answer.node_id, answer.port) == (-1, -1)


@pytest.mark.parametrize("version", [0, 1, 3, 4, 5, 6])
def test_groups_are_refused_with_a_code_that_no_client_retries(version: int) -> None:
    answer = found(version, GROUP)
    assert answer.error_code is ErrorCode.unsupported_version
    if version >= 1:
        assert "groups are not served" in answer.error_message


def test_librdkafka_asks_also_when_it_only_assigns_so_its_version_is_given_this_node() -> None:
    answer = found(2, GROUP)
    assert answer.error_code is ErrorCode.none
    assert answer.node_id >= 0


@pytest.mark.parametrize("key_type", [SHARE, 9])
def test_other_coordinators_do_not_exist(key_type: int) -> None:
    assert found(6, key_type).error_code is ErrorCode.invalid_request


def test_every_key_of_a_batch_is_answered() -> None:
    reply = FakeBroker().ask(find_coordinator, 6, key_type=TRANSACTION, coordinator_keys=["a", "b"])
    assert [answer.key for answer in reply.coordinators] == ["a", "b"]


def test_the_node_logs_once_which_group_it_could_not_serve(caplog: pytest.LogCaptureFixture) -> None:
    producers._log_once.cache_clear()
    broker = FakeBroker()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            broker.ask(find_coordinator, 2, key="eager\x1b[31m", key_type=GROUP)
    (record,) = caplog.records
    assert "groups are not served" in record.getMessage()
    assert "\x1b" not in record.getMessage()


# DescribeProducers


def test_producers_of_a_partition() -> None:
    entry = ProducerEntry(77, epoch=2)
    entry.last_sequence, entry.last_timestamp = 9, 1234
    broker = FakeBroker([topic("t")], partitions=[FakePartition("t", 0, producers=[entry])])
    reply = broker.ask(describe_producers, 0, topics=[{"name": "t", "partition_indexes": [0, 1]}])
    known, unknown = reply.topics[0].partitions
    (producer,) = known.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (77, 2, 9)
    assert (producer.last_timestamp, producer.coordinator_epoch) == (1234, -1)
    assert producer.current_txn_start_offset == -1
    assert (unknown.error_code, unknown.active_producers) == (ErrorCode.unknown_topic_or_partition, ())
