# SPDX-License-Identifier: Apache-2.0
"""The Spark source and sink on Apache Kafka: transactions, their markers, and lag in Kafka's own tools."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import headrace
from headrace.client.errors import ClientError
from headrace.cluster.engines.kafka import KafkaEngine
from headrace.java import find_java
from headrace.pipelines.spark_session.session import spark_session
from tests.compat.java_tool import JavaTool
from tests.harness.left_out import leave_out

pytestmark = [pytest.mark.compat_jvm, pytest.mark.filterwarnings("ignore::FutureWarning")]

TIMEOUT_S = 120


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    try:
        find_java()
    except ClientError as error:
        leave_out("Spark", str(error))
    session = spark_session("local[2]")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def apache(kafka_engine: KafkaEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
    with kafka_engine.start(tmp_path_factory.mktemp("apache"), settings) as node:
        yield node.bootstrap


class Transactions:
    """A producer whose records are numbered, so that tests can say which ones count."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"of-{topic}"})
        self._producer.init_transactions(30)
        self._topic = topic

    def begin(self, first: int, end: int) -> list[int]:
        self._producer.begin_transaction()
        for number in range(first, end):
            self._producer.produce(self._topic, b"%d" % number, partition=number % 2)
        self._producer.flush(30)
        return list(range(first, end))

    def commit(self) -> None:
        self._producer.commit_transaction(30)

    def abort(self) -> None:
        self._producer.abort_transaction(30)


def create(bootstrap: str, topic: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(30)
    return topic


def numbers(frame: Any) -> list[int]:
    return sorted(int(row.value) for row in frame.select("value").collect())


def test_transactions_are_read_as_they_ended_and_lag_shows_in_kafkas_tools(
    spark: Any, apache: str, topic: str, tmp_path: Path, kafka_engine: KafkaEngine
) -> None:
    create(apache, topic)
    transactions = Transactions(apache, topic)
    counted = transactions.begin(0, 20)
    transactions.commit()
    dropped = transactions.begin(20, 30)
    transactions.abort()
    seen: list[int] = []

    def read_on() -> list[int]:
        """Up to the last stable offset, whatever stands before it: markers and aborted records too."""
        seen.clear()
        reader = spark.readStream.format("headrace").options(bootstrap=apache, subscribe=topic, group=topic)
        query = (
            reader.option("startingOffsets", "earliest")
            .load()
            .writeStream.foreachBatch(lambda frame, _: seen.extend(numbers(frame)))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(TIMEOUT_S)
        return sorted(seen)

    assert read_on() == counted
    assert lags(kafka_engine, apache, topic) == [0, 0]

    open_ones = transactions.begin(30, 40)
    batch = spark.read.format("headrace").options(bootstrap=apache, subscribe=topic)
    assert numbers(batch.load()) == counted
    uncommitted = batch.option("isolation", "read_uncommitted")
    assert numbers(uncommitted.load()) == counted + dropped + open_ones
    assert read_on() == []
    assert sum(lags(kafka_engine, apache, topic)) == len(open_ones)
    transactions.commit()
    assert read_on() == open_ones
    assert lags(kafka_engine, apache, topic) == [0, 0]


def lags(engine: KafkaEngine, bootstrap: str, group: str) -> list[int]:
    """As kafka-consumer-groups prints them."""
    printed = JavaTool(engine, bootstrap)("consumer-groups", "--describe", "--group", group)
    rows = [line.split() for line in printed.splitlines() if line.startswith(group)]
    return [int(row[5]) for row in rows]


def test_rows_are_written_to_apache_kafka(spark: Any, apache: str, topic: str) -> None:
    create(apache, topic)
    frame = spark.range(500).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")
    options = {"bootstrap": apache, "topic": topic, "compression": "lz4"}
    frame.write.format("headrace").options(**options).mode("append").save()
    written = headrace.read(topic, bootstrap=apache, columns=["key", "value"], value="string").read_all()
    assert sorted(map(int, written["value"].to_pylist())) == list(range(500))
