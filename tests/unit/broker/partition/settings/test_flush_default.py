# SPDX-License-Identifier: Apache-2.0
"""headrace.flush where nobody set it (R23, decision 7): by whether replicas share a power cord."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from headrace.broker.controller.config_entries import NodeLayers, topic_entries
from headrace.broker.node import Broker
from headrace.config import NodeConfig
from headrace.types import ClusterView, PartitionState, Topic
from headrace.world import new_uuid
from tests.harness.broker.simulated_node import node_config

ZOOKEEPER = {"headrace.coordination": "zk://h1:2181,h2:2181,h3:2181/headrace"}
ON_ONE_HOST = ZOOKEEPER | {"headrace.allow.same.host": "true"}
SHARED = {"headrace.coordination": "sqlite:/srv/store"}


def flush_of(config: NodeConfig, replicas: int, configs: dict[str, str], altered: dict[str, str]) -> str:
    """As the node works by it, which must be what it shows."""
    held = tuple(range(replicas))
    state = PartitionState(replicas=held, leader=0, leader_epoch=0, isr=held)
    topic = Topic(name="t", topic_id=new_uuid(Random(1)), partitions=(state,), configs=configs)
    view = ClusterView(version=1, cluster_id="c", topics={"t": topic}, node_configs={"": altered})

    class Node:
        node_id = 0

    node: Any = Node()
    node.config = config
    worked_by = Broker._topic_settings(node, view, topic).flush
    entries = topic_entries(NodeLayers.of(config, view, 0), configs, replicas=replicas)
    assert {entry["name"]: entry["value"] for entry in entries}["headrace.flush"] == worked_by
    return worked_by


@pytest.mark.parametrize(
    ("settings", "replicas", "configs", "altered", "flush"),
    [
        ({}, 1, {}, {}, "ack"),
        (SHARED, 3, {}, {}, "ack"),
        (ZOOKEEPER, 3, {}, {}, "os"),
        (ZOOKEEPER, 5, {}, {}, "os"),
        (ZOOKEEPER, 2, {}, {}, "ack"),
        (ZOOKEEPER, 2, {"min.insync.replicas": "2"}, {}, "os"),
        (ZOOKEEPER, 1, {"min.insync.replicas": "2"}, {}, "ack"),
        (ZOOKEEPER, 3, {"min.insync.replicas": "1"}, {}, "ack"),
        (ZOOKEEPER, 3, {}, {"min.insync.replicas": "1"}, "ack"),
        (ZOOKEEPER | {"min.insync.replicas": "1"}, 3, {}, {}, "ack"),
        (ON_ONE_HOST, 3, {}, {}, "ack"),
        (ZOOKEEPER, 3, {"headrace.flush": "ack"}, {}, "ack"),
        (ZOOKEEPER, 3, {"flush.messages": "1"}, {}, "ack"),
        (ZOOKEEPER, 3, {}, {"headrace.flush.default": "interval"}, "interval"),
        (ZOOKEEPER | {"headrace.flush.default": "ack"}, 3, {}, {}, "ack"),
        (SHARED | {"headrace.flush.default": "os"}, 1, {}, {}, "os"),
    ],
)
def test_the_flush_default_depends_on_hosts_and_replicas(
    settings: dict[str, str], replicas: int, configs: dict[str, str], altered: dict[str, str], flush: str
) -> None:
    assert flush_of(node_config(settings), replicas, configs, altered) == flush
