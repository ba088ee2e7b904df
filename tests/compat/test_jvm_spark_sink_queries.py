# SPDX-License-Identifier: Apache-2.0
"""The exactly-once sink in Spark's own hands on Apache Kafka: the guide's examples, failures, defaults."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import headrace
from headrace.client.errors import ClientError
from headrace.cluster.engines.kafka import KafkaEngine
from headrace.java import find_java
from headrace.pipelines.spark_session.session import spark_session
from pyspark_headrace.client_pool import pooled_client
from pyspark_headrace.replays import BatchIdentity
from pyspark_headrace.writing.ledger import Published, SinkLedger
from tests.harness.left_out import leave_out
from tests.harness.waiting import poll

pytestmark = [
    pytest.mark.compat_jvm,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

TIMEOUT_S = 300
EXAMPLES = re.findall(
    r"^```python\n(.*?)^```$",
    (Path(__file__).parents[2] / "docs/pipelines.md").read_text(),
    flags=re.MULTILINE | re.DOTALL,
)


@pytest.fixture(scope="module")
def kafka(kafka_engine: KafkaEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kafka_engine.start(tmp_path_factory.mktemp("queries"), {}) as node:
        yield node.bootstrap


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    try:
        find_java()
    except ClientError as error:
        leave_out("Spark", str(error))
    session = spark_session("local[2,2]")
    yield session
    session.stop()


def create(bootstrap: str, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(topic, 2, 1) for topic in topics]).values():
        created.result(30)


def values(bootstrap: str, topic: str, **options: Any) -> list[str]:
    found = headrace.read(topic, bootstrap=bootstrap, value="string", **options).read_all()
    return sorted(found["value"].to_pylist())


def assert_values(bootstrap: str, topic: str, wanted: list[str]) -> None:
    """A commit is for good when it returns; the partitions' leaders hear of it a moment later."""
    found = poll(lambda: values(bootstrap, topic), lambda found: len(found) >= len(wanted), timeout_s=15)
    assert found == sorted(wanted)


def last_published(bootstrap: str, sink: str) -> Published | None:
    return SinkLedger(sink, pooled_client(bootstrap), timeout_ms=30_000).last()


def test_the_examples_of_the_guide(spark: Any, kafka: str, tmp_path: Path) -> None:
    """A stream writes exactly once without being told to; a numbered write that comes again counts once."""
    create(kafka, "orders", "exact-copies", "counts")
    orders = [f"order {number}" for number in range(300)]
    table = pa.table({"key": [str(number % 7) for number in range(300)], "value": orders})
    headrace.write(table, "orders", bootstrap=kafka, key="key")
    (copying,) = (each for each in EXAMPLES if "exact-copies" in each)
    (numbered,) = (each for each in EXAMPLES if "write_changes_once" in each)
    names: dict[str, Any] = {"spark": spark, "BOOTSTRAP": kafka, "FOLDER": str(tmp_path)}
    exec(compile(copying, "docs/pipelines.md", "exec"), names)
    assert_values(kafka, "exact-copies", [order.upper() for order in orders])
    query = names["query"]
    assert query.exception() is None
    published = last_published(kafka, str(query.id))
    assert published is not None
    assert (published.query, published.batch.number) == (str(query.id), 0)

    exec(compile(numbered, "docs/pipelines.md", "exec"), names)
    changed = spark.createDataFrame([("a", 3), ("b", 4)], "key STRING, count INT")
    for batch_id in (0, 1, 1):
        names["write_changes_once"](changed, batch_id)
    assert_values(kafka, "counts", ["3", "3", "4", "4"])
    assert last_published(kafka, "counts") == Published(query="", batch=BatchIdentity(number=1))


def test_a_stream_in_foreach_batch_counts_by_its_query(
    spark: Any, kafka: str, topic: str, tmp_path: Path
) -> None:
    """A new checkpoint is a new query: its batch 0 is not taken for the one before."""
    create(kafka, topic, f"{topic}-counts")
    headrace.write(pa.table({"value": ["x"] * 5}), topic, bootstrap=kafka)

    def write(changed: Any, batch_id: int) -> None:
        rows = changed.selectExpr("CAST(value AS STRING) AS value")
        target = rows.write.format("headrace").options(bootstrap=kafka, topic=f"{topic}-counts")
        for _ in range(2):
            target.options(sinkId=topic, batchId=batch_id).mode("append").save()

    source = spark.readStream.format("headrace").options(
        bootstrap=kafka, subscribe=topic, startingOffsets="earliest"
    )
    for run in ("one", "two"):
        stream = source.load().writeStream.foreachBatch(write).trigger(availableNow=True)
        query = stream.option("checkpointLocation", str(tmp_path / run)).start()
        assert query.awaitTermination(TIMEOUT_S)
    assert_values(kafka, f"{topic}-counts", ["x"] * 10)


def test_attempts_that_fail_leave_no_trace(spark: Any, kafka: str, topic: str) -> None:
    create(kafka, topic)

    def fails(batches: Iterator[Any], attempts: int) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        yield from batches
        if context.partitionId() == 1 and context.attemptNumber() < attempts:
            raise RuntimeError("after all rows were given")

    rows = spark.range(400).selectExpr("CAST(id AS STRING) AS value").repartition(3)
    for attempts in (1, 99):
        failing = rows.mapInArrow(lambda batches, attempts=attempts: fails(batches, attempts), "value STRING")
        writer = failing.write.format("headrace").options(
            bootstrap=kafka, topic=topic, commitMessageBytes=900
        )
        if attempts == 99:
            with pytest.raises(Exception, match="after all rows were given"):
                writer.mode("append").save()
        else:
            writer.mode("append").save()
    wanted = sorted(str(number) for number in range(400))
    assert_values(kafka, topic, wanted)
    assert values(kafka, topic, committed_only=False) == wanted, "tasks do not touch the topic"
    writer = rows.write.format("headrace").options(bootstrap=kafka, topic=topic, exactlyOnce="off")
    writer.mode("append").save()
    assert_values(kafka, topic, wanted * 2)
