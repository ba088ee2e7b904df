# SPDX-License-Identifier: Apache-2.0
"""Tasks of Spark whose broker restarts or whose records are gone: they wait, count what misses, or fail."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
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


@pytest.mark.parametrize("removed", [40, _ROWS], ids=["some", "all"])
def test_records_removed_after_planning_are_counted(
    node: NodeProcess, topic: str, removed: int, caplog: pytest.LogCaptureFixture
) -> None:
    planned = Range(topic=topic, topic_id=_topic_id(node, topic), partition=0, start=10, end=90)
    _delete_before(node, topic, removed)
    options = {"bootstrap": node.bootstrap, "subscribe": topic, "columns": "value"}
    settings = read_settings({**options, "failOnDataLoss": "false"}, streaming=True)
    found = sum(batch.num_rows for batch in read_range(planned, settings, VALUES))
    missing = min(removed, 90) - 10
    assert found == 80 - missing
    (said,) = caplog.messages
    assert f"partition 0 of topic '{topic}': up to {missing} records from offset 10 to {missing + 9}" in said
    assert "were removed by retention before this task read them" in said


def test_a_log_that_begins_later_is_no_loss_for_a_read_of_all(
    node: NodeProcess, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic_id = _topic_id(node, topic)
    planned = Range(topic=topic, topic_id=topic_id, partition=0, start=0, end=90, from_earliest=True)
    _delete_before(node, topic, 40)
    options = {"bootstrap": node.bootstrap, "subscribe": topic, "columns": "value"}
    settings = read_settings(options, streaming=True)
    assert sum(batch.num_rows for batch in read_range(planned, settings, VALUES)) == 50
    assert caplog.messages == []


@pytest.mark.parametrize("in_batch_read", [True, False])
def test_a_read_that_may_not_lose_records_says_when_it_was_planned(
    node: NodeProcess, topic: str, in_batch_read: bool
) -> None:
    planned = Range(topic=topic, topic_id=_topic_id(node, topic), partition=0, start=10, end=90)
    _delete_before(node, topic, 40)
    options = {"bootstrap": node.bootstrap, "subscribe": topic, "columns": "value"}
    settings = read_settings(options, streaming=False)
    with pytest.raises(ClientError, match="between planning and reading") as raised:
        list(read_range(planned, settings, VALUES, in_batch_read=in_batch_read))
    assert raised.value.code == "DATA_LOSS"
    assert ("keeps the offsets of its first action; load it again" in str(raised.value)) == in_batch_read


def _delete_before(node: NodeProcess, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    (future,) = admin.delete_records([TopicPartition(topic, 0, offset)]).values()
    future.result(20)


def _rows() -> Iterator[pa.RecordBatch]:
    return iter([pa.record_batch({"value": [f"row {number}" for number in range(_ROWS)]})])


def _topic_id(node: NodeProcess, topic: str) -> str:
    connections = pooled_client(node.bootstrap)
    return str(connections.call(connections.client.topic(topic)).topic_id)
