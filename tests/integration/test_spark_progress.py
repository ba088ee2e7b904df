# SPDX-License-Identifier: Apache-2.0
"""A query's progress as a group, without Spark: commits that fail are counted and tried again."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient

from headrace.client.errors import ClientError
from headrace.client.network_client import NetworkClient
from headrace.types import TopicPartition
from pyspark_headrace.client_pool import pooled_client
from pyspark_headrace.options import read_settings
from pyspark_headrace.reading.offsets import Offsets, Position, TopicPositions
from pyspark_headrace.reading.planner import Planner
from pyspark_headrace.reading.progress import GroupProgress


def at(topic: str, offset: int) -> Offsets:
    partitions = {0: Position(offset=offset, epoch=0)}
    return Offsets(query="my-query", topics={topic: TopicPositions(topic_id=None, partitions=partitions)})


@pytest.fixture
def orders(bootstrap: str, topic: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(20)
    return topic


def join(bootstrap: str, topic: str) -> Consumer:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "client.id": "somebody"})
    consumer.subscribe([topic])
    deadline = time.monotonic() + 30
    while not consumer.assignment():
        assert time.monotonic() < deadline, "the consumer did not get into its group"
        consumer.poll(0.1)
    return consumer


def test_commits_that_fail_are_counted_and_tried_again(bootstrap: str, orders: str) -> None:
    async def story() -> None:
        client = NetworkClient(bootstrap)
        progress = GroupProgress(client, orders)
        consumer = await asyncio.to_thread(join, bootstrap, orders)
        try:
            with pytest.raises(ClientError, match="has members: somebody at "):
                await progress.check_no_members()
            await progress.commit(at(orders, 5))
            assert progress.failures == 1
        finally:
            await asyncio.to_thread(consumer.close)
        await progress.check_no_members()
        await progress.commit(at(orders, 5))
        assert progress.failures == 1
        assert await progress.committed() == {TopicPartition(orders, 0): 5}
        await client.close()

    asyncio.run(story())


def test_an_unreachable_coordinator_is_a_failure_too(bootstrap: str, orders: str) -> None:
    async def story() -> None:
        client = NetworkClient("127.0.0.1:1")
        progress = GroupProgress(client, orders, timeout_ms=100)
        await progress.commit(at(orders, 5))
        assert progress.failures == 1
        await client.close()

    asyncio.run(story())


def test_a_commit_names_the_query_and_the_end_of_its_batch(bootstrap: str, orders: str) -> None:
    async def story() -> None:
        client = NetworkClient(bootstrap)
        progress = GroupProgress(client, orders)
        assert await progress.other_query("my-query") is None
        await progress.commit(at(orders, 7))
        assert await progress.other_query("my-query") is None
        assert await progress.other_query("a-second-one") == "my-query"
        await client.close()

    asyncio.run(story())
    # By kafka-python: librdkafka appends no NUL byte to metadata, and confluent-kafka reads up to one.
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    (committed,) = admin.list_group_offsets({orders: None})[orders].values()
    admin.close()
    assert committed.offset == 7
    assert json.loads(committed.metadata) == {"batchEnd": 7, "query": "my-query"}


def test_a_pattern_without_topics_is_told_when_a_query_begins(
    bootstrap: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"bootstrap": bootstrap, "subscribePattern": "no-topic-is-called-so.*"}
    connections = pooled_client(bootstrap)
    planner = Planner(read_settings(options, streaming=True), connections)
    assert not connections.call(planner.initial()).topics
    assert "no topic matches subscribePattern 'no-topic-is-called-so.*' now: the query waits" in caplog.text


def test_two_queries_that_share_a_group_are_told(
    bootstrap: str, orders: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"bootstrap": bootstrap, "subscribe": orders, "group": orders}
    connections = pooled_client(bootstrap)

    def run() -> str:
        planner = Planner(read_settings(options, streaming=True), connections)
        start = connections.call(planner.initial())
        connections.call(planner.latest(start, limited=False))
        planner.close()
        return start.query

    first = run()
    assert caplog.messages == []
    run()
    (said,) = caplog.messages
    assert f"group '{orders}' has the offsets of another query, {first}" in said
    assert "give every query a group of its own" in said
