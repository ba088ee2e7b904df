# SPDX-License-Identifier: Apache-2.0
"""headrace.Admin on a broker in this process: topics, settings, groups, their lag and offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

import headrace
from headrace.testing import Broker


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> Iterator[headrace.Admin]:
    with Broker() as broker:
        monkeypatch.setenv("HEADRACE_BOOTSTRAP", broker.bootstrap)
        with headrace.Admin() as admin:
            yield admin


def consume(group: str, topic: str) -> None:
    with headrace.stream(topic, group=group, commit=False) as batches:
        assert batches.poll(10_000) is not None
        batches.commit()


def test_topics_are_created_described_and_deleted(admin: headrace.Admin) -> None:
    admin.create_topic("orders", partitions=2, configs={"retention.ms": 3_600_000, "preallocate": False})
    assert [(topic.name, topic.partitions) for topic in admin.topics()] == [("orders", 2)]
    admin.add_partitions("orders", 3)
    described = admin.describe_topic("orders")
    assert [partition.index for partition in described.partitions] == [0, 1, 2]
    with pytest.raises(headrace.ClientError, match="topic 'orders' exists already") as caught:
        admin.create_topic("orders")
    assert caught.value.code == "TOPIC_ALREADY_EXISTS"
    admin.delete_topic("orders")
    assert admin.topics() == []
    with pytest.raises(headrace.ClientError, match="topic 'orders' does not exist"):
        admin.describe_topic("orders")


def test_an_argument_that_is_refused_is_named_as_in_python(admin: headrace.Admin) -> None:
    with pytest.raises(headrace.ClientError, match="give a replication_factor up to the number of nodes"):
        admin.create_topic("orders", replication_factor=3)


def test_settings_of_a_topic_and_of_a_node(admin: headrace.Admin) -> None:
    admin.create_topic("orders")
    admin.set_configs({"retention.ms": 1000}, topic="orders")
    assert admin.configs(topic="orders")["retention.ms"].value == "1000"
    admin.set_configs(topic="orders", unset=["retention.ms"])
    assert admin.configs(topic="orders")["retention.ms"].is_default
    (node,) = {replica for each in admin.describe_topic("orders").partitions for replica in each.replicas}
    assert admin.configs(node=node)["num.partitions"].value == "1"
    with pytest.raises(headrace.ClientError, match="give topic= or node="):
        admin.configs()


def test_a_group_its_lag_and_new_offsets(admin: headrace.Admin) -> None:
    rows = [{"value": str(n), "timestamp": datetime(2026, 1, 1 + n, tzinfo=UTC)} for n in range(5)]
    headrace.write(rows, "orders")
    consume("billing", "orders")
    where = headrace.TopicPartition("orders", 0)
    assert admin.offsets("billing") == {where: 5}
    assert [(group.group_id, group.state) for group in admin.groups()] == [("billing", "Empty")]
    assert admin.describe_group("billing").members == ()
    caught_up = admin.lag("billing")
    assert (caught_up.records, caught_up.seconds) == (0, 0.0)

    headrace.write([{"value": "new", "timestamp": datetime.now(UTC)}], "orders")
    behind = admin.lag("billing")
    assert behind.records == 1
    assert behind.seconds is not None
    assert 0 <= behind.seconds < 60
    (partition,) = behind.partitions
    assert (partition.topic, partition.partition, partition.committed, partition.end) == ("orders", 0, 5, 6)

    (change,) = admin.reset_offsets("billing", "orders", "earliest")
    assert (change.old, change.new) == (5, 0)
    admin.reset_offsets("billing", "orders", datetime(2026, 1, 3, tzinfo=UTC))
    assert admin.offsets("billing") == {where: 2}
    admin.reset_offsets("billing", "orders", 4)
    assert admin.lag("billing").records == 2
    with pytest.raises(headrace.ClientError, match="to='begin' does not say where to reset to"):
        admin.reset_offsets("billing", "orders", "begin")  # type: ignore[arg-type]
    admin.delete_group("billing")
    with pytest.raises(headrace.ClientError, match="group 'billing' does not exist"):
        admin.lag("billing")


def test_it_works_where_an_event_loop_runs_as_in_notebooks(admin: headrace.Admin) -> None:
    async def in_a_notebook() -> int:
        return len(admin.groups())

    assert asyncio.run(in_a_notebook()) == 0


def test_a_closed_admin_says_so(admin: headrace.Admin) -> None:
    assert repr(admin).startswith("headrace.Admin('127.0.0.1:")
    admin.close()
    with pytest.raises(headrace.ClientError, match="this Admin is closed"):
        admin.topics()
