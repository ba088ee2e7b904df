# SPDX-License-Identifier: Apache-2.0
"""Status of a cluster: the node processes on this host, and leaders and replicas from a Metadata request.

Uses the Kafka protocol, so that it works for both engines and for clusters on other hosts. Read next:
supervisor.py, cli/cluster/view.py (prints it).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.security_settings import NO_SECURITY, SecuritySettings
from headrace.client.tools.brokers import Brokers
from headrace.client.tools.disk_events import DamagedRange, DiskEvents, disk_events
from headrace.cluster.engines.process_stats import read_process_tree
from headrace.cluster.folder import ClusterFolder
from headrace.cluster.processes import core_state, find_process, state_of
from headrace.cluster.security import plan_security
from headrace.types import EVENTS_TOPIC
from headrace.wire.api_key import ApiKey

_TIMEOUT_MS = 3_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    node_id: int
    address: str
    state: str
    """State of the process on this host; "registered" or "not registered" for a remote cluster."""
    pid: int | None = None
    leaders: int | None = None
    """None, as the next two: no node told its metadata."""
    replicas: int | None = None
    out_of_sync: int | None = None
    rss_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    topic: str
    index: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    damaged: tuple[int, ...] = ()
    """Live nodes whose log of this partition is offline."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"


class DamagedLog(NamedTuple):
    partition: Partition
    node: int
    state: str
    """"repairing" while its damaged range is fetched from the leader, else "damaged"."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMetadata:
    """Nodes, controller and partitions from a Metadata reply."""

    cluster_id: str = ""
    controller: int | None = None
    addresses: Mapping[int, str] = field(default_factory=dict)
    partitions: tuple[Partition, ...] = ()
    disks: DiskEvents = field(default_factory=lambda: DiskEvents({}, {}))
    """Read only where there may be some."""
    transaction_version: int = 0
    """The finalized level of Kafka's feature; 0: no transactions, or an Apache Kafka without the feature."""

    @property
    def damaged_logs(self) -> list[DamagedLog]:
        """The offline logs on live nodes."""
        found = []
        for each in self.partitions:
            for node in each.damaged:
                key = each.topic, each.index, node
                repairing = self.disks.repairing.get(key)
                reason = repairing or self.disks.damaged.get(key, "see that node's log")
                found.append(DamagedLog(each, node, "damaged" if repairing is None else "repairing", reason))
        return found

    @property
    def damaged_ranges(self) -> list[tuple[Partition, int, DamagedRange]]:
        """Of logs that their leaders serve, since no other replica can take over."""
        return [
            (each, each.leader, damaged)
            for each in self.partitions
            for damaged in self.disks.ranges.get((each.topic, each.index, each.leader), ())
        ]

    @property
    def slow_nodes(self) -> list[tuple[int, str]]:
        """Live nodes that are out of sync somewhere, and were found slow."""
        missing = {node for each in self.under_replicated for node in each.replicas if node not in each.isr}
        live = missing & set(self.addresses)
        return [(node, reason) for node, reason in sorted(self.disks.slow.items()) if node in live]

    @property
    def under_replicated(self) -> list[Partition]:
        return [each for each in self.partitions if len(each.isr) < len(each.replicas)]

    @property
    def without_leader(self) -> list[Partition]:
        return [each for each in self.partitions if each.leader < 0]

    @property
    def same_host(self) -> list[Partition]:
        """Replicated partitions whose in-sync replicas are all on one host."""
        hosts = {node: address.rpartition(":")[0] for node, address in self.addresses.items()}
        return [
            each
            for each in self.partitions
            if len(each.replicas) > 1 and len({hosts.get(node, str(node)) for node in each.isr}) == 1
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    engine: str
    nodes: tuple[NodeStatus, ...]
    metadata: ClusterMetadata | None
    """None: no node answered."""
    supervised: bool | None = None

    def document(self) -> dict[str, Any]:
        metadata = self.metadata or ClusterMetadata()
        return {
            "engine": self.engine,
            "cluster_id": metadata.cluster_id or None,
            "answers": self.metadata is not None,
            "controller": metadata.controller,
            "nodes": [_node_document(node) for node in self.nodes],
            "partitions": len(metadata.partitions),
            "under_replicated": len(metadata.under_replicated),
            "under_replicated_partitions": [str(each) for each in metadata.under_replicated],
            "without_leader": len(metadata.without_leader),
            "without_leader_partitions": [str(each) for each in metadata.without_leader],
            "damaged_logs": [
                {"partition": str(each), "node": node, "state": state, "reason": reason}
                for each, node, state, reason in metadata.damaged_logs
            ],
            "damaged_ranges": [
                {
                    "partition": str(each),
                    "node": node,
                    "offsets": [damaged.first_offset, damaged.last_offset],
                    "readable": readable_around(damaged),
                    "reason": damaged.reason,
                }
                for each, node, damaged in metadata.damaged_ranges
            ],
            "full_disks": [
                {"node": node, "reason": reason} for node, reason in sorted(metadata.disks.full.items())
            ],
            "slow_nodes": [{"node": node, "reason": reason} for node, reason in metadata.slow_nodes],
            "same_host": len(metadata.same_host),
            "transaction_version": metadata.transaction_version,
            "supervised": self.supervised,
        }


def readable_around(damaged: DamagedRange) -> list[list[int]]:
    """First and last offset of what lies before the range and after it."""
    around = [[damaged.log_start, damaged.first_offset - 1], [damaged.last_offset + 1, damaged.log_end - 1]]
    return [[first, last] for first, last in around if first <= last]


def read_status(
    folder: ClusterFolder, security: SecuritySettings | None = None, *, often: bool = False
) -> ClusterStatus:
    """Status of a cluster on this host; `security`: by default that of its admin.

    `often`: called again and again; events are read only when replicas are out of sync or offline.
    """
    plan = folder.read()
    security = plan_security(plan) if security is None else security
    processes = {member.node_id: find_process(folder.node(member.node_id)) for member in plan.members}
    states = {
        member.node_id: core_state(member, folder.node(member.node_id))
        if plan.cores
        else state_of(member, processes[member.node_id], security)
        for member in plan.members
    }
    answering = [member.address for member in plan.members if states[member.node_id] == "running"]
    metadata = read_metadata(answering, security)
    if metadata is not None:
        cluster = Cluster(bootstrap=",".join(answering), security=security)
        metadata = _with_reasons(metadata, cluster, always=not often)
    nodes = []
    for member in plan.members:
        process = processes[member.node_id]
        nodes.append(
            NodeStatus(
                node_id=member.node_id,
                address=member.address,
                state=states[member.node_id],
                pid=None if process is None else process.pid,
                rss_bytes=None if process is None else read_process_tree(process.pid).rss_bytes,
                **_counts(metadata, member.node_id),
            )
        )
    return ClusterStatus(
        engine=plan.engine, nodes=tuple(nodes), metadata=metadata, supervised=folder.is_supervised()
    )


def read_remote_status(cluster: Cluster) -> ClusterStatus:
    """Status of any cluster from its Metadata. Raises ClientError if no node answers."""
    metadata = _with_reasons(asyncio.run(_fetch_metadata(cluster)), cluster, always=True)
    known = set(metadata.addresses) | {node for each in metadata.partitions for node in each.replicas}
    nodes = tuple(
        NodeStatus(
            node_id=node,
            address=metadata.addresses.get(node, "-"),
            state="registered" if node in metadata.addresses else "not registered",
            **_counts(metadata, node),
        )
        for node in sorted(known)
    )
    return ClusterStatus(engine="", nodes=nodes, metadata=metadata)


def read_metadata(
    addresses: Sequence[str], security: SecuritySettings = NO_SECURITY
) -> ClusterMetadata | None:
    """Metadata from the first node that answers; None if none does."""
    if not addresses:
        return None
    try:
        return asyncio.run(_fetch_metadata(Cluster(bootstrap=",".join(addresses), security=security)))
    except ClientError:
        return None


def _with_reasons(metadata: ClusterMetadata, cluster: Cluster, *, always: bool) -> ClusterMetadata:
    """Adds the disk events of the nodes, `always` or if replicas are out of sync or logs are offline."""
    has_events = any(each.topic == EVENTS_TOPIC for each in metadata.partitions)
    if not has_events or not (always or metadata.under_replicated or metadata.damaged_logs):
        return metadata
    try:
        return replace(metadata, disks=disk_events(cluster, timeout_ms=_TIMEOUT_MS))
    except ClientError:
        return metadata


async def _fetch_metadata(cluster: Cluster) -> ClusterMetadata:
    async with Brokers(cluster, timeout_ms=_TIMEOUT_MS) as brokers:
        reply = await brokers.metadata(None)
        features = (await brokers.any_connection()).features
        addresses = await _addresses(brokers, reply)
    return ClusterMetadata(
        cluster_id=str(reply.cluster_id or ""),
        controller=None if reply.controller_id < 0 else int(reply.controller_id),
        addresses=addresses,
        partitions=tuple(_partitions(reply.topics, addresses)),
        transaction_version=features.get("transaction.version", 0),
    )


async def _addresses(brokers: Brokers, metadata: Any) -> dict[int, str]:
    """Of the live nodes. Metadata lists a node for some time after its death, so that clients do not connect
    to it again and again; its replicas are offline, but not damaged."""
    if ApiKey.DESCRIBE_CLUSTER not in (await brokers.any_connection()).versions:
        return {int(node.node_id): f"{node.host}:{node.port}" for node in metadata.brokers}
    fields = {"include_cluster_authorized_operations": False}
    reply = await brokers.call_any(ApiKey.DESCRIBE_CLUSTER, fields)
    return {int(node.broker_id): f"{node.host}:{node.port}" for node in reply.brokers}


def _partitions(topics: Iterable[Any], live: Collection[int]) -> list[Partition]:
    return [
        Partition(
            topic=str(topic.name),
            index=int(each.partition_index),
            leader=int(each.leader_id),
            replicas=tuple(int(node) for node in each.replica_nodes),
            isr=tuple(int(node) for node in each.isr_nodes),
            damaged=tuple(int(node) for node in each.offline_replicas if int(node) in live),
        )
        for topic in sorted(topics, key=lambda topic: str(topic.name))
        for each in sorted(topic.partitions, key=lambda each: int(each.partition_index))
    ]


def _counts(metadata: ClusterMetadata | None, node_id: int) -> dict[str, int]:
    if metadata is None:
        return {}
    held = [each for each in metadata.partitions if node_id in each.replicas]
    return {
        "leaders": sum(each.leader == node_id for each in held),
        "replicas": len(held),
        "out_of_sync": sum(node_id not in each.isr for each in held),
    }


def _node_document(node: NodeStatus) -> dict[str, Any]:
    return {
        "id": node.node_id,
        "pid": node.pid,
        "address": node.address,
        "state": node.state,
        "leaders": node.leaders,
        "replicas": node.replicas,
        "out_of_sync": node.out_of_sync,
        "rss_bytes": node.rss_bytes,
    }
