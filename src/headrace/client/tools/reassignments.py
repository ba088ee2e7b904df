# SPDX-License-Identifier: Apache-2.0
"""Reassigns replicas between nodes, on any Kafka, and waits until the reassignment is complete.

Target replicas: replica_plan.py. Blocking, for tools. Prints nothing: progress goes to a callback.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.tools.brokers import Brokers, partitions_of, run
from headrace.types import TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode

_NOTHING_TO_ELECT = (ErrorCode.election_not_needed, ErrorCode.preferred_leader_not_available)
_LOOK_EVERY_S = 0.2
_STEP = 500

Targets = Mapping[tuple[str, int], tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReplicas:
    """All partitions with their replicas, and the hosts of the live nodes."""

    replicas: Mapping[tuple[str, int], tuple[int, ...]]
    hosts: Mapping[int, str]

    def of_topic(self, topic: str) -> dict[tuple[str, int], tuple[int, ...]]:
        return {name: nodes for name, nodes in self.replicas.items() if name[0] == topic}

    @property
    def load(self) -> dict[int, int]:
        return {node: sum(node in nodes for nodes in self.replicas.values()) for node in self.hosts}


def read_replicas(bootstrap: str | Cluster) -> ClusterReplicas:
    async def ask() -> ClusterReplicas:
        async with Brokers(bootstrap) as brokers:
            reply = await brokers.metadata(None)
        return ClusterReplicas(
            replicas={
                (str(topic.name), int(each.partition_index)): tuple(int(node) for node in each.replica_nodes)
                for topic in reply.topics
                for each in topic.partitions
            },
            # The rack stands for what fails together; without one the advertised host does.
            hosts={int(node.node_id): str(node.rack or node.host) for node in reply.brokers},
        )

    return run(ask())


def reassign(
    bootstrap: str | Cluster,
    targets: Targets,
    progress: Callable[[int, int], None] = lambda done, total: None,
    *,
    timeout_ms: int = 3_600_000,
) -> None:
    """Returns when every partition has its target replicas; calls `progress(moved, of)` at each step."""
    _ask_for(bootstrap, targets)
    deadline = time.monotonic() + timeout_ms / 1000
    while True:
        moving = len(pending(bootstrap) & targets.keys())
        progress(len(targets) - moving, len(targets))
        if not moving:
            return
        if time.monotonic() > deadline:
            raise ClientError(
                f"{moving} of {len(targets)} partitions are still being moved",
                next_step="they go on by themselves; look again with `headrace cluster status`",
            )
        time.sleep(_LOOK_EVERY_S)


def pending(bootstrap: str | Cluster) -> set[tuple[str, int]]:
    """Partitions that are being moved now."""

    async def ask() -> set[tuple[str, int]]:
        async with Brokers(bootstrap) as brokers:
            reply = await brokers.call_any(ApiKey.LIST_PARTITION_REASSIGNMENTS, {"topics": None})
        check(reply, "the list of moving partitions")
        return {
            (str(topic.name), int(each.partition_index))
            for topic in reply.topics
            for each in topic.partitions
        }

    return run(ask())


def unregister(bootstrap: str | Cluster, node_id: int) -> None:
    """Forgets a node that has stopped, so that nobody waits for it. Fine when it is forgotten already."""

    async def ask() -> None:
        async with Brokers(bootstrap) as brokers:
            reply = await brokers.call_any(ApiKey.UNREGISTER_BROKER, {"broker_id": node_id})
        if int(reply.error_code) != ErrorCode.broker_id_not_registered:
            check(reply, f"node {node_id}")

    run(ask())


def elect_preferred(bootstrap: str | Cluster, topic: str | None = None) -> list[tuple[str, int]]:
    """Makes the first replica of each partition its leader again, where it is in sync.

    Returns the partitions whose leader changed.
    """

    async def ask() -> list[tuple[str, int]]:
        async with Brokers(bootstrap) as brokers:
            wanted = None if topic is None else [await _all_partitions(brokers, topic)]
            reply = await brokers.call_any(
                ApiKey.ELECT_LEADERS, {"election_type": 0, "topic_partitions": wanted}
            )
        check(reply, "electing preferred leaders")
        changed = []
        for each in reply.replica_election_results:
            for partition in each.partition_result:
                if int(partition.error_code) in _NOTHING_TO_ELECT:
                    continue
                check(partition, f"partition {partition.partition_id} of topic {each.topic!r}")
                changed.append((str(each.topic), int(partition.partition_id)))
        return sorted(changed)

    return run(ask())


def preferred_changes(bootstrap: str | Cluster, topic: str | None = None) -> dict[TopicPartition, int]:
    """The leaders that `elect_preferred` would make, where another replica leads now."""

    async def ask() -> dict[TopicPartition, int]:
        async with Brokers(bootstrap) as brokers:
            reply = await brokers.metadata(None if topic is None else [topic])
        if topic is not None:
            partitions_of(topic, reply)  # refuses a topic that does not exist
        return {
            TopicPartition(str(entry.name), int(each.partition_index)): int(each.replica_nodes[0])
            for entry in reply.topics
            for each in entry.partitions
            if each.replica_nodes[0] in each.isr_nodes and each.replica_nodes[0] != each.leader_id
        }

    return run(ask())


async def _all_partitions(brokers: Brokers, topic: str) -> dict[str, Any]:
    found = partitions_of(topic, await brokers.metadata([topic]))
    return {"topic": topic, "partitions": [int(each.partition_index) for each in found]}


def _ask_for(bootstrap: str | Cluster, targets: Targets) -> None:
    """In steps, since a request and what it makes the cluster write are bounded."""
    names = sorted(targets)

    async def ask() -> None:
        async with Brokers(bootstrap) as brokers:
            for start in range(0, len(names), _STEP):
                fields = {"topics": _by_topic(targets, names[start : start + _STEP])}
                reply = await brokers.call_any(ApiKey.ALTER_PARTITION_REASSIGNMENTS, fields)
                check(reply, "moving partitions")
                for topic in reply.responses:
                    for each in topic.partitions:
                        check(each, f"partition {each.partition_index} of topic {topic.name!r}")

    run(ask())


def _by_topic(targets: Targets, names: list[tuple[str, int]]) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for topic, index in names:
        partition = {"partition_index": index, "replicas": targets[topic, index]}
        topics.setdefault(topic, []).append(partition)
    return [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()]


def check(answer: Any, where: str) -> None:
    """Raises ClientError with the cluster's own words where an answer is a refusal."""
    code = int(answer.error_code)
    if code != 0:
        name = ErrorCode(code).name
        raise ClientError(f"{where}: {getattr(answer, 'error_message', None) or name}", code=name.upper())
