# SPDX-License-Identifier: Apache-2.0
"""aiokafka, unmodified, against a live node: topics, produce, assigned consumers, admin."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any, TypeVar

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    ProducerFenced,
    TopicAlreadyExistsError,
)

TIMEOUT_S = 20

T = TypeVar("T")


class Clients:
    """Makes clients of one broker; all are stopped when the scenario ends."""

    def __init__(self, bootstrap: str, topic: str, stack: AsyncExitStack) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self._stack = stack

    async def _started(self, client: Any, stop: Callable[[], Awaitable[None]]) -> Any:
        self._stack.push_async_callback(stop)
        await client.start()
        return client

    async def producer(self, **options: Any) -> AIOKafkaProducer:
        client = AIOKafkaProducer(bootstrap_servers=self.bootstrap, **options)
        return await self._started(client, client.stop)

    async def admin(self) -> AIOKafkaAdminClient:
        client = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        return await self._started(client, client.close)

    async def consumer(self, *partitions: TopicPartition, **options: Any) -> AIOKafkaConsumer:
        """Begins at the beginning: a seek_to_beginning() would race with its own reset to the end."""
        settings = {"group_id": None, "auto_offset_reset": "earliest", **options}
        client = AIOKafkaConsumer(bootstrap_servers=self.bootstrap, **settings)
        await self._started(client, client.stop)
        client.assign(list(partitions))
        return client

    async def make_topic(self, partitions: int = 1, **configs: str) -> str:
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        new = NewTopic(self.topic, partitions, 1, topic_configs=settings)
        reply = await (await self.admin()).create_topics([new])
        assert [error[1] for error in reply.topic_errors] == [0]
        return self.topic


Run = Callable[[Callable[[Clients], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def run(bootstrap: str, topic: str) -> Run:
    async def scenario_with_clients(scenario: Callable[[Clients], Coroutine[Any, Any, None]]) -> None:
        async with asyncio.timeout(60), AsyncExitStack() as stack:
            await scenario(Clients(bootstrap, topic, stack))

    return lambda scenario: asyncio.run(scenario_with_clients(scenario))


async def read(consumer: AIOKafkaConsumer, count: int) -> list[Any]:
    records: list[Any] = []
    async with asyncio.timeout(TIMEOUT_S):
        while len(records) < count:
            batches = await consumer.getmany(timeout_ms=200, max_records=count - len(records))
            for batch in batches.values():
                records += batch
    return records


def values(records: list[Any]) -> list[Any]:
    return [record.value for record in records]


def test_topics_are_created_listed_described_and_deleted(run: Run) -> None:
    async def scenario(clients: Clients) -> None:
        topic = await clients.make_topic(3)
        admin = await clients.admin()
        assert topic in await admin.list_topics()
        (described,) = await admin.describe_topics([topic])
        assert len(described["partitions"]) == 3
        again = await admin.create_topics([NewTopic(topic, 1, 1)])
        assert [error[1] for error in again.topic_errors] == [TopicAlreadyExistsError.errno]
        await admin.delete_topics([topic])
        assert topic not in await admin.list_topics()

    run(scenario)


def test_partitions_are_added(run: Run) -> None:
    async def scenario(clients: Clients) -> None:
        topic = await clients.make_topic(1)
        await (await clients.admin()).create_partitions({topic: NewPartitions(3)})
        producer = await clients.producer()
        sent = await producer.send_and_wait(topic, b"v", partition=2)
        assert (sent.partition, sent.offset) == (2, 0)

    run(scenario)


@pytest.mark.row("D7")
@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_acks_setting_delivers(run: Run, acks: int | str) -> None:
    async def scenario(clients: Clients) -> None:
        topic = await clients.make_topic()
        producer = await clients.producer(acks=acks)
        sent = [str(number).encode() for number in range(100)]
        for value in sent:
            await producer.send(topic, value)
        await producer.flush()
        consumer = await clients.consumer(TopicPartition(topic, 0))
        assert values(await read(consumer, 100)) == sent

    run(scenario)


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_round_trips(run: Run, codec: str | None) -> None:
    async def scenario(clients: Clients) -> None:
        topic = await clients.make_topic()
        producer = await clients.producer(compression_type=codec, linger_ms=20)
        sent = [b"compressible " * 50 + str(number).encode() for number in range(100)]
        for value in sent:
            await producer.send(topic, value)
        await producer.flush()
        consumer = await clients.consumer(TopicPartition(topic, 0))
        assert values(await read(consumer, 100)) == sent

    run(scenario)


def test_an_idempotent_producer_delivers_in_order(run: Run) -> None:
    async def scenario(clients: Clients) -> None:
        topic = await clients.make_topic()
        producer = await clients.producer(enable_idempotence=True, max_batch_size=300)
        sends = [await producer.send(topic, str(number).encode()) for number in range(500)]
        assert [(await send).offset for send in sends] == list(range(500))
        consumer = await clients.consumer(TopicPartition(topic, 0))
        assert values(await read(consumer, 500)) == [str(number).encode() for number in range(500)]

    run(scenario)


@pytest.mark.row("D2")
def test_key_value_headers_and_timestamp_come_back_as_sent(run: Run) -> None:
    async def scenario(clients: Clients) -> None:
        topic = await clients.make_topic()
        producer = await clients.producer()
        now_ms = int(time.time() * 1000) - 5000
        headers = [("a", b"1"), ("a", b"2"), ("empty", b"")]
        await producer.send_and_wait(topic, b"v", key=b"k", headers=headers, timestamp_ms=now_ms)
        await producer.send_and_wait(topic, b"no key")
        await producer.send_and_wait(topic, None, key=b"tombstone")
        consumer = await clients.consumer(TopicPartition(topic, 0))
        first, no_key, tombstone = await read(consumer, 3)
        assert (first.key, first.value, list(first.headers)) == (b"k", b"v", headers)
        assert (first.timestamp, first.timestamp_type) == (now_ms, 0)
        assert (no_key.key, no_key.value) == (None, b"no key")
        assert (tombstone.key, tombstone.value) == (b"tombstone", None)

    run(scenario)


@pytest.mark.row("D4")
@pytest.mark.row("D6")
def test_the_key_decides_the_partition_and_send_returns_it(run: Run) -> None:
    async def scenario(clients: Clients) -> None:
        topic = await clients.make_topic(3)
        producer = await clients.producer()
        keys = [str(key).encode() for key in range(20)]
        first = [await producer.send_and_wait(topic, b"v", key=key) for key in keys]
        again = [await producer.send_and_wait(topic, b"v", key=key) for key in keys]
        assert [sent.partition for sent in first] == [sent.partition for sent in again]
        assert {sent.partition for sent in first} == {0, 1, 2}

    run(scenario)


def test_large_messages_pass_and_too_large_ones_are_refused(run: Run) -> None:
    async def scenario(clients: Clients) -> None:
        topic = await clients.make_topic()
        producer = await clients.producer(max_request_size=10_000_000)
        large = bytes(range(256)) * 3900
        await producer.send_and_wait(topic, large)
        with pytest.raises(MessageSizeTooLargeError):
            await producer.send_and_wait(topic, b"x" * 2_000_000)
        consumer = await clients.consumer(TopicPartition(topic, 0))
        assert values(await read(consumer, 1)) == [large]

    run(scenario)


def test_producing_to_an_unknown_topic_creates_it(run: Run) -> None:
    async def scenario(clients: Clients) -> None:
        producer = await clients.producer()
        await producer.send_and_wait(clients.topic, b"first")
        consumer = await clients.consumer(TopicPartition(clients.topic, 0))
        assert values(await read(consumer, 1)) == [b"first"]

    run(scenario)


@pytest.mark.row("D1")
def test_consumers_read_from_beginning_offset_timestamp_and_end(run: Run) -> None:
    async def scenario(clients: Clients) -> None:
        topic = await clients.make_topic()
        producer = await clients.producer()
        base = int(time.time() * 1000) - 100_000
        for number in range(50):
            await producer.send(topic, str(number).encode(), timestamp_ms=base + number * 100)
        await producer.flush()
        at = TopicPartition(topic, 0)
        a, b = await clients.consumer(at), await clients.consumer(at)
        b.seek(at, 30)
        assert values(await read(a, 2)) == [b"0", b"1"]
        assert values(await read(b, 2)) == [b"30", b"31"]
        assert values(await read(a, 1)) == [b"2"]
        assert await a.beginning_offsets([at]) == {at: 0}
        assert await a.end_offsets([at]) == {at: 50}
        found = (await a.offsets_for_times({at: base + 1950}))[at]
        assert (found.offset, found.timestamp) == (20, base + 2000)
        await b.seek_to_end()
        assert await b.position(at) == 50
        await producer.send_and_wait(topic, b"new")
        assert values(await read(b, 1)) == [b"new"]

    run(scenario)


def test_a_consumer_follows_pauses_and_seeks(run: Run) -> None:
    async def scenario(clients: Clients) -> None:
        topic = await clients.make_topic(3)
        producer = await clients.producer()
        partitions = [TopicPartition(topic, number) for number in range(3)]
        consumer = await clients.consumer(*partitions)

        async def send_to_each(value: bytes) -> None:
            for at in partitions:
                await producer.send_and_wait(topic, value, partition=at.partition)

        await send_to_each(b"0")
        assert values(await read(consumer, 3)) == [b"0"] * 3
        consumer.pause(partitions[1])
        await send_to_each(b"1")
        assert sorted(record.partition for record in await read(consumer, 2)) == [0, 2]
        consumer.resume(partitions[1])
        assert [record.partition for record in await read(consumer, 1)] == [1]
        consumer.seek(partitions[0], 0)
        assert values(await read(consumer, 2)) == [b"0", b"1"]

    run(scenario)


def test_an_offset_out_of_range_is_reported(run: Run) -> None:
    async def scenario(clients: Clients) -> None:
        topic = await clients.make_topic()
        at = TopicPartition(topic, 0)
        consumer = await clients.consumer(at, auto_offset_reset="none")
        consumer.seek(at, 1000)
        with pytest.raises(OffsetOutOfRangeError):
            await asyncio.wait_for(consumer.getone(), TIMEOUT_S)

    run(scenario)


def test_configs_are_described_and_altered(run: Run) -> None:
    async def scenario(clients: Clients) -> None:
        topic = await clients.make_topic(retention_ms="1000000")
        admin = await clients.admin()

        async def described() -> dict[str, str]:
            (reply,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
            return {entry[0]: entry[1] for entry in reply.resources[0][4]}

        assert (await described())["retention.ms"] == "1000000"
        change = ConfigResource(ConfigResourceType.TOPIC, topic, {"max.message.bytes": "1000"})
        await admin.alter_configs([change])
        assert (await described())["max.message.bytes"] == "1000"
        assert (await described())["retention.ms"] != "1000000"  # the old call replaces the whole set

    run(scenario)


def test_records_are_deleted(run: Run) -> None:
    async def scenario(clients: Clients) -> None:
        topic = await clients.make_topic()
        producer = await clients.producer()
        for number in range(10):
            await producer.send_and_wait(topic, str(number).encode())
        at = TopicPartition(topic, 0)
        await (await clients.admin()).delete_records({at: RecordsToDelete(before_offset=4)})
        consumer = await clients.consumer(at, auto_offset_reset="earliest")
        assert await consumer.beginning_offsets([at]) == {at: 4}
        assert values(await read(consumer, 1)) == [b"4"]

    run(scenario)


def test_committed_transactions_are_read_and_aborted_ones_are_not(run: Run) -> None:
    async def scenario(clients: Clients) -> None:
        topic = await clients.make_topic()
        producer = await clients.producer(transactional_id=topic)
        for value, end in ((b"a", producer.commit_transaction), (b"b", producer.abort_transaction)) * 2:
            await producer.begin_transaction()
            await producer.send_and_wait(topic, value)
            await producer.send_offsets_to_transaction({TopicPartition(topic, 0): 1}, topic)
            await end()
        committed = await clients.consumer(TopicPartition(topic, 0), isolation_level="read_committed")
        assert values(await read(committed, 2)) == [b"a", b"a"]
        every = await clients.consumer(TopicPartition(topic, 0))
        assert values(await read(every, 4)) == [b"a", b"b", b"a", b"b"]

    run(scenario)


def test_a_newer_producer_of_the_same_id_fences_the_older(run: Run) -> None:
    async def scenario(clients: Clients) -> None:
        topic = await clients.make_topic()
        older = await clients.producer(transactional_id=topic)
        await older.begin_transaction()
        await older.send_and_wait(topic, b"older")
        await clients.producer(transactional_id=topic)
        with pytest.raises(ProducerFenced):
            await older.commit_transaction()

    run(scenario)
