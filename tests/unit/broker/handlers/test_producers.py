# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from headrace.log.producers.state import ProducerEntry
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from tests.harness.broker.read_handlers import FakeBroker, FakePartition, topic

# InitProducerId


@pytest.mark.parametrize("version", range(6))
def test_an_idempotent_producer_gets_an_id_of_its_own_at_epoch_0(version: int) -> None:
    broker = FakeBroker()
    first = broker.ask(ApiKey.INIT_PRODUCER_ID, version, transactional_id=None, transaction_timeout=1000)
    second = broker.ask(ApiKey.INIT_PRODUCER_ID, version, transactional_id=None, transaction_timeout=1000)
    assert (first.error_code, first.producer_epoch, second.producer_epoch) == (ErrorCode.none, 0, 0)
    assert first.producer_id != second.producer_id


@pytest.mark.parametrize("version", [3, 4, 5])
def test_an_idempotent_producer_that_names_its_old_id_gets_a_new_one(version: int) -> None:
    reply = FakeBroker().ask(
        ApiKey.INIT_PRODUCER_ID, version, transactional_id=None, producer_id=5, producer_epoch=7
    )
    assert (reply.error_code, reply.producer_id, reply.producer_epoch) == (ErrorCode.none, 1000, 0)


@pytest.mark.parametrize(("producer_id", "epoch"), [(5, -1), (-1, 7)])
def test_half_an_identity_is_an_invalid_request(producer_id: int, epoch: int) -> None:
    reply = FakeBroker().ask(
        ApiKey.INIT_PRODUCER_ID, 5, transactional_id=None, producer_id=producer_id, producer_epoch=epoch
    )
    assert reply.error_code is ErrorCode.invalid_request


# DescribeProducers


def test_producers_of_a_partition() -> None:
    entry = ProducerEntry(77, epoch=2)
    entry.last_sequence, entry.last_timestamp = 9, 1234
    broker = FakeBroker([topic("t")], partitions=[FakePartition("t", 0, producers=[entry])])
    reply = broker.ask(ApiKey.DESCRIBE_PRODUCERS, 0, topics=[{"name": "t", "partition_indexes": [0, 1]}])
    known, unknown = reply.topics[0].partitions
    (producer,) = known.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (77, 2, 9)
    assert (producer.last_timestamp, producer.coordinator_epoch) == (1234, -1)
    assert producer.current_txn_start_offset == -1
    assert (unknown.error_code, unknown.active_producers) == (ErrorCode.unknown_topic_or_partition, ())
