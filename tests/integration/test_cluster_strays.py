# SPDX-License-Identifier: Apache-2.0
"""What others decided about a node's logs while it was down, on real processes: they go when it returns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from headrace.client.errors import ClientError
from headrace.client.tools.admin import Admin
from headrace.client.tools.reassignments import reassign, unregister
from headrace.types import TopicPartition
from tests.harness.live.cluster import LiveCluster
from tests.harness.live.load import read_all
from tests.harness.waiting import wait_until

AWAY = 0
KEPT, GONE, AGAIN, MOVED = "kept", "gone", "again", "moved"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LiveCluster]:
    with LiveCluster(tmp_path / "cluster") as cluster:
        yield cluster


def send(cluster: LiveCluster, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0})
    producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0


def logs_of(cluster: LiveCluster) -> set[str]:
    """Directories of partitions of these topics, whatever they are called by now."""
    data = cluster.folder.node(AWAY) / "data"
    topics = (KEPT, GONE, AGAIN, MOVED)
    return {path.name for path in data.iterdir() if path.is_dir() and path.name.startswith(topics)}


def test_a_returning_node_removes_deleted_recreated_and_moved_partitions(cluster: LiveCluster) -> None:
    for topic, replicas in {KEPT: [0, 1, 2], GONE: [0, 1, 2], AGAIN: [0, 1, 2], MOVED: [0, 1]}.items():
        cluster.create_topic(topic, [replicas])
        send(cluster, topic, b"before")
    cluster.wait_in_sync()
    assert logs_of(cluster) == {f"{topic}-0" for topic in (KEPT, GONE, AGAIN, MOVED)}

    cluster.kill(AWAY)
    cluster.wait_until(lambda picture: AWAY not in picture.addresses and not picture.without_leader)
    admin = Admin(cluster.bootstrap)
    for topic in (GONE, AGAIN):
        admin.delete_topic(topic)
    cluster.create_topic(AGAIN, [[1, 2]])
    send(cluster, AGAIN, b"anew")
    reassign(cluster.bootstrap, {(MOVED, 0): (2, 1)}, lambda *_: None)
    with pytest.raises(ClientError, match=f"{KEPT}-0"):
        unregister(cluster.bootstrap, AWAY)

    cluster.start(AWAY)
    cluster.wait_in_sync()
    with pytest.raises(ClientError, match=f"Node {AWAY} is up"):
        unregister(cluster.bootstrap, AWAY)
    wait_until(lambda: logs_of(cluster) == {f"{KEPT}-0"}, lambda: logs_of(cluster))
    for topic, values in {KEPT: [b"before"], AGAIN: [b"anew"], MOVED: [b"before"]}.items():
        assert [value for _, value in read_all(cluster.bootstrap, TopicPartition(topic, 0)).records] == values
