# SPDX-License-Identifier: Apache-2.0
"""Tasks of Spark that begin while their broker restarts: they wait for it instead of failing the query."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql.types import BinaryType, StructField, StructType

import headrace
from headrace.client.errors import ClientError
from pyspark_headrace.client_pool import pooled_client
from pyspark_headrace.columns import projection
from pyspark_headrace.options import read_settings, write_settings
from pyspark_headrace.reading.splits import Range
from pyspark_headrace.reading.task import read_range
from pyspark_headrace.writing.columns import SinkColumns
from pyspark_headrace.writing.commit_messages import Written
from pyspark_headrace.writing.task import write_task
from tests.harness.live.node import NodeProcess

VALUES = projection(StructType([StructField("value", BinaryType())]))
SINK_COLUMNS = SinkColumns(names=frozenset({"value"}))
_AWAY_S = 1.0
_ROWS = 100


@pytest.fixture
def node(tmp_path: Path, topic: str) -> Iterator[NodeProcess]:
    """Holds some rows in one partition."""
    with NodeProcess(tmp_path) as node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(20)
        rows = pa.table({"value": [f"row {number}" for number in range(_ROWS)]})
        headrace.write(rows, topic, bootstrap=node.bootstrap)
        yield node


def test_tasks_that_begin_while_the_broker_is_away_wait_for_it(node: NodeProcess, topic: str) -> None:
    options = {"bootstrap": node.bootstrap, "subscribe": topic, "columns": "value"}
    range_ = Range(topic=topic, topic_id=_topic_id(node, topic), partition=0, start=0, end=_ROWS)
    reading = read_settings(options, streaming=False)
    writing = write_settings({"bootstrap": node.bootstrap, "topic": topic}, streaming=True)
    for task in (
        lambda: sum(batch.num_rows for batch in read_range(range_, reading, VALUES)),
        lambda: write_task(_rows(), writing, SINK_COLUMNS, exactly_once=False, awaits_broker=True),
    ):
        node.kill()
        back = threading.Timer(_AWAY_S, node.start)
        back.start()
        assert task() in (_ROWS, Written(_ROWS))
        back.join()


def test_a_broker_that_stays_away_is_named_when_the_patience_is_over(node: NodeProcess, topic: str) -> None:
    options = {"bootstrap": node.bootstrap, "subscribe": topic, "timeoutMs": "300"}
    range_ = Range(topic=topic, topic_id=None, partition=0, start=0, end=_ROWS)
    node.kill()
    settings = read_settings(options, streaming=False)
    with pytest.raises(ClientError, match=f"cannot connect to {node.bootstrap}"):
        list(read_range(range_, settings, VALUES))


def _rows() -> Iterator[pa.RecordBatch]:
    return iter([pa.record_batch({"value": [f"row {number}" for number in range(_ROWS)]})])


def _topic_id(node: NodeProcess, topic: str) -> str:
    connections = pooled_client(node.bootstrap)
    return str(connections.call(connections.client.topic(topic)).topic_id)
