# SPDX-License-Identifier: Apache-2.0
"""headrace.read and headrace.write against other clients, on Headrace and on Apache Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import headrace
from headrace.client.arrow.kernels.types import HEADERS
from headrace.client.arrow.write.results import WriteFailed
from headrace.cluster.engines.kafka import KafkaEngine

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ROWS = [
    {
        "key": None if n % 4 == 0 else b"key-%d" % n,
        "value": None if n % 5 == 0 else b"value %d " % n * 9,
        "headers": [{"key": "n", "value": b"%d" % n}, {"key": "none", "value": None}] if n % 3 == 0 else [],
        "timestamp": 1_700_000_000_000 + n,
    }
    for n in range(200)
]
TABLE = pa.Table.from_pylist(
    ROWS,
    pa.schema(
        {"key": pa.binary(), "value": pa.binary(), "headers": HEADERS, "timestamp": pa.timestamp("ms")}
    ),
)
SEEN = [
    (row["timestamp"], row["key"], row["value"], [(each["key"], each["value"]) for each in row["headers"]])
    for row in ROWS
]


@pytest.fixture(scope="module", params=["headrace", pytest.param("kafka", marks=pytest.mark.compat_jvm)])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap address of one broker or the other."""
    if request.param == "headrace":
        yield request.getfixturevalue("bootstrap")
        return
    apache: KafkaEngine = request.getfixturevalue("kafka_engine")
    with apache.start(tmp_path_factory.mktemp("apache"), {}) as node:
        yield node.bootstrap


def create(bootstrap: str, topic: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)


def with_kafka_python(bootstrap: str, topic: str) -> list[Any]:
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, consumer_timeout_ms=10_000)
    consumer.assign([kafka.TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    found = []
    for each in consumer:
        found.append((each.timestamp, each.key, each.value, list(each.headers)))
        if len(found) == len(ROWS):
            break
    consumer.close()
    return found


def with_aiokafka(bootstrap: str, topic: str) -> list[Any]:
    async def collect() -> list[Any]:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap)
        await consumer.start()
        try:
            consumer.assign([aiokafka.TopicPartition(topic, 0)])
            await consumer.seek_to_beginning()
            found = [await asyncio.wait_for(consumer.getone(), 10) for _ in ROWS]
        finally:
            await consumer.stop()
        return [(each.timestamp, each.key, each.value, list(each.headers)) for each in found]

    return asyncio.run(collect())


def with_librdkafka(bootstrap: str, topic: str) -> list[Any]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "arrow"})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found = consumer.consume(len(ROWS), timeout=15)
    consumer.close()
    return [(each.timestamp()[1], each.key(), each.value(), each.headers() or []) for each in found]


@pytest.mark.parametrize("codec", CODECS)
def test_other_clients_read_what_was_written(engine: str, topic: str, codec: Any) -> None:
    create(engine, topic)
    delivered = headrace.write(
        TABLE,
        topic,
        bootstrap=engine,
        key="key",
        headers="headers",
        timestamp="timestamp",
        compression=codec,
        batch_bytes=4000,
    )
    assert (delivered.records, delivered.partitions[0].last_offset) == (200, 199)
    assert with_librdkafka(engine, topic) == SEEN
    assert with_kafka_python(engine, topic) == SEEN
    assert with_aiokafka(engine, topic) == SEEN
    back = headrace.read(topic, bootstrap=engine, columns=TABLE.schema.names).read_all()
    assert back.set_column(3, "timestamp", back["timestamp"].cast(pa.int64())).to_pylist() == ROWS


def test_hashes_agree_with_the_broker_of_either_kind(engine: str, topic: str) -> None:
    create(engine, topic, 7)
    headrace.write(TABLE, topic, bootstrap=engine, key="key")
    ours = headrace.read(topic, bootstrap=engine, columns=["key", "partition"]).read_all().to_pylist()
    producer = confluent_kafka.Producer({"bootstrap.servers": engine, "partitioner": "murmur2_random"})
    theirs: dict[bytes, int] = {}
    for row in ROWS:
        if row["key"] is not None:
            producer.produce(
                topic,
                b"",
                row["key"],
                on_delivery=lambda _, message: theirs.update({message.key(): message.partition()}),
            )
    assert producer.flush(30) == 0
    assert {row["key"]: row["partition"] for row in ours if row["key"] is not None} == theirs


def test_rows_sent_with_acks_0_arrive(engine: str, topic: str) -> None:
    create(engine, topic)
    delivered = headrace.write(TABLE, topic, bootstrap=engine, acks=0, idempotent=False, batch_bytes=4000)
    assert (delivered.records, delivered.partitions[0].last_offset) == (200, -1)
    back = headrace.read(topic, bootstrap=engine, columns=["value"]).read_all()
    assert back["value"].to_pylist() == TABLE["value"].to_pylist()
    with pytest.raises(WriteFailed, match="not acknowledged"):  # brokers hang up on what they refuse
        headrace.write(
            pa.table({"value": [b"x" * 2_000_000]}), topic, bootstrap=engine, acks=0, idempotent=False
        )


@pytest.mark.compat_jvm
def test_transactions_on_apache_kafka(kafka_engine: KafkaEngine, tmp_path: Any, topic: str) -> None:
    with kafka_engine.start(tmp_path, {}) as node:
        create(node.bootstrap, topic)
        settings = {"bootstrap.servers": node.bootstrap, "transactional.id": "arrow", "linger.ms": 0}
        producer = confluent_kafka.Producer(settings)
        producer.init_transactions(30)
        for name, end in (("one", "commit"), ("two", "abort"), ("three", "commit"), ("four", "abort")):
            producer.begin_transaction()
            for number in range(3):
                producer.produce(topic, f"{name} {number}".encode())
            producer.flush(30)
            getattr(producer, f"{end}_transaction")(30)
        committed = headrace.read(topic, bootstrap=node.bootstrap).read_all()
        everything = headrace.read(topic, bootstrap=node.bootstrap, committed_only=False).read_all()
    kept = [f"{name} {number}".encode() for name in ("one", "three") for number in range(3)]
    assert committed["value"].to_pylist() == kept
    assert everything["offset"].to_pylist() == [0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14]
