# SPDX-License-Identifier: Apache-2.0
"""Streaming reads: nothing twice, nothing lost over restarts, progress in a group, no connection too many."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer
from confluent_kafka.admin import NewPartitions

import headrace
from headrace.client.tools.groups import Groups
from headrace.types import TopicPartition
from tests.harness.waiting import check_stays
from tests.spark.spark_lab import Broker, Query, message_of, reported, wait_until


def committed(broker: Broker, group: str) -> dict[TopicPartition, int]:
    return Groups(broker.bootstrap).committed(group)


def ends(broker: Broker, topic: str, partitions: int) -> dict[TopicPartition, int]:
    places = [TopicPartition(topic, partition) for partition in range(partitions)]
    return Groups(broker.bootstrap).ends(places)


def test_limited_batches_restarts_and_new_partitions_lose_nothing(
    spark: Any, broker: Broker, tmp_path: Path, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2)
    query = Query(spark, broker, tmp_path, subscribe=topic, maxOffsetsPerTrigger=60, group=topic)
    first = broker.fill(topic, 0, 150)
    query.run()
    assert [len(batch) for batch in query.batches] == [60, 60, 30]
    assert query.taken() == first
    assert committed(broker, topic) == ends(broker, topic, 2)

    second = broker.fill(topic, 150, 200)
    broker.admin.create_partitions([NewPartitions(topic, 3)])[topic].result(20)
    third = broker.fill(topic, 200, 260)
    query.run(maxOffsetsPerTrigger=1000, minPartitions=7)
    assert query.taken() == [*second, *third]
    assert committed(broker, topic) == ends(broker, topic, 3)

    before = query.offsets()
    assert json.dumps(before) == json.dumps(json.loads(json.dumps(before)))
    query.run()
    assert query.batches == []
    assert query.offsets() == before


def test_a_limit_of_bytes_is_kept_about(
    spark: Any, broker: Broker, tmp_path: Path, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(1)
    values = broker.fill(topic, 0, 2000)  # some 22 bytes each in the log
    query = Query(spark, broker, tmp_path, subscribe=topic, maxBytesPerTrigger=22_000)
    query.run()
    assert 2 <= len(query.batches) <= 4
    assert query.taken() == values


def test_a_quiet_query_makes_no_batches_and_opens_no_connections(
    spark: Any, broker: Broker, tmp_path: Path, new_topic: Callable[..., str]
) -> None:
    """Not even when the leader's epoch changes: the node is restarted under the running query."""
    topic = new_topic(2)
    new_topic(2, suffix="-aside")
    query = Query(spark, broker, tmp_path, subscribe=topic, group=topic)
    seen = broker.fill(topic, 0, 20)
    running = query.start(processingTime="0 seconds")
    try:
        query.wait_for(len(seen))
        for round_number in range(1, 4):  # every worker gets a task now and then
            seen += broker.fill(topic, 20 * round_number, 20 * round_number + 20)
            query.wait_for(len(seen))
        _fill_and_count(broker, query, topic, seen)
        wait_until(lambda: committed(broker, topic) == ends(broker, topic, 2))

        batch = running.lastProgress["batchId"]
        stood = query.offsets()
        broker.node.restart()
        polls = len(running.recentProgress)
        wait_until(lambda: running.status["message"].startswith("Waiting") and broker.node.alive)
        several_polls_s = 2
        check_stays(lambda: query.offsets() == stood, query.offsets, seconds=several_polls_s)
        assert running.lastProgress["batchId"] in (batch, batch + 1)  # idle progress names the next one
        assert polls <= len(running.recentProgress)
        seen += broker.fill(topic, 500, 510)
        query.wait_for(len(seen))
        assert query.taken() == seen
    finally:
        running.stop()


def test_a_partition_added_while_a_query_runs_is_read_from_its_beginning(
    spark: Any, broker: Broker, tmp_path: Path, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(1)
    query = Query(spark, broker, tmp_path, subscribe=topic, group=topic)
    seen = broker.fill(topic, 0, 20)
    running = query.start(processingTime="0 seconds")
    try:
        query.wait_for(len(seen))
        broker.admin.create_partitions([NewPartitions(topic, 2)])[topic].result(20)
        added = pa.table({"value": ["value 20"], "partition": pa.array([1], pa.int32())})
        headrace.write(added, topic, bootstrap=broker.bootstrap, partition="partition")
        query.wait_for(len(seen) + 1)
        assert query.taken() == [*seen, "value 20"]
        wait_until(lambda: committed(broker, topic) == ends(broker, topic, 2))
    finally:
        running.stop()


def _fill_and_count(broker: Broker, query: Query, topic: str, seen: list[str]) -> None:
    """A warm micro-batch opens nothing; the producer of this test opens its own, which are counted first."""
    before = broker.connections_opened()
    values = broker.fill(topic, 100, 120)
    seen += values
    query.wait_for(len(seen))
    time.sleep(0.5)  # time for further connections, if there were any
    with_query = broker.connections_opened() - before
    before = broker.connections_opened()
    broker.fill(topic + "-aside", 0, 20)
    assert with_query == broker.connections_opened() - before


def test_a_group_with_members_is_refused_by_name(
    spark: Any, broker: Broker, tmp_path: Path, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(1)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic, "client.id": "somebody"})
    try:
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(0.1) is None and bool(consumer.assignment()))
        query = Query(spark, broker, tmp_path, subscribe=topic, group=topic)
        said = message_of(query.run)
        assert f"group '{topic}' has members: somebody at 127.0.0.1; stop them" in said
    finally:
        consumer.close()


def test_a_stream_waits_for_enough_rows_but_not_forever(
    spark: Any, broker: Broker, tmp_path: Path, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(1)
    first = broker.fill(topic, 0, 3)
    options = {"minOffsetsPerTrigger": 10, "maxTriggerDelay": "2s"}
    query = Query(spark, broker, tmp_path, subscribe=topic, **options)
    running = query.start(processingTime="0 seconds")
    try:
        wait_until(lambda: len(query.batches) == 1)
        second = broker.fill(topic, 3, 8)
        wait_until(lambda: len(query.batches) == 2)
        waited = _seconds_between(running, 0, 1)
        third = broker.fill(topic, 8, 20)
        wait_until(lambda: len(query.batches) == 3)
        assert query.taken() == [*first, *second, *third]
        wait_until(lambda: reported(running)["ends"] == {topic: {"0": 20}})
    finally:
        running.stop()
    assert waited >= 1.5


def _seconds_between(running: Any, batch: int, next_batch: int) -> float:
    """From the end of one batch's planning to the start of the next one's trigger."""
    began: dict[int, datetime] = {}
    wait_until(lambda: {batch, next_batch} <= {each["batchId"] for each in running.recentProgress})
    for each in running.recentProgress:
        if each["numInputRows"]:
            began[each["batchId"]] = datetime.fromisoformat(each["timestamp"])
    return (began[next_batch] - began[batch]).total_seconds()
