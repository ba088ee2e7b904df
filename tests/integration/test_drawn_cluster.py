# SPDX-License-Identifier: Apache-2.0
"""The drawing of the cluster: five nodes, two partitions with a replica on each, and the leader that dies.

Node 0 leads partition 0 and node 1 leads partition 1. Node 0 is killed: node 2 takes over, not node 1, which
already leads. It returns, catches up, and leads again when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient

from headrace import types
from tests.harness.history import History, check
from tests.harness.jepsen.edn import export
from tests.harness.live.cluster import LiveCluster
from tests.harness.live.load import GroupCommitter, HeavyProducer, SteadyReader, read_all

TOPIC = "drawn"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LiveCluster]:
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with LiveCluster(tmp_path / "cluster", nodes=5, settings=settings) as cluster:
        yield cluster


def _leaders(cluster: LiveCluster) -> list[int]:
    return [cluster.leader(TOPIC, index) for index in range(2)]


@pytest.mark.row("D8")
@pytest.mark.row("D9")
def test_the_leader_of_a_partition_dies_and_another_node_takes_over(cluster: LiveCluster) -> None:
    cluster.create_topic(TOPIC, [[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]])
    cluster.wait_until(lambda picture: not picture.under_replicated)
    assert _leaders(cluster) == [0, 1]
    partitions = [types.TopicPartition(TOPIC, index) for index in range(2)]
    producers = [
        HeavyProducer(
            cluster.bootstrap, f"p{each.partition}", each, {"enable.idempotence": True}, pause_s=0.01
        )
        for each in partitions
    ]
    reader = SteadyReader(cluster.bootstrap, "reader", TOPIC, 2)
    group = GroupCommitter(cluster.bootstrap, "group", TOPIC)
    for client in (*producers, reader, group):
        client.start()
    cluster.wait_until(lambda _: group.commits > 0)

    cluster.kill(0)
    cluster.wait_until(lambda picture: all(each.leader not in (0, -1) for each in picture.partitions))
    assert _leaders(cluster) == [2, 1], "partition 1 stays, and whoever leads already gets no second one"
    before = [len(producer.acknowledged_at) for producer in producers]
    cluster.wait_until(
        lambda _: all(len(p.acknowledged_at) > b + 20 for p, b in zip(producers, before, strict=True))
    )

    cluster.start(0)
    cluster.wait_in_sync()
    assert _leaders(cluster) == [2, 1], "it leads again when it is asked for, not before"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    answer = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(TOPIC, 0)]).result(20)
    assert all(error is None for error in answer.values()), answer
    cluster.wait_until(lambda _: _leaders(cluster) == [0, 1])

    for client in (*producers, reader, group):
        client.finish()
    history = History([send for each in producers for send in each.history.sends], reader.history.polls)
    final = {each: read_all(cluster.bootstrap, each) for each in partitions}
    export("drawn-cluster", history.operations(final), final)
    assert check(history, final) == []
    assert set(history.outcomes()) == {"ok"}
