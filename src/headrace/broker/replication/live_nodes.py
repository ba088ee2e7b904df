# SPDX-License-Identifier: Apache-2.0
"""Live nodes and damaged logs of a view, as the replication machines take them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from headrace.machines.replication.leader import Nodes
from headrace.machines.replication.slow_nodes import found_slow
from headrace.types import ClusterView, Node, TopicId

DamagedLogs = Mapping[tuple[TopicId, int], Collection[int]]
"""By partition, the nodes on which its log is damaged (R27); most partitions have no entry."""


def live_nodes(view: ClusterView) -> Nodes:
    return nodes_of(view.nodes.values())


def nodes_of(nodes: Collection[Node]) -> Nodes:
    return Nodes(
        {node.node_id: node.epoch for node in nodes},
        frozenset(node.node_id for node in nodes if node.leaving),
        frozenset(node.node_id for node in nodes if node.full),
        _slow(nodes),
    )


def slow_in(view: ClusterView) -> frozenset[int]:
    """The nodes that lead nothing while others can (R16b)."""
    return _slow(view.nodes.values())


def _slow(nodes: Collection[Node]) -> frozenset[int]:
    return found_slow({node.node_id: node.slow for node in nodes})


def damaged_logs(view: ClusterView) -> DamagedLogs:
    return damaged_on((*view.nodes.values(), *view.joining.values()))


def last_epochs(view: ClusterView) -> Mapping[tuple[TopicId, int], int]:
    """Of damaged logs, the last leader epoch in which one of them was fetched for (R27)."""
    latest: dict[tuple[TopicId, int], int] = {}
    for node in (*view.nodes.values(), *view.joining.values()):
        for topic_id, index, epoch in node.offline_epochs:
            latest[topic_id, index] = max(epoch, latest.get((topic_id, index), epoch))
    return latest


def damaged_on(nodes: Iterable[Node]) -> DamagedLogs:
    damaged: dict[tuple[TopicId, int], set[int]] = {}
    for node in nodes:
        for partition in node.offline:
            damaged.setdefault(partition, set()).add(node.node_id)
    return damaged
