# SPDX-License-Identifier: Apache-2.0
"""Nodes, topics and leaders (Metadata), disks (DescribeLogDirs), and which engine this is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.client.bootstrap import Address
from headrace.client.errors import ClientError
from headrace.console.observing.broker_calls import BrokerCalls
from headrace.console.state.model import NodeState, PartitionState, TopicState
from headrace.console.state.polls import DiskPoll, TopologyPoll
from headrace.types import NO_TOPIC_ID, OWN_TOPICS, TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode

_KNOWN = (ErrorCode.none, ErrorCode.leader_not_available)
_BROKER_RESOURCE = 4
_OWN_CONFIG = "headrace.events.enable"


async def ask_topology(calls: BrokerCalls, topics: Sequence[str] | None = None) -> TopologyPoll:
    """All nodes, and all topics or the named ones."""
    fields = {
        "topics": None if topics is None else [{"name": name} for name in topics],
        "allow_auto_topic_creation": False,
    }
    reply = await calls.any(ApiKey.METADATA, fields)
    for node in reply.brokers:
        calls.network.learn(int(node.node_id), Address(str(node.host), int(node.port)))
    return TopologyPoll(
        cluster_id=str(getattr(reply, "cluster_id", "") or ""),
        controller=int(reply.controller_id) if int(reply.controller_id) >= 0 else None,
        nodes={int(node.node_id): _node(node) for node in reply.brokers},
        topics={str(topic.name): _topic(topic) for topic in reply.topics if int(topic.error_code) in _KNOWN},
        whole=topics is None,
    )


def _node(entry: Any) -> NodeState:
    return NodeState(
        node_id=int(entry.node_id), host=str(entry.host), port=int(entry.port), rack=entry.rack or None
    )


def _topic(entry: Any) -> TopicState:
    topic_id = getattr(entry, "topic_id", None)
    name = str(entry.name)
    return TopicState(
        name=name,
        topic_id=None if topic_id is None or topic_id == NO_TOPIC_ID else str(topic_id),
        internal=bool(entry.is_internal) or name in OWN_TOPICS,
        partitions={int(each.partition_index): _partition(each) for each in entry.partitions},
    )


def _partition(entry: Any) -> PartitionState:
    leader, epoch = int(entry.leader_id), int(getattr(entry, "leader_epoch", -1))
    return PartitionState(
        partition=int(entry.partition_index),
        leader=leader if leader >= 0 else None,
        leader_epoch=epoch if epoch >= 0 else None,
        replicas=tuple(map(int, entry.replica_nodes)),
        isr=tuple(map(int, entry.isr_nodes)),
        offline=tuple(map(int, getattr(entry, "offline_replicas", ()))),
    )


async def ask_disks(calls: BrokerCalls, node_id: int) -> DiskPoll:
    """Sizes of a node's replicas, and of the volumes they are on."""
    reply = await calls.node(node_id, ApiKey.DESCRIBE_LOG_DIRS, {"topics": None})
    sizes: dict[TopicPartition, int] = {}
    problems, total, free = [], 0, 0
    for directory in reply.results:
        if int(directory.error_code) != 0:
            problems.append(f"{directory.log_dir}: {ErrorCode(int(directory.error_code)).name}")
            continue
        total += max(int(getattr(directory, "total_bytes", -1)), 0)
        free += max(int(getattr(directory, "usable_bytes", -1)), 0)
        for topic in directory.topics:
            name = str(topic.name)
            for each in topic.partitions:
                sizes[TopicPartition(name, int(each.partition_index))] = int(each.partition_size)
    return DiskPoll(
        sizes=sizes,
        total_bytes=total or None,
        free_bytes=free if total else None,
        problem="; ".join(problems) or None,
    )


async def ask_engine(calls: BrokerCalls, node_id: int) -> str:
    """Headrace has a config that Apache Kafka has not. "unknown" where configs may not be read."""
    resource = {
        "resource_type": _BROKER_RESOURCE,
        "resource_name": str(node_id),
        "configuration_keys": [_OWN_CONFIG],
    }
    fields = {"resources": [resource], "include_synonyms": False, "include_documentation": False}
    try:
        reply = await calls.node(node_id, ApiKey.DESCRIBE_CONFIGS, fields)
    except ClientError:
        return "unknown"
    if int(reply.results[0].error_code) != 0:
        return "unknown"
    return "headrace" if reply.results[0].configs else "kafka"
