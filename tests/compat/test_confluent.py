# SPDX-License-Identifier: Apache-2.0
"""confluent-kafka (librdkafka), unmodified, on a live node: topics, produce, assigned consumers, admin."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from tests.harness.live.node import NodeProcess

TIMEOUT_S = 20
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def make_topic(admin: AdminClient, topic: str) -> Callable[..., str]:
    def make(partitions: int = 1, **configs: str) -> str:
        new = NewTopic(topic, partitions, 1, config={key.replace("_", "."): v for key, v in configs.items()})
        admin.create_topics([new])[topic].result(TIMEOUT_S)
        return topic

    return make


@pytest.fixture
def consume(bootstrap: str) -> Iterator[Callable[..., list[Message]]]:
    """Reads `count` records from an assignment and fails when they do not come."""
    consumers: list[Consumer] = []

    def read(count: int, *assignment: TopicPartition, **options: Any) -> list[Message]:
        settings = {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False}
        consumer = Consumer({**settings, **options})
        consumers.append(consumer)
        consumer.assign(list(assignment))
        return _poll(consumer, count)

    yield read
    for consumer in consumers:
        consumer.close()


def _poll(consumer: Consumer, count: int) -> list[Message]:
    messages: list[Message] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(messages) < count and time.monotonic() < deadline:
        for message in consumer.consume(count - len(messages), timeout=0.2):
            if message.error() is not None:
                raise KafkaException(message.error())
            messages.append(message)
    assert len(messages) == count
    return messages


def produce(bootstrap: str, topic: str, values: list[Any], **options: Any) -> list[Message]:
    """Sends each value (or produce() arguments) and returns the delivery reports."""
    reports: list[Message] = []
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, **options})
    for value in values:
        arguments = value if isinstance(value, dict) else {"value": value}
        producer.produce(topic, on_delivery=lambda error, message: reports.append(message), **arguments)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0
    errors = [report.error() for report in reports if report.error() is not None]
    if errors:
        raise KafkaException(errors[0])
    return reports


def values_of(messages: list[Message]) -> list[Any]:
    return [message.value() for message in messages]


# -- topics ------------------------------------------------------------------------------------------------


def test_topics_are_created_listed_described_and_deleted(admin: AdminClient, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(TIMEOUT_S)
    listed = admin.list_topics(timeout=TIMEOUT_S)
    assert len(listed.topics[topic].partitions) == 3
    assert listed.cluster_id
    with pytest.raises(KafkaException) as raised:
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(TIMEOUT_S)
    assert raised.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    assert topic not in admin.list_topics(timeout=TIMEOUT_S).topics
    with pytest.raises(KafkaException) as raised:
        admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    assert raised.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.mark.row("D3")
def test_a_topic_has_one_partition_by_default(admin: AdminClient, topic: str) -> None:
    admin.create_topics([NewTopic(topic)])[topic].result(TIMEOUT_S)
    assert len(admin.list_topics(timeout=TIMEOUT_S).topics[topic].partitions) == 1


@pytest.mark.parametrize(
    ("new", "code"),
    [
        (NewTopic("not/a/name", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("x" * 250, 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("too-many-replicas", 1, 3), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("odd-config", 1, 1, config={"retention.ms": "soon"}), KafkaError.INVALID_CONFIG),
        (NewTopic("unknown-config", 1, 1, config={"no.such.key": "1"}), KafkaError.INVALID_CONFIG),
    ],
)
def test_bad_topics_are_refused_with_kafkas_codes(admin: AdminClient, new: NewTopic, code: int) -> None:
    with pytest.raises(KafkaException) as raised:
        admin.create_topics([new])[new.topic].result(TIMEOUT_S)
    assert raised.value.args[0].code() == code


def test_validate_only_creates_nothing(admin: AdminClient, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 1, 1)], validate_only=True)[topic].result(TIMEOUT_S)
    assert topic not in admin.list_topics(timeout=TIMEOUT_S).topics


def test_partitions_are_added(
    admin: AdminClient, bootstrap: str, make_topic: Callable[..., str], consume: Callable[..., Any]
) -> None:
    topic = make_topic(1)
    produce(bootstrap, topic, [b"before"])
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(TIMEOUT_S)
    (report,) = produce(bootstrap, topic, [{"value": b"after", "partition": 2}])
    assert (report.partition(), report.offset()) == (2, 0)
    assert values_of(consume(1, TopicPartition(topic, 2, 0))) == [b"after"]
    with pytest.raises(KafkaException) as raised:
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(TIMEOUT_S)
    assert raised.value.args[0].code() == KafkaError.INVALID_PARTITIONS


def test_describe_cluster_and_topics(admin: AdminClient, make_topic: Callable[..., str]) -> None:
    from confluent_kafka import TopicCollection

    topic = make_topic(2)
    cluster = admin.describe_cluster().result(TIMEOUT_S)
    assert cluster.cluster_id
    assert len(cluster.nodes) == 1
    described = admin.describe_topics(TopicCollection([topic]))[topic].result(TIMEOUT_S)
    assert [partition.id for partition in described.partitions] == [0, 1]


# -- produce -----------------------------------------------------------------------------------------------


@pytest.mark.row("D7")
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_acks_setting_delivers(
    bootstrap: str, make_topic: Callable[..., str], consume: Callable[..., Any], acks: str
) -> None:
    topic = make_topic()
    values = [f"{number}".encode() for number in range(100)]
    produce(bootstrap, topic, values, acks=acks)
    assert values_of(consume(100, TopicPartition(topic, 0, OFFSET_BEGINNING))) == values


@pytest.mark.row("D6")
def test_a_send_returns_partition_and_offset(bootstrap: str, make_topic: Callable[..., str]) -> None:
    topic = make_topic(2)
    reports = produce(bootstrap, topic, [{"value": b"v", "partition": 1} for _ in range(5)], acks="all")
    assert [(report.partition(), report.offset()) for report in reports] == [(1, n) for n in range(5)]


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_round_trips(
    bootstrap: str, make_topic: Callable[..., str], consume: Callable[..., Any], codec: str
) -> None:
    topic = make_topic()
    values = [b"compressible " * 50 + str(number).encode() for number in range(200)]
    produce(bootstrap, topic, values, **{"compression.type": codec, "linger.ms": 50})
    assert values_of(consume(200, TopicPartition(topic, 0, OFFSET_BEGINNING))) == values


@pytest.mark.parametrize("codec", CODECS)
def test_a_topic_with_its_own_codec_recompresses(
    bootstrap: str, make_topic: Callable[..., str], consume: Callable[..., Any], codec: str
) -> None:
    topic = make_topic(compression_type="uncompressed" if codec == "none" else codec)
    values = [b"compressible " * 50 + str(number).encode() for number in range(50)]
    produce(bootstrap, topic, values, **{"compression.type": "lz4", "linger.ms": 50})
    assert values_of(consume(50, TopicPartition(topic, 0, OFFSET_BEGINNING))) == values


def test_an_idempotent_producer_delivers_in_order(
    bootstrap: str, make_topic: Callable[..., str], consume: Callable[..., Any]
) -> None:
    topic = make_topic()
    values = [f"{number}".encode() for number in range(2000)]
    options = {"enable.idempotence": True, "batch.num.messages": 10, "linger.ms": 1}
    reports = produce(bootstrap, topic, values, **options)
    assert [report.offset() for report in reports] == list(range(2000))
    assert values_of(consume(2000, TopicPartition(topic, 0, OFFSET_BEGINNING))) == values


@pytest.mark.row("D2")
def test_key_value_headers_and_timestamp_come_back_as_sent(
    bootstrap: str, make_topic: Callable[..., str], consume: Callable[..., Any]
) -> None:
    topic = make_topic()
    now_ms = int(time.time() * 1000) - 5000
    headers = [("a", b"1"), ("a", b"2"), ("null", None), ("empty", b"")]
    produce(
        bootstrap,
        topic,
        [
            {"key": b"k", "value": b"v", "headers": headers, "timestamp": now_ms},
            {"key": None, "value": b"no key", "timestamp": now_ms + 1},
            {"key": b"tombstone", "value": None, "timestamp": now_ms + 2},
            {"key": b"", "value": b"", "timestamp": now_ms + 3},
        ],
    )
    first, no_key, tombstone, empty = consume(4, TopicPartition(topic, 0, OFFSET_BEGINNING))
    assert (first.key(), first.value(), first.headers()) == (b"k", b"v", headers)
    assert first.timestamp() == (TIMESTAMP_CREATE_TIME, now_ms)
    assert (no_key.key(), no_key.value()) == (None, b"no key")
    assert (tombstone.key(), tombstone.value()) == (b"tombstone", None)
    assert (empty.key(), empty.value()) == (b"", b"")


@pytest.mark.row("D2")
def test_a_log_append_time_topic_stamps_by_the_nodes_clock(
    bootstrap: str, make_topic: Callable[..., str], consume: Callable[..., Any]
) -> None:
    topic = make_topic(message_timestamp_type="LogAppendTime")
    before_ms = int(time.time() * 1000)
    produce(bootstrap, topic, [{"value": b"v", "timestamp": 1000}])
    (message,) = consume(1, TopicPartition(topic, 0, OFFSET_BEGINNING))
    kind, timestamp = message.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert before_ms <= timestamp <= int(time.time() * 1000)


def test_a_timestamp_too_far_ahead_is_refused(bootstrap: str, make_topic: Callable[..., str]) -> None:
    topic = make_topic()
    with pytest.raises(KafkaException) as raised:
        produce(bootstrap, topic, [{"value": b"v", "timestamp": int(time.time() * 1000) + 7_200_000}])
    assert raised.value.args[0].code() == KafkaError.INVALID_TIMESTAMP


def test_large_messages_pass_and_too_large_ones_are_refused(
    bootstrap: str, make_topic: Callable[..., str], consume: Callable[..., Any]
) -> None:
    topic = make_topic()
    large = bytes(range(256)) * 3900
    options = {"message.max.bytes": 10_000_000}
    produce(bootstrap, topic, [large, large], **options)
    with pytest.raises(KafkaException) as raised:
        produce(bootstrap, topic, [b"x" * 2_000_000], **options)
    assert raised.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert values_of(consume(2, TopicPartition(topic, 0, OFFSET_BEGINNING))) == [large, large]


def test_a_topic_may_allow_larger_messages(
    bootstrap: str, make_topic: Callable[..., str], consume: Callable[..., Any]
) -> None:
    topic = make_topic(max_message_bytes="20000000")
    huge = bytes(range(256)) * 40_000
    produce(bootstrap, topic, [huge], **{"message.max.bytes": 20_000_000})
    assert values_of(consume(1, TopicPartition(topic, 0, OFFSET_BEGINNING))) == [huge]


@pytest.mark.row("D4")
def test_the_partition_is_named_or_the_key_decides_or_neither(
    bootstrap: str, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(3)
    named = produce(bootstrap, topic, [{"value": b"v", "partition": 2}])
    assert named[0].partition() == 2
    keys = [f"key-{number % 10}".encode() for number in range(100)]
    keyed = produce(bootstrap, topic, [{"key": key, "value": b"v"} for key in keys])
    partition_of: dict[bytes | None, set[int | None]] = {}
    for report in keyed:
        partition_of.setdefault(report.key(), set()).add(report.partition())
    assert all(len(partitions) == 1 for partitions in partition_of.values())
    spread = produce(bootstrap, topic, [b"v"] * 300, **{"sticky.partitioning.linger.ms": 0})
    assert {report.partition() for report in spread} == {0, 1, 2}


def test_producing_to_an_unknown_topic_creates_it(
    bootstrap: str, topic: str, consume: Callable[..., Any]
) -> None:
    produce(bootstrap, topic, [b"first"])
    assert values_of(consume(1, TopicPartition(topic, 0, OFFSET_BEGINNING))) == [b"first"]


def test_committed_transactions_are_read_and_aborted_ones_are_not(
    bootstrap: str, make_topic: Callable[..., str], consume: Callable[..., Any]
) -> None:
    topic = make_topic(2)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(TIMEOUT_S)
    for name, end in (("a", producer.commit_transaction), ("b", producer.abort_transaction)) * 2:
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce(topic, f"{name} {partition}", partition=partition)
        assert producer.flush(TIMEOUT_S) == 0  # an abort drops what was not sent yet
        end(TIMEOUT_S)
    for partition in (0, 1):
        start = TopicPartition(topic, partition, OFFSET_BEGINNING)
        assert values_of(consume(2, start)) == [f"a {partition}".encode()] * 2
        every = consume(4, start, **{"isolation.level": "read_uncommitted"})
        assert values_of(every)[1] == f"b {partition}".encode()


def test_offsets_of_a_transaction_count_when_it_is_committed(
    bootstrap: str, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    place = TopicPartition(topic, 0)
    member = Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(TIMEOUT_S)
    found = []
    for offset, end in ((3, producer.commit_transaction), (7, producer.abort_transaction)):
        producer.begin_transaction()
        offsets = [TopicPartition(topic, 0, offset)]
        producer.send_offsets_to_transaction(offsets, member.consumer_group_metadata(), TIMEOUT_S)
        end(TIMEOUT_S)
        found += [each.offset for each in member.committed([place], TIMEOUT_S)]
    member.close()
    assert found == [3, 3]


def test_a_newer_producer_of_the_same_id_fences_the_older(
    bootstrap: str, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    older, newer = (Producer({"bootstrap.servers": bootstrap, "transactional.id": topic}) for _ in range(2))
    older.init_transactions(TIMEOUT_S)
    older.begin_transaction()
    older.produce(topic, b"older")
    newer.init_transactions(TIMEOUT_S)
    with pytest.raises(KafkaException) as raised:
        older.commit_transaction(TIMEOUT_S)
    assert raised.value.args[0].fatal()


# -- consume -----------------------------------------------------------------------------------------------


@pytest.mark.row("D1")
def test_consumers_have_independent_positions_in_one_log(
    bootstrap: str, make_topic: Callable[..., str], consume: Callable[..., Any]
) -> None:
    topic = make_topic()
    produce(bootstrap, topic, [f"{number}".encode() for number in range(10)])
    a = consume(3, TopicPartition(topic, 0, 2))
    b = consume(3, TopicPartition(topic, 0, 6))
    assert [(message.offset(), message.value()) for message in a] == [(2, b"2"), (3, b"3"), (4, b"4")]
    assert [(message.offset(), message.value()) for message in b] == [(6, b"6"), (7, b"7"), (8, b"8")]


def test_reading_from_the_end_brings_only_what_comes_later(
    bootstrap: str, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    produce(bootstrap, topic, [b"old"])
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
    assert consumer.poll(1.0) is None
    assert consumer.position([TopicPartition(topic, 0)])[0].offset in (1, -1001)
    produce(bootstrap, topic, [b"new"])
    assert values_of(_poll(consumer, 1)) == [b"new"]
    consumer.close()


def test_reading_from_a_timestamp(bootstrap: str, make_topic: Callable[..., str]) -> None:
    topic = make_topic()
    base = int(time.time() * 1000) - 100_000
    produce(
        bootstrap,
        topic,
        [{"value": str(number).encode(), "timestamp": base + number * 100} for number in range(50)],
    )
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, base + 1950)], timeout=TIMEOUT_S)
    assert found.offset == 20
    consumer.assign([found])
    assert values_of(_poll(consumer, 2)) == [b"20", b"21"]
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S) == (0, 50)
    consumer.close()


def test_an_offset_out_of_range_resets_as_the_consumer_asks(
    bootstrap: str, make_topic: Callable[..., str], consume: Callable[..., Any]
) -> None:
    topic = make_topic()
    produce(bootstrap, topic, [b"0", b"1"])
    at = TopicPartition(topic, 0, 1000)
    assert values_of(consume(2, at, **{"auto.offset.reset": "earliest"})) == [b"0", b"1"]
    with pytest.raises(KafkaException) as raised:
        consume(1, at, **{"auto.offset.reset": "error"})
    assert raised.value.args[0].code() == KafkaError._AUTO_OFFSET_RESET


def test_an_unknown_topic_is_reported_and_not_created_by_a_consumer(bootstrap: str, topic: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    for _ in range(2):
        error = consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic].error
        assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    consumer.close()


def test_a_fetch_session_follows_pauses_and_new_partitions(
    bootstrap: str, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(4)
    everything = [TopicPartition(topic, partition, 0) for partition in range(4)]
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "fetch.wait.max.ms": 50})
    consumer.assign(everything[:3])
    for turn in range(3):
        produce(bootstrap, topic, [{"value": f"{turn}".encode(), "partition": p} for p in range(3)])
        assert sorted(values_of(_poll(consumer, 3))) == [f"{turn}".encode()] * 3
    consumer.pause([everything[1]])
    produce(bootstrap, topic, [{"value": b"paused", "partition": p} for p in range(3)])
    assert sorted(message.partition() for message in _poll(consumer, 2)) == [0, 2]
    consumer.resume([everything[1]])
    assert [message.partition() for message in _poll(consumer, 1)] == [1]
    consumer.incremental_assign([everything[3]])
    produce(bootstrap, topic, [{"value": b"last", "partition": 3}])
    assert [message.partition() for message in _poll(consumer, 1)] == [3]
    consumer.close()


def test_small_fetch_limits_still_bring_every_record(
    bootstrap: str, make_topic: Callable[..., str], consume: Callable[..., Any]
) -> None:
    topic = make_topic()
    values = [str(number).encode() * 1000 for number in range(200)]
    produce(bootstrap, topic, values, **{"batch.num.messages": 7})
    limits = {"fetch.message.max.bytes": 1000, "fetch.max.bytes": 2000, "message.max.bytes": 1000}
    at = TopicPartition(topic, 0, OFFSET_BEGINNING)
    assert values_of(consume(200, at, **limits)) == values


# -- admin -------------------------------------------------------------------------------------------------


def test_list_offsets_by_every_spec(
    admin: AdminClient, bootstrap: str, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    base = int(time.time() * 1000) - 10_000
    stamps = [base, base + 500, base + 200]
    produce(bootstrap, topic, [{"value": b"v", "timestamp": stamp} for stamp in stamps])

    def offset(spec: OffsetSpec) -> int:
        at = TopicPartition(topic, 0)
        return int(admin.list_offsets({at: spec})[at].result(TIMEOUT_S).offset)

    assert offset(OffsetSpec.earliest()) == 0
    assert offset(OffsetSpec.latest()) == 3
    assert offset(OffsetSpec.for_timestamp(base + 1)) == 1
    assert offset(OffsetSpec.max_timestamp()) == 1
    assert offset(OffsetSpec.for_timestamp(base + 501)) == -1


def test_configs_are_described_and_altered_with_effect(
    admin: AdminClient, bootstrap: str, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(retention_ms="1000000")

    def configs() -> dict[str, ConfigEntry]:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        described: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
        return described

    assert configs()["retention.ms"].value == "1000000"
    assert not configs()["retention.ms"].is_default
    assert configs()["cleanup.policy"].value == "delete"
    assert configs()["cleanup.policy"].is_default
    change = ConfigEntry("max.message.bytes", "1000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[change])
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
    assert configs()["max.message.bytes"].value == "1000"
    assert configs()["retention.ms"].value == "1000000"
    with pytest.raises(KafkaException) as raised:
        produce(bootstrap, topic, [b"x" * 2000])
    assert raised.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    back = ConfigEntry("max.message.bytes", "", incremental_operation=AlterConfigOpType.DELETE)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[back])
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
    produce(bootstrap, topic, [b"x" * 2000])


def test_alter_configs_replaces_the_whole_set(admin: AdminClient, make_topic: Callable[..., str]) -> None:
    topic = make_topic(retention_ms="1000000", segment_bytes="2000000")
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, set_config={"retention.ms": "5"})
    with pytest.warns(DeprecationWarning, match="alter_configs"):
        admin.alter_configs([resource])[resource].result(TIMEOUT_S)
    described = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    assert described["retention.ms"].value == "5"
    assert described["segment.bytes"].is_default


def test_node_configs_are_described(admin: AdminClient) -> None:
    (node_id,) = admin.list_topics(timeout=TIMEOUT_S).brokers
    resource = ConfigResource(ConfigResource.Type.BROKER, str(node_id))
    described = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    assert described["num.partitions"].value == "1"


def test_a_bad_config_is_refused(admin: AdminClient, make_topic: Callable[..., str]) -> None:
    topic = make_topic()
    entry = ConfigEntry("cleanup.policy", "shred", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    with pytest.raises(KafkaException) as raised:
        admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
    assert raised.value.args[0].code() == KafkaError.INVALID_CONFIG


def test_deleted_records_are_gone_and_the_rest_stays(
    admin: AdminClient, bootstrap: str, make_topic: Callable[..., str], consume: Callable[..., Any]
) -> None:
    topic = make_topic()
    produce(bootstrap, topic, [str(number).encode() for number in range(10)])
    at = TopicPartition(topic, 0, 4)
    (deleted,) = admin.delete_records([at]).values()
    assert deleted.result(TIMEOUT_S).low_watermark == 4
    first, *_ = consume(6, TopicPartition(topic, 0, OFFSET_BEGINNING))
    assert (first.offset(), first.value()) == (4, b"4")
    (beyond,) = admin.delete_records([TopicPartition(topic, 0, 100)]).values()
    with pytest.raises(KafkaException) as raised:
        beyond.result(TIMEOUT_S)
    assert raised.value.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE


def test_a_deleted_topic_comes_back_empty_under_a_new_id(
    admin: AdminClient, bootstrap: str, make_topic: Callable[..., str], consume: Callable[..., Any]
) -> None:
    topic = make_topic()
    produce(bootstrap, topic, [b"old"])
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    make_topic()
    produce(bootstrap, topic, [b"new"])
    (message,) = consume(1, TopicPartition(topic, 0, OFFSET_BEGINNING))
    assert (message.offset(), message.value()) == (0, b"new")


# -- over a restart ----------------------------------------------------------------------------------------


def test_a_producer_and_a_consumer_live_through_a_restart(node: NodeProcess, topic: str) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap, "enable.idempotence": True})
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "none"})
    producer.produce(topic, b"before")
    assert producer.flush(TIMEOUT_S) == 0
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert values_of(_poll(consumer, 1)) == [b"before"]
    node.restart()
    producer.produce(topic, b"after")
    assert producer.flush(TIMEOUT_S) == 0
    assert values_of(_poll(consumer, 1)) == [b"after"]
    consumer.close()
