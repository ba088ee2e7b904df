# SPDX-License-Identifier: Apache-2.0
"""kafka-python, unmodified, against a live node: topics, produce, assigned consumers, admin."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic
from kafka.errors import (
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidTopicError,
    KafkaError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)

TIMEOUT_S = 20


@pytest.fixture
def admin(bootstrap: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


@pytest.fixture
def make_topic(admin: KafkaAdminClient, topic: str) -> Callable[..., str]:
    def make(partitions: int = 1, **configs: str) -> str:
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=settings)])
        return topic

    return make


@pytest.fixture
def make_producer(bootstrap: str) -> Iterator[Callable[..., KafkaProducer]]:
    producers: list[KafkaProducer] = []

    def make(**options: Any) -> KafkaProducer:
        producers.append(KafkaProducer(bootstrap_servers=bootstrap, **options))
        return producers[-1]

    yield make
    for producer in producers:
        producer.close(5)


@pytest.fixture
def make_consumer(bootstrap: str) -> Iterator[Callable[..., KafkaConsumer]]:
    consumers: list[KafkaConsumer] = []

    def make(*partitions: TopicPartition, **options: Any) -> KafkaConsumer:
        consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, **options)
        consumers.append(consumer)
        consumer.assign(list(partitions))
        return consumer

    yield make
    for consumer in consumers:
        consumer.close()


def read(consumer: KafkaConsumer, count: int) -> list[Any]:
    records: list[Any] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(records) < count and time.monotonic() < deadline:
        for batch in consumer.poll(200, max_records=count - len(records)).values():
            records += batch
    assert len(records) == count
    return records


def values(records: list[Any]) -> list[Any]:
    return [record.value for record in records]


def test_the_version_is_guessed_from_the_api_versions(bootstrap: str) -> None:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    assert client.config["api_version"] is None or client.config["api_version"] >= (4, 0)
    client.close()


def test_topics_are_created_listed_described_and_deleted(admin: KafkaAdminClient, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 3, 1)])
    assert topic in admin.list_topics()
    (described,) = admin.describe_topics([topic])
    assert len(described["partitions"]) == 3
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic(topic, 1, 1)])
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([topic])


def test_bad_topics_are_refused(admin: KafkaAdminClient, topic: str) -> None:
    with pytest.raises(InvalidTopicError):
        admin.create_topics([NewTopic("not/a/name", 1, 1)])
    with pytest.raises(InvalidPartitionsError):
        admin.create_topics([NewTopic(topic, 0, 1)])
    with pytest.raises(InvalidConfigurationError):
        admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"retention.ms": "soon"})])
    assert topic not in admin.list_topics()


def test_partitions_are_added(
    admin: KafkaAdminClient, make_topic: Callable[..., str], make_producer: Callable[..., KafkaProducer]
) -> None:
    topic = make_topic(1)
    admin.create_partitions({topic: NewPartitions(3)})
    metadata = make_producer().send(topic, b"v", partition=2).get(TIMEOUT_S)
    assert (metadata.partition, metadata.offset) == (2, 0)


@pytest.mark.row("D7")
@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_acks_setting_delivers(
    make_topic: Callable[..., str],
    make_producer: Callable[..., KafkaProducer],
    make_consumer: Callable[..., KafkaConsumer],
    acks: int | str,
) -> None:
    topic = make_topic()
    producer = make_producer(acks=acks, enable_idempotence=False)
    sent = [str(number).encode() for number in range(100)]
    for value in sent:
        producer.send(topic, value)
    producer.flush(TIMEOUT_S)
    consumer = make_consumer(TopicPartition(topic, 0))
    consumer.seek_to_beginning()
    assert values(read(consumer, 100)) == sent


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_round_trips(
    make_topic: Callable[..., str],
    make_producer: Callable[..., KafkaProducer],
    make_consumer: Callable[..., KafkaConsumer],
    codec: str | None,
) -> None:
    topic = make_topic()
    producer = make_producer(compression_type=codec, linger_ms=20)
    sent = [b"compressible " * 50 + str(number).encode() for number in range(100)]
    for value in sent:
        producer.send(topic, value)
    producer.flush(TIMEOUT_S)
    consumer = make_consumer(TopicPartition(topic, 0))
    consumer.seek_to_beginning()
    assert values(read(consumer, 100)) == sent


def test_an_idempotent_producer_delivers_in_order(
    make_topic: Callable[..., str],
    make_producer: Callable[..., KafkaProducer],
    make_consumer: Callable[..., KafkaConsumer],
) -> None:
    topic = make_topic()
    producer = make_producer(enable_idempotence=True, batch_size=200, linger_ms=1)
    sends = [producer.send(topic, str(number).encode()) for number in range(500)]
    producer.flush(TIMEOUT_S)
    assert [send.get(TIMEOUT_S).offset for send in sends] == list(range(500))
    consumer = make_consumer(TopicPartition(topic, 0))
    consumer.seek_to_beginning()
    assert values(read(consumer, 500)) == [str(number).encode() for number in range(500)]


@pytest.mark.row("D2")
def test_key_value_headers_and_timestamp_come_back_as_sent(
    make_topic: Callable[..., str],
    make_producer: Callable[..., KafkaProducer],
    make_consumer: Callable[..., KafkaConsumer],
) -> None:
    topic = make_topic()
    producer = make_producer()
    now_ms = int(time.time() * 1000) - 5000
    headers = [("a", b"1"), ("a", b"2"), ("empty", b"")]
    producer.send(topic, b"v", key=b"k", headers=headers, timestamp_ms=now_ms)
    producer.send(topic, b"no key")
    producer.send(topic, None, key=b"tombstone")
    producer.flush(TIMEOUT_S)
    consumer = make_consumer(TopicPartition(topic, 0))
    consumer.seek_to_beginning()
    first, no_key, tombstone = read(consumer, 3)
    assert (first.key, first.value, list(first.headers), first.timestamp) == (b"k", b"v", headers, now_ms)
    assert (no_key.key, no_key.value) == (None, b"no key")
    assert (tombstone.key, tombstone.value) == (b"tombstone", None)


@pytest.mark.row("D4")
@pytest.mark.row("D6")
def test_the_key_decides_the_partition_and_send_returns_it(
    make_topic: Callable[..., str], make_producer: Callable[..., KafkaProducer]
) -> None:
    topic = make_topic(3)
    producer = make_producer()
    first = [producer.send(topic, b"v", key=str(key).encode()).get(TIMEOUT_S) for key in range(20)]
    again = [producer.send(topic, b"v", key=str(key).encode()).get(TIMEOUT_S) for key in range(20)]
    assert [sent.partition for sent in first] == [sent.partition for sent in again]
    assert {sent.partition for sent in first} == {0, 1, 2}
    assert producer.send(topic, b"v", partition=1).get(TIMEOUT_S).partition == 1


def test_large_messages_pass_and_too_large_ones_are_refused(
    make_topic: Callable[..., str],
    make_producer: Callable[..., KafkaProducer],
    make_consumer: Callable[..., KafkaConsumer],
) -> None:
    topic = make_topic()
    producer = make_producer(max_request_size=10_000_000)
    large = bytes(range(256)) * 3900
    producer.send(topic, large).get(TIMEOUT_S)
    with pytest.raises(MessageSizeTooLargeError):
        producer.send(topic, b"x" * 2_000_000).get(TIMEOUT_S)
    consumer = make_consumer(TopicPartition(topic, 0))
    consumer.seek_to_beginning()
    assert values(read(consumer, 1)) == [large]


def test_producing_to_an_unknown_topic_creates_it(
    make_producer: Callable[..., KafkaProducer], make_consumer: Callable[..., KafkaConsumer], topic: str
) -> None:
    make_producer().send(topic, b"first").get(TIMEOUT_S)
    consumer = make_consumer(TopicPartition(topic, 0))
    consumer.seek_to_beginning()
    assert values(read(consumer, 1)) == [b"first"]


@pytest.mark.row("D1")
def test_consumers_read_from_beginning_offset_timestamp_and_end(
    make_topic: Callable[..., str],
    make_producer: Callable[..., KafkaProducer],
    make_consumer: Callable[..., KafkaConsumer],
) -> None:
    topic = make_topic()
    producer = make_producer()
    base = int(time.time() * 1000) - 100_000
    for number in range(50):
        producer.send(topic, str(number).encode(), timestamp_ms=base + number * 100)
    producer.flush(TIMEOUT_S)
    at = TopicPartition(topic, 0)
    a, b = make_consumer(at), make_consumer(at)
    a.seek_to_beginning()
    b.seek(at, 30)
    assert values(read(a, 2)) == [b"0", b"1"]
    assert values(read(b, 2)) == [b"30", b"31"]
    assert values(read(a, 1)) == [b"2"]
    assert a.beginning_offsets([at]) == {at: 0}
    assert a.end_offsets([at]) == {at: 50}
    found = a.offsets_for_times({at: base + 1950})[at]
    assert (found.offset, found.timestamp) == (20, base + 2000)
    assert a.offsets_for_times({at: base + 10_000_000})[at] is None
    b.seek_to_end()
    assert b.position(at) == 50
    producer.send(topic, b"new").get(TIMEOUT_S)
    assert values(read(b, 1)) == [b"new"]


def test_a_fetch_session_follows_pauses_and_seeks(
    make_topic: Callable[..., str],
    make_producer: Callable[..., KafkaProducer],
    make_consumer: Callable[..., KafkaConsumer],
) -> None:
    topic = make_topic(3)
    producer = make_producer()
    partitions = [TopicPartition(topic, number) for number in range(3)]
    consumer = make_consumer(*partitions, fetch_max_wait_ms=50)
    consumer.seek_to_beginning()

    def send_to_each(value: bytes) -> None:
        for at in partitions:
            producer.send(topic, value, partition=at.partition)
        producer.flush(TIMEOUT_S)

    for turn in range(3):
        send_to_each(str(turn).encode())
        assert values(read(consumer, 3)) == [str(turn).encode()] * 3
    consumer.pause(partitions[1])
    send_to_each(b"paused")
    assert sorted(record.partition for record in read(consumer, 2)) == [0, 2]
    consumer.resume(partitions[1])
    assert [record.partition for record in read(consumer, 1)] == [1]
    consumer.seek(partitions[0], 1)
    assert values(read(consumer, 3)) == [b"1", b"2", b"paused"]


def test_configs_are_described_and_altered(
    admin: KafkaAdminClient, make_topic: Callable[..., str], make_producer: Callable[..., KafkaProducer]
) -> None:
    topic = make_topic(retention_ms="1000000")
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)

    def described() -> dict[str, Any]:
        (configs,) = admin.describe_configs([resource])["topic"].values()
        return dict(configs)

    assert described()["retention.ms"]["value"] == "1000000"
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"max.message.bytes": "1000"})])
    assert described()["max.message.bytes"]["value"] == "1000"
    with pytest.raises(MessageSizeTooLargeError):
        make_producer().send(topic, b"x" * 2000).get(TIMEOUT_S)


def test_records_are_deleted(
    admin: KafkaAdminClient,
    make_topic: Callable[..., str],
    make_producer: Callable[..., KafkaProducer],
    make_consumer: Callable[..., KafkaConsumer],
) -> None:
    topic = make_topic()
    producer = make_producer()
    for number in range(10):
        producer.send(topic, str(number).encode())
    producer.flush(TIMEOUT_S)
    at = TopicPartition(topic, 0)
    admin.delete_records({at: 4})
    consumer = make_consumer(at)
    assert consumer.beginning_offsets([at]) == {at: 4}
    consumer.seek_to_beginning()
    assert values(read(consumer, 1)) == [b"4"]
    with pytest.raises(OffsetOutOfRangeError):
        admin.delete_records({at: 100})


def test_cluster_log_dirs_and_producers_are_described(
    admin: KafkaAdminClient, make_topic: Callable[..., str], make_producer: Callable[..., KafkaProducer]
) -> None:
    topic = make_topic()
    make_producer(enable_idempotence=True).send(topic, b"v").get(TIMEOUT_S)
    cluster = admin.describe_cluster()
    assert len(cluster["brokers"]) == 1
    assert cluster["cluster_id"]
    assert topic in str(admin.describe_log_dirs())
    assert str(admin.describe_producers([TopicPartition(topic, 0)]))


def test_committed_transactions_are_read_and_aborted_ones_are_not(
    make_topic: Callable[..., str],
    make_producer: Callable[..., KafkaProducer],
    make_consumer: Callable[..., KafkaConsumer],
) -> None:
    topic = make_topic()
    producer = make_producer(transactional_id=topic)
    producer.init_transactions()
    for value, end in ((b"a", producer.commit_transaction), (b"b", producer.abort_transaction)) * 2:
        producer.begin_transaction()
        producer.send(topic, value).get(TIMEOUT_S)
        producer.send_offsets_to_transaction({TopicPartition(topic, 0): OffsetAndMetadata(1, "", -1)}, topic)
        end()
    for level, wanted in (("read_committed", [b"a", b"a"]), ("read_uncommitted", [b"a", b"b", b"a", b"b"])):
        consumer = make_consumer(TopicPartition(topic, 0), isolation_level=level)
        consumer.seek_to_beginning()
        assert values(read(consumer, len(wanted))) == wanted


def test_a_newer_producer_of_the_same_id_fences_the_older(
    make_topic: Callable[..., str], make_producer: Callable[..., KafkaProducer]
) -> None:
    topic = make_topic()
    older, newer = (make_producer(transactional_id=topic) for _ in range(2))
    older.init_transactions()
    older.begin_transaction()
    older.send(topic, b"older").get(TIMEOUT_S)
    newer.init_transactions()
    with pytest.raises(KafkaError):
        older.commit_transaction()
