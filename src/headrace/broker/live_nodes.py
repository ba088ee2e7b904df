"""The cluster's live nodes as the replication machines take them. Pure: a view in, `Nodes` out."""

from __future__ import annotations

from headrace.machines.leader import Nodes
from headrace.types import ClusterView


def live_nodes(view: ClusterView) -> Nodes:
    nodes = view.nodes.values()
    return Nodes(
        {node.node_id: node.epoch for node in nodes},
        frozenset(node.node_id for node in nodes if node.leaving),
    )
