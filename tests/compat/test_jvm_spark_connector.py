# SPDX-License-Identifier: Apache-2.0
"""Spark's own Kafka connector on Headrace, unmodified; our source under the PySpark it can be had for."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import headrace
from bench.spark.environment import why_connector_is_missing
from bench.spark.processes import OLD, SparkProcess
from headrace.cluster.engines.engine import EngineError
from tests.harness.left_out import leave_out

pytestmark = [pytest.mark.compat_jvm, pytest.mark.timeout(900)]

ROWS = 2000


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkProcess]:
    """One session with the connector's jars; our source is found in it as well."""
    reason = why_connector_is_missing()
    if reason is not None:
        leave_out("Spark's Kafka connector", reason)
    process = SparkProcess(OLD, connector=True)
    yield process
    process.stop()


@pytest.fixture
def filled(bootstrap: str, topic: str) -> dict[str, int]:
    """The test's topic with rows in it, and what they add up to."""
    create(bootstrap, topic)
    keys = [f"key {number}" for number in range(ROWS)]
    values = [f"value {number}" for number in range(ROWS)]
    headrace.write(pa.table({"key": keys, "value": values}), topic, bootstrap=bootstrap, key="key")
    return {"rows": ROWS, "bytes": sum(map(len, keys)) + sum(map(len, values))}


def create(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(30)


def totals(answer: dict[str, int]) -> dict[str, int]:
    return {"rows": answer["rows"], "bytes": answer["bytes"]}


@pytest.mark.parametrize("side", ["peer", "ours"])
def test_a_batch_read_finds_every_record(
    spark: SparkProcess, bootstrap: str, topic: str, filled: dict[str, int], side: str
) -> None:
    assert totals(spark.call("batch_read", side, {"bootstrap": bootstrap}, topic=topic)) == filled


def test_the_connector_streams_every_record_once(
    spark: SparkProcess, bootstrap: str, topic: str, filled: dict[str, int]
) -> None:
    assert totals(spark.call("to_parquet", "peer", {"bootstrap": bootstrap}, topic=topic)) == filled


def test_the_connector_writes_what_its_stream_reads(
    spark: SparkProcess, bootstrap: str, topic: str, filled: dict[str, int]
) -> None:
    output = f"{topic}-copy"
    create(bootstrap, output)
    spark.call("copy", "peer", {"bootstrap": bootstrap}, topic=topic, output=output)
    before, after = (
        sorted(
            (row["key"], row["value"])
            for row in headrace.read(each, bootstrap=bootstrap, columns=["key", "value"])
            .read_all()
            .to_pylist()
        )
        for each in (topic, output)
    )
    assert after == before
    assert len(after) == filled["rows"]


def test_our_stream_names_the_spark_version_it_needs(
    spark: SparkProcess, bootstrap: str, topic: str, filled: dict[str, int]
) -> None:
    with pytest.raises(EngineError, match=r"needs PySpark 4\.2 or later, and this is 4\.0\.0"):
        spark.call("first_batch", "ours", {"bootstrap": bootstrap}, topic=topic)
