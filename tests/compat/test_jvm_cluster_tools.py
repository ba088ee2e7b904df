# SPDX-License-Identifier: Apache-2.0
"""Apache Kafka's own tools for clusters, unmodified: descriptions, reassignment, elections."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from headrace.cluster.engines.kafka import KafkaEngine
from tests.compat.java_tool import JavaTool
from tests.harness.live.cluster import LiveCluster

pytestmark = pytest.mark.compat_jvm

TOPIC = "moved"


def states(java: JavaTool) -> list[tuple[int, list[int], list[int]]]:
    """Leader, replicas and in-sync replicas of each partition."""
    described = java("topics", "--describe", "--topic", TOPIC)
    found = re.findall(r"Leader: (\S+)\s+Replicas: (\S+)\s+Isr: (\S*)", described)
    return [
        (int(leader), list(map(int, replicas.split(","))), sorted(map(int, isr.split(","))))
        for leader, replicas, isr in found
    ]


def until_in_sync(java: JavaTool, replicas: int) -> None:
    deadline = time.monotonic() + 60
    while any(len(isr) < replicas for _, _, isr in states(java)):
        assert time.monotonic() < deadline, states(java)


def test_partitions_move_and_preferred_leaders_return(kafka_engine: KafkaEngine, tmp_path: Path) -> None:
    with LiveCluster(tmp_path / "cluster", nodes=3) as cluster:
        java = JavaTool(kafka_engine, cluster.bootstrap)
        one, two, three = cluster.node_ids
        cluster.create_topic(TOPIC, [[one, two], [two, one]])
        plan = tmp_path / "plan.json"
        plan.write_text(
            json.dumps(
                {
                    "version": 1,
                    "partitions": [
                        {"topic": TOPIC, "partition": 0, "replicas": [three, two, one]},
                        {"topic": TOPIC, "partition": 1, "replicas": [two, three]},
                    ],
                }
            )
        )
        moved = java("reassign-partitions", "--reassignment-json-file", str(plan), "--execute")
        assert "Successfully started partition reassignments" in moved
        for _ in range(20):
            verified = java("reassign-partitions", "--reassignment-json-file", str(plan), "--verify")
            if "still in progress" not in verified:
                break
        assert verified.count("is completed") == 2
        (leader, replicas, _), (_, other, _) = states(java)
        assert (replicas, other) == ([three, two, one], [two, three])
        assert leader != three
        until_in_sync(java, 2)
        elected = java("leader-election", "--election-type", "preferred", "--all-topic-partitions")
        assert "Successfully completed leader election" in elected
        assert [leader for leader, _, _ in states(java)] == [three, two]
