# SPDX-License-Identifier: Apache-2.0
"""A group across SIGKILL of its node: members come back by themselves and go on where they had committed.

Unmodified librdkafka consumers, both protocols. And the time that a node takes to know 100,000 offsets again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.harness.live.node import NodeProcess
from tests.harness.live.raw_client import RawClient
from tests.harness.waiting import wait_until

StartNode = Callable[..., NodeProcess]
TOPIC, PARTITIONS = "across", 3
PATIENCE_S = 60
EVERY_GROUP: dict[str, Any] = {"states_filter": [], "types_filter": []}
QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "300",
}


def consumer(node: NodeProcess, protocol: str) -> Consumer:
    classic = {} if protocol == "consumer" else {"session.timeout.ms": 6000, "heartbeat.interval.ms": 300}
    return Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": "g",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
            **classic,
        }
    )


def read(members: list[Consumer], count: int) -> list[tuple[int, int]]:
    """(partition, offset) of so many records, by any of the members, each committed."""
    seen: list[tuple[int, int]] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(seen) < count and time.monotonic() < deadline:
        for member in members:
            message = member.poll(0.05)
            if message is not None and message.error() is None:
                member.commit(message, asynchronous=False)
                seen.append((message.partition(), message.offset()))
    return seen


def produce(node: NodeProcess, count: int) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap, "log_level": 0})
    for number in range(count):
        producer.produce(TOPIC, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_come_back_and_go_on_where_they_committed(start_node: StartNode, protocol: str) -> None:
    node = start_node(settings=QUICK)
    admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result()
    members = [consumer(node, protocol) for _ in range(2)]
    for member in members:
        member.subscribe([TOPIC])
    produce(node, 30)
    before = read(members, 30)
    node.kill()
    node.start()
    produce(node, 30)
    after = read(members, 30)
    assert sorted(before + after) == [(p, offset) for p in range(PARTITIONS) for offset in range(20)]
    described = admin.describe_consumer_groups(["g"])["g"].result()
    assert (described.state.name, len(described.members)) == ("STABLE", 2)
    for member in members:
        member.close()


def commit_many(client: RawClient, groups: int, partitions: int) -> None:
    parts: list[dict[str, Any]] = [
        {
            "partition_index": index,
            "committed_offset": index,
            "committed_leader_epoch": 0,
            "committed_metadata": "",
        }
        for index in range(partitions)
    ]
    for number in range(groups):
        fields = {
            "group_id": f"group-{number}",
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": TOPIC, "partitions": parts}],
        }
        reply = client.call(8, 8, fields)
        assert {part.error_code for part in reply.topics[0].partitions} == {0}


def test_a_hundred_thousand_offsets_are_known_again_in_seconds(start_node: StartNode) -> None:
    """The limit is far above what it takes alone (0.6 s), for machines that do much else."""
    node = start_node()
    with RawClient(node.bootstrap) as client:
        client.create_topic(TOPIC, partitions=500)
        client.call(10, 4, {"key_type": 0, "coordinator_keys": ["group-0"]})
        commit_many(client, groups=200, partitions=500)
    node.kill()
    node.start()
    with RawClient(node.bootstrap) as client:
        wait_until(
            lambda: not client.call(16, 5, EVERY_GROUP).error_code, "all groups are loaded", timeout_s=10
        )
        listed = client.call(16, 5, EVERY_GROUP)
        assert len(listed.groups) == 200
