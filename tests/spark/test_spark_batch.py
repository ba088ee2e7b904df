# SPDX-License-Identifier: Apache-2.0
"""Batch reads with a plain session: rows as they were written, bounded as asked, refused in plain words."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from headrace.cluster.engines.engine import free_ports
from tests.spark.spark_lab import Broker, message_of

START = 1_700_000_000_000
PER_PARTITION = 40


@pytest.fixture(scope="module")
def orders(broker: Broker) -> str:
    """Two partitions that librdkafka filled: keys, nulls, headers, times a second apart."""
    broker.admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result(20)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(PER_PARTITION):
        for partition in range(2):
            producer.produce(
                "orders",
                None if number % 11 == 0 else b"v-%d" % number,
                None if number % 7 == 0 else b"k-%d" % number,
                partition=partition,
                timestamp=START + number * 1000,
                headers=[("trace", b"%d" % number), ("none", None)] if number % 5 == 0 else None,
            )
    assert producer.flush(30) == 0
    return "orders"


@pytest.fixture
def read(spark: Any, broker: Broker, orders: str) -> Callable[..., Any]:
    def load(schema: str | None = None, **options: str) -> Any:
        reader = spark.read.format("headrace").option("bootstrap", broker.bootstrap)
        reader = reader if schema is None else reader.schema(schema)
        return reader.options(**{"subscribe": orders, **options}).load()

    return load


def places(frame: Any) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())


def span(partition: int, first: int, end: int) -> list[tuple[int, int]]:
    return [(partition, offset) for offset in range(first, end)]


def test_rows_are_what_was_written(read: Callable[..., Any]) -> None:
    rows = {(row.partition, row.offset): row for row in read(includeHeaders="true").collect()}
    assert sorted(rows) == span(0, 0, PER_PARTITION) + span(1, 0, PER_PARTITION)
    for (_, number), row in rows.items():
        assert row.key == (None if number % 7 == 0 else b"k-%d" % number)
        assert row.value == (None if number % 11 == 0 else b"v-%d" % number)
        assert (row.topic, row.timestampType) == ("orders", 0)
        assert row.timestamp.timestamp() * 1000 == START + number * 1000
        headers = [("trace", b"%d" % number), ("none", None)] if number % 5 == 0 else None
        assert headers == (None if row.headers is None else [tuple(header) for header in row.headers])


def test_the_columns_are_the_official_connectors(read: Callable[..., Any]) -> None:
    assert read().schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int>"
    )
    assert read(columns="offset,value").columns == ["offset", "value"]
    texts = read(schema="value STRING").collect()
    assert sorted(row.value or "" for row in texts)[-1] == "v-9"


def test_large_partitions_are_split_for_more_tasks(read: Callable[..., Any]) -> None:
    frame = read(minPartitions="5")
    assert frame.rdd.getNumPartitions() == 5
    assert len(places(frame)) == 2 * PER_PARTITION


def test_offsets_bound_a_read(read: Callable[..., Any]) -> None:
    frame = read(
        startingOffsets='{"orders": {"0": 35, "1": -1}}', endingOffsets='{"orders": {"0": 38, "1": -1}}'
    )
    assert places(frame) == span(0, 35, 38)
    assert places(read(startingOffsets='{"orders": {"0": -1, "1": 38}}')) == span(1, 38, PER_PARTITION)


def test_times_bound_a_read(read: Callable[..., Any]) -> None:
    frame = read(startingTimestamp=str(START + 30_000), endingTimestamp=str(START + 32_000))
    assert places(frame) == span(0, 30, 32) + span(1, 30, 32)
    late = str(START + 10**9)
    assert "has no record at or after" in message_of(lambda: read(startingTimestamp=late).collect())
    assert places(read(startingTimestamp=late, startingOffsetsByTimestampStrategy="latest")) == []


def test_a_read_starts_at_the_offsets_of_a_group(read: Callable[..., Any], broker: Broker) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers"})
    consumer.commit(offsets=[TopicPartition("orders", 0, 37)], asynchronous=False)
    consumer.close()
    frame = read(startingOffsets="group", group="readers", endingOffsets='{"orders": {"0": -1, "1": 1}}')
    assert places(frame) == span(0, 37, PER_PARTITION) + span(1, 0, 1)


def test_a_filter_does_not_narrow_other_uses_of_a_frame(read: Callable[..., Any], spark: Any) -> None:
    """Spark keeps one plan for all of them, that of the last filter it has pushed."""
    moment = datetime.fromtimestamp(START / 1000 + 20, UTC)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = read(pushdown="true")
        chosen = frame.where(f"partition = 1 AND offset < 30 AND timestamp >= '{moment.isoformat()}'")
        assert places(chosen) == span(1, 20, 30)
        assert len(places(frame)) == 2 * PER_PARTITION
        assert len(places(frame.where("partition = 0").union(frame))) == 3 * PER_PARTITION
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_an_empty_topic_has_no_rows(spark: Any, broker: Broker, new_topic: Callable[..., str]) -> None:
    options = {"bootstrap": broker.bootstrap, "subscribe": new_topic(2)}
    assert spark.read.format("headrace").options(**options).load().count() == 0
    options = {"bootstrap": broker.bootstrap, "subscribePattern": "no-topic-is-called-so.*"}
    nothing = spark.read.format("headrace").options(**options).load()
    assert "no topic matches subscribePattern 'no-topic-is-called-so.*'" in message_of(nothing.count)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "nowhere"}, "topic 'nowhere' does not exist; create it"),
        (
            {"startingOffsets": json.dumps({"orders": {"0": 500, "1": 0}})},
            "has no offset 500: its log has 0 to 40",
        ),
        (
            {"startingOffsets": json.dumps({"orders": {"0": 1, "1": 1, "7": 1}})},
            "partition 7 of topic 'orders', which is not",
        ),
        (
            {"startingOffsets": json.dumps({"orders": {"1": 1}})},
            "the offsets do not name partition 0 of topic 'orders'; name every partition that is read",
        ),
        (
            {"endingOffsetsByTimestamp": json.dumps({"orders": {"0": START}})},
            "the timestamps do not name partition 1 of topic 'orders'",
        ),
        ({"columns": "value,price"}, "a topic has no column 'price'"),
        ({"startingOfsets": "earliest"}, "did you mean 'startingOffsets'?"),
    ],
)
def test_invalid_reads_are_refused(read: Callable[..., Any], options: dict[str, str], said: str) -> None:
    assert said in message_of(lambda: read(**options).collect())


def test_an_unreachable_broker_is_named_by_reads_writes_and_streams(spark: Any, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    options = {"bootstrap": f"127.0.0.1:{port}", "subscribe": "orders"}
    rows = spark.range(1).selectExpr("CAST(id AS STRING) AS value").write.format("headrace").mode("append")

    def stream() -> None:
        reader = spark.readStream.format("headrace").options(**options).load()
        writer = reader.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
        writer.trigger(availableNow=True).start().awaitTermination()

    for call in (
        lambda: spark.read.format("headrace").options(**options).load().count(),
        lambda: rows.option("bootstrap", options["bootstrap"]).option("topic", "orders").save(),
        stream,
    ):
        said = message_of(call)
        assert f"cannot connect to 127.0.0.1:{port}" in said
        assert "headrace serve" in said


def test_a_schema_that_is_none_is_named(read: Callable[..., Any]) -> None:
    with pytest.raises(Exception, match="BIGNT"):  # by Spark, which reads it
        read(value="json", valueSchema="id BIGNT").count()
