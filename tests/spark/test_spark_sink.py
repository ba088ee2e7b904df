# SPDX-License-Identifier: Apache-2.0
"""Rows to topics: columns as the official connector takes them, in batches and in streams."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

import headrace
from pyspark_headrace.client_pool import pooled_client
from pyspark_headrace.replays import BatchIdentity, fingerprint
from pyspark_headrace.writing.ledger import Published, SinkLedger
from tests.harness.live.committed import wait_for_markers
from tests.spark.spark_lab import TIMEOUT_S, Broker, message_of, repair_as_told

SCHEMA = (
    "value STRING, key BINARY, topic STRING, partition INT, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>, note STRING"
)


def written(broker: Broker, topic: str) -> list[Any]:
    wait_for_markers(broker.bootstrap, topic)
    table = headrace.read(topic, bootstrap=broker.bootstrap, columns=["key", "value", "headers", "partition"])
    return [
        (row["partition"], row["key"], row["value"], [tuple(header.values()) for header in row["headers"]])
        for row in table.read_all().to_pylist()
    ]


def test_every_row_goes_to_its_topic_and_partition(
    spark: Any, broker: Broker, new_topic: Callable[..., str]
) -> None:
    one, other = new_topic(3), new_topic(1, suffix="-other")
    rows = [
        ("a", b"k", one, 2, [("trace", b"1"), ("none", None)], "not written"),
        (None, b"k", one, 1, None, "a tombstone"),
        ("c", b"k", one, None, [], "the key decides"),
        ("d", None, other, None, None, ""),
    ]
    frame = spark.createDataFrame(rows, SCHEMA).coalesce(1)
    frame.write.format("headrace").option("bootstrap", broker.bootstrap).mode("append").save()
    by_key = [entry[0] for entry in written(broker, one) if entry[2] == b"c"]
    assert sorted(written(broker, one), key=str) == sorted(
        [
            (2, b"k", b"a", [("trace", b"1"), ("none", None)]),
            (1, b"k", None, []),
            (by_key[0], b"k", b"c", []),
        ],
        key=str,
    )
    assert written(broker, other) == [(0, None, b"d", [])]


@pytest.mark.row("D5")
def test_rows_go_to_the_partition_of_their_key_range(spark: Any, broker: Broker, topic: str) -> None:
    """The topic enforces them: a row placed by hash would be refused."""
    configs = {"headrace.partitioner.ranges": "A..M,N..Z", "headrace.partitioner": "enforce"}
    broker.admin.create_topics([NewTopic(topic, 2, 1, config=configs)])[topic].result(20)
    names = ["Anna", "Zoe", "Mia", "Nils", "Otto", "Bert"]
    frame = spark.createDataFrame([(name, name.lower()) for name in names], "key STRING, value STRING")
    options = {"bootstrap": broker.bootstrap, "topic": topic}
    frame.write.format("headrace").options(**options).mode("append").save()
    assert {entry[:2] for entry in written(broker, topic)} == {
        (0 if name < "N" else 1, name.encode()) for name in names
    }
    outside = spark.createDataFrame([("1", "v")], "key STRING, value STRING")
    writer = outside.write.format("headrace").options(**options).mode("append")
    assert "key '1' is outside every range (A..M, N..Z)" in message_of(writer.save)


def test_the_topic_option_goes_before_the_column(
    spark: Any, broker: Broker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(1)
    frame = spark.range(1000).selectExpr("CAST(id AS STRING) AS value", "'nowhere' AS topic")
    options = {"bootstrap": broker.bootstrap, "topic": topic, "compression": "zstd"}
    frame.write.format("headrace").options(**options).mode("append").save()
    assert sorted(int(entry[2]) for entry in written(broker, topic)) == list(range(1000))


def test_a_stream_copies_a_topic(
    spark: Any, broker: Broker, tmp_path: Path, new_topic: Callable[..., str]
) -> None:
    source, copy = new_topic(2), new_topic(2, suffix="-copy")
    values = broker.fill(source, 0, 300)
    reader = spark.readStream.format("headrace").option("bootstrap", broker.bootstrap)
    frame = reader.options(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="120").load()
    query = (
        frame.select("key", "value")
        .writeStream.format("headrace")
        .options(bootstrap=broker.bootstrap, topic=copy, checkpointLocation=str(tmp_path / "checkpoint"))
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(TIMEOUT_S)
    assert sorted(entry[2].decode() for entry in written(broker, copy)) == sorted(values)
    ledger = SinkLedger(str(query.id), pooled_client(broker.bootstrap), timeout_ms=20_000)
    entry = (tmp_path / "checkpoint/offsets/2").read_bytes()
    batch = BatchIdentity(number=2, offsets=fingerprint(entry))
    assert ledger.last() == Published(query=str(query.id), batch=batch), "exactly once, without being told to"


@pytest.mark.parametrize("sink", [{}, {"sinkId": "a sink"}], ids=["id of the query", "id of its own"])
def test_a_restored_checkpoint_loses_no_rows(
    spark: Any, broker: Broker, tmp_path: Path, new_topic: Callable[..., str], sink: dict[str, str]
) -> None:
    """It is refused; after the command that the error names, the query goes on behind its sink."""
    source, copy = new_topic(1), new_topic(1, suffix="-copy")
    checkpoint = tmp_path / "checkpoint"

    def run() -> None:
        reader = spark.readStream.format("headrace").option("bootstrap", broker.bootstrap)
        query = (
            reader.options(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="60")
            .load()
            .select("value")
            .writeStream.format("headrace")
            .options(bootstrap=broker.bootstrap, topic=copy, checkpointLocation=str(checkpoint), **sink)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(TIMEOUT_S)

    values = broker.fill(source, 0, 50)
    run()
    backup = shutil.copytree(checkpoint, tmp_path / "backup")
    values += broker.fill(source, 50, 200)
    run()
    shutil.rmtree(checkpoint)
    backup.rename(checkpoint)
    later = broker.fill(source, 200, 210)
    said = message_of(run)
    assert "has batch 3 of this query, but the checkpoint goes on with batch 1" in said
    assert sorted(entry[2].decode() for entry in written(broker, copy)) == sorted(values)
    repair_as_told(said)
    run()
    assert sorted(entry[2].decode() for entry in written(broker, copy)) == sorted(values + later)


def test_a_stream_appends_its_whole_result_in_complete_mode(
    spark: Any, broker: Broker, tmp_path: Path, new_topic: Callable[..., str]
) -> None:
    source, counts = new_topic(1), new_topic(1, suffix="-counts")
    broker.fill(source, 0, 30)
    reader = spark.readStream.format("headrace").option("bootstrap", broker.bootstrap)
    frame = reader.options(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="20").load()
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    query = (
        frame.groupBy("topic")
        .count()
        .selectExpr("CAST(count AS STRING) AS value")
        .writeStream.format("headrace")
        .options(bootstrap=broker.bootstrap, topic=counts, checkpointLocation=str(tmp_path / "checkpoint"))
        .outputMode("complete")
        .trigger(availableNow=True)
        .start()
    )
    spark.conf.unset("spark.sql.shuffle.partitions")
    assert query.awaitTermination(TIMEOUT_S)
    assert [entry[2] for entry in written(broker, counts)] == [b"20", b"30"]


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        (["id AS value"], {"topic": "out"}, "column 'value' is bigint, but must be binary or string"),
        (["id"], {"topic": "out"}, "there is no column 'value' to write, only id"),
        (["'v' AS value"], {}, "no topic is set"),
        (["'v' AS value"], {"topic": "out", "compresion": "zstd"}, "did you mean 'compression'?"),
        (["'v' AS value", "CAST(NULL AS STRING) AS topic"], {}, "a row has no topic"),
        (["'v' AS value"], {"topic": "nowhere"}, "topic 'nowhere' does not exist"),
    ],
)
def test_invalid_writes_are_refused(
    spark: Any, broker: Broker, columns: list[str], options: dict[str, str], said: str
) -> None:
    writer = spark.range(2).selectExpr(*columns).write.format("headrace").mode("append")
    assert said in message_of(writer.options(bootstrap=broker.bootstrap, **options).save)


def test_a_topic_cannot_be_overwritten(spark: Any, broker: Broker) -> None:
    writer = spark.range(2).selectExpr("'v' AS value").write.format("headrace").mode("overwrite")
    assert "cannot be overwritten" in message_of(writer.option("topic", "out").save)
