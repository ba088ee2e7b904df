# SPDX-License-Identifier: Apache-2.0
"""Transactional producers of four clients, unmodified: what commits, aborts and moves a group's offsets.

On one node with both versions of the transaction protocol, and on three nodes, where leaders and the group's
coordinator ask a transaction coordinator on another node. `headrace.transaction` speaks version 2.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPartition
from kafka.structs import OffsetAndMetadata

import headrace
from tests.harness.live.cluster import LiveCluster
from tests.harness.live.node import NodeProcess
from tests.harness.waiting import poll

TIMEOUT_S = 30.0
PARTITIONS = 3


class Transaction(NamedTuple):
    """What a client does in one transaction; the offset is that of the first partition of the source."""

    values: tuple[str, ...]
    offset: int
    commits: bool


HISTORY = (
    Transaction(("a0", "a1", "a2", "a3"), 2, True),
    Transaction(("b0", "b1", "b2", "b3"), 9, False),
    Transaction(("c0", "c1"), 4, True),
    Transaction(("d0",), 8, False),
    Transaction(("e0", "e1", "e2"), 5, True),
)
COMMITTED = [value for each in HISTORY if each.commits for value in each.values]
ALL = [value for each in HISTORY for value in each.values]
LAST_OFFSET = 5

Play = Callable[[str, str], None]
"""Carries out the history as a client of the bootstrap address; the name is that of topic, group and id."""


def with_confluent(bootstrap: str, name: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name})
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(TIMEOUT_S)
    for each in HISTORY:
        producer.begin_transaction()
        for number, value in enumerate(each.values):
            producer.produce(name, value, partition=number % PARTITIONS)
        offsets = [TopicPartition(name, 0, each.offset)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), TIMEOUT_S)
        if each.commits:
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.flush(TIMEOUT_S)
            producer.abort_transaction(TIMEOUT_S)
    consumer.close()


def with_kafka_python(bootstrap: str, name: str) -> None:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=name)
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=name, enable_idempotence=True)
    producer.init_transactions()
    for each in HISTORY:
        producer.begin_transaction()
        for number, value in enumerate(each.values):
            producer.send(name, value.encode(), partition=number % PARTITIONS)
        offsets = {PythonPartition(name, 0): OffsetAndMetadata(each.offset, "", -1)}
        producer.send_offsets_to_transaction(offsets, name)
        producer.flush(TIMEOUT_S)
        if each.commits:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.close()
    consumer.close()


def with_aiokafka(bootstrap: str, name: str) -> None:
    async def play() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name) as producer:
            for each in HISTORY:
                await producer.begin_transaction()
                for number, value in enumerate(each.values):
                    await producer.send_and_wait(name, value.encode(), partition=number % PARTITIONS)
                await producer.send_offsets_to_transaction({AioPartition(name, 0): each.offset}, name)
                if each.commits:
                    await producer.commit_transaction()
                else:
                    await producer.abort_transaction()

    asyncio.run(play())


def with_headrace(bootstrap: str, name: str) -> None:
    transaction = headrace.transaction(name, bootstrap=bootstrap)
    for each in HISTORY:
        transaction.begin()
        transaction.write(pa.table({"value": each.values}), name)
        transaction.send_offsets({(name, 0): each.offset}, name)
        if each.commits:
            transaction.commit()
        else:
            transaction.abort()
    transaction.close()


CLIENTS: Mapping[str, Play] = {
    "confluent-kafka": with_confluent,
    "kafka-python": with_kafka_python,
    "aiokafka": with_aiokafka,
    "headrace": with_headrace,
}


@pytest.fixture(scope="module", params=["one node", "one node, version 1", "three nodes"])
def brokers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("transactions")
    if request.param == "three nodes":
        with LiveCluster(directory / "cluster") as cluster:
            yield cluster.bootstrap
        return
    settings = {"headrace.transaction.version": "1"} if "version 1" in request.param else {}
    with NodeProcess(directory, settings=settings) as node:
        yield node.bootstrap


def read(bootstrap: str, topic: str, isolation: str, count: int) -> list[str]:
    """Up to the end of all partitions, `count` values at least."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{topic}-reader",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    values: list[str] = []
    ended: set[int | None] = set()

    def done() -> bool:
        message = consumer.poll(0.1)
        if message is None:
            return False
        error = message.error()
        if error is None:
            values.append((message.value() or b"").decode())
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(message.partition())
        return len(ended) == PARTITIONS and len(values) >= count

    poll(done, timeout_s=TIMEOUT_S)
    consumer.close()
    return sorted(values)


def committed(bootstrap: str, group: str) -> int:
    """Waits until no transaction has offsets pending."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "isolation.level": "read_committed"}
    )
    (found,) = consumer.committed([TopicPartition(group, 0)], timeout=TIMEOUT_S)
    consumer.close()
    return int(found.offset)


@pytest.mark.parametrize("client", CLIENTS)
def test_readers_see_what_was_committed_and_the_group_goes_on_from_there(
    brokers: str, topic: str, client: str
) -> None:
    admin = AdminClient({"bootstrap.servers": brokers})
    for created in admin.create_topics([NewTopic(topic, PARTITIONS)]).values():
        created.result(TIMEOUT_S)
    CLIENTS[client](brokers, topic)
    assert read(brokers, topic, "read_committed", len(COMMITTED)) == sorted(COMMITTED)
    assert read(brokers, topic, "read_uncommitted", len(ALL)) == sorted(ALL)
    assert committed(brokers, topic) == LAST_OFFSET
