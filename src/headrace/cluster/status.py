"""How a cluster stands: its processes as this host sees them, its partitions as the cluster tells them.

Asks any node that answers, by the Kafka protocol, so that it works for both engines and for clusters that run
elsewhere. Prints nothing. Read next: supervisor.py; the words for it are the command line's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.client.brokers import Brokers
from headrace.client.disk_events import DiskEvents, disk_events
from headrace.client.errors import ClientError
from headrace.cluster.engines.process_stats import read_process_tree
from headrace.cluster.folder import ClusterFolder
from headrace.cluster.processes import find, state_of

_TIMEOUT_MS = 3_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    node_id: int
    address: str
    state: str
    """As this host sees the process; "registered" or "not registered" for a node of another host."""
    pid: int | None = None
    leaders: int = 0
    replicas: int = 0
    out_of_sync: int = 0
    rss_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    topic: str
    index: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    damaged: tuple[int, ...] = ()
    """Live nodes whose log of it is offline."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What a node said about the cluster."""

    cluster_id: str = ""
    controller: int | None = None
    addresses: Mapping[int, str] = field(default_factory=dict)
    partitions: tuple[Partition, ...] = ()
    disks: DiskEvents = field(default_factory=lambda: DiskEvents({}, {}))
    """Asked for where something is wrong."""

    @property
    def damaged_logs(self) -> list[tuple[Partition, int, str]]:
        """Partition, node, and why."""
        return [
            (each, node, self.disks.damaged.get((each.topic, each.index, node), "see that node's log"))
            for each in self.partitions
            for node in each.damaged
        ]

    @property
    def under_replicated(self) -> list[Partition]:
        return [each for each in self.partitions if len(each.isr) < len(each.replicas)]

    @property
    def without_leader(self) -> list[Partition]:
        return [each for each in self.partitions if each.leader < 0]

    @property
    def same_host(self) -> list[Partition]:
        """Partitions with several replicas, all of whose in-sync ones are on one host."""
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
    picture: Picture | None
    """None: no node answers."""
    supervised: bool | None = None

    def document(self) -> dict[str, Any]:
        picture = self.picture or Picture()
        return {
            "engine": self.engine,
            "cluster_id": picture.cluster_id or None,
            "answers": self.picture is not None,
            "controller": picture.controller,
            "nodes": [_node_document(node) for node in self.nodes],
            "partitions": len(picture.partitions),
            "under_replicated": len(picture.under_replicated),
            "under_replicated_partitions": [str(each) for each in picture.under_replicated],
            "without_leader": len(picture.without_leader),
            "without_leader_partitions": [str(each) for each in picture.without_leader],
            "damaged_logs": [
                {"partition": str(each), "node": node, "reason": reason}
                for each, node, reason in picture.damaged_logs
            ],
            "full_disks": [
                {"node": node, "reason": reason} for node, reason in sorted(picture.disks.full.items())
            ],
            "same_host": len(picture.same_host),
            "supervised": self.supervised,
        }


def read_status(folder: ClusterFolder) -> ClusterStatus:
    """Of a cluster on this host."""
    plan = folder.read()
    processes = {member.node_id: find(folder.node(member.node_id)) for member in plan.members}
    states = {member.node_id: state_of(member, processes[member.node_id]) for member in plan.members}
    answering = [member.address for member in plan.members if states[member.node_id] == "running"]
    picture = read_picture(answering)
    if picture is not None:
        picture = _with_reasons(picture, ",".join(answering))
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
                **_counts(picture, member.node_id),
            )
        )
    return ClusterStatus(
        engine=plan.engine, nodes=tuple(nodes), picture=picture, supervised=folder.is_supervised()
    )


def read_remote_status(bootstrap: str) -> ClusterStatus:
    """Of a cluster that runs anywhere: what it tells. Raises ClientError when nobody answers."""
    picture = _with_reasons(asyncio.run(_ask(bootstrap)), bootstrap)
    known = set(picture.addresses) | {node for each in picture.partitions for node in each.replicas}
    nodes = tuple(
        NodeStatus(
            node_id=node,
            address=picture.addresses.get(node, "-"),
            state="registered" if node in picture.addresses else "not registered",
            **_counts(picture, node),
        )
        for node in sorted(known)
    )
    return ClusterStatus(engine="", nodes=nodes, picture=picture)


def read_picture(addresses: Sequence[str]) -> Picture | None:
    """From the first that answers; None when none does."""
    if not addresses:
        return None
    try:
        return asyncio.run(_ask(",".join(addresses)))
    except ClientError:
        return None


def _with_reasons(picture: Picture, bootstrap: str) -> Picture:
    """Where replicas are missing, the nodes may have written down why."""
    if not picture.under_replicated and not picture.damaged_logs:
        return picture
    try:
        return replace(picture, disks=disk_events(bootstrap))
    except ClientError:
        return picture


async def _ask(bootstrap: str) -> Picture:
    async with Brokers(bootstrap, timeout_ms=_TIMEOUT_MS) as brokers:
        reply = await brokers.metadata(None)
    return Picture(
        cluster_id=str(reply.cluster_id or ""),
        controller=None if reply.controller_id < 0 else int(reply.controller_id),
        addresses={int(node.node_id): f"{node.host}:{node.port}" for node in reply.brokers},
        partitions=tuple(_partitions(reply.topics, {int(node.node_id) for node in reply.brokers})),
    )


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


def _counts(picture: Picture | None, node_id: int) -> dict[str, int]:
    partitions = () if picture is None else picture.partitions
    held = [each for each in partitions if node_id in each.replicas]
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
