# SPDX-License-Identifier: Apache-2.0
"""View `cluster`: nodes with the replicas they hold, what changed, and what needs attention.

Its document is described in docs/design/console.md. Read next: tiles.py, changes.py, alarms/alarms.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from headrace.console.state.model import NodeState, PartitionState, Snapshot, TopicState
from headrace.console.views.admin_document import command, document
from headrace.console.views.alarms.alarms import cluster_alarms
from headrace.console.views.cluster.changes import changes
from headrace.console.views.cluster.tiles import Tiles, tiles_by_node
from headrace.console.views.lag_figures import rounded
from headrace.console.views.view import Document, Params, Source, View


@dataclass(slots=True)
class _Counts:
    leaders: int = 0
    replicas: int = 0
    out_of_sync: int = 0
    records_in: float | None = None


async def build(source: Source, snapshot: Snapshot, params: Params) -> Document:
    counts, tiles = _counts(snapshot), tiles_by_node(snapshot)
    partitions = list(_partitions(snapshot))
    rates = [each.rate_in for _, each in partitions if each.rate_in is not None]
    parts: Document = {
        "controller": snapshot.controller,
        "cluster_id": snapshot.cluster_id,
        "partitions": len(partitions),
        "under_replicated": sum(each.under_replicated for _, each in partitions),
        "without_leader": sum(each.leader is None for _, each in partitions),
        "topics": len(snapshot.topics),
        "groups": len(snapshot.groups),
        "nodes": [
            _node(snapshot, node, counts[node_id], tiles[node_id])
            for node_id, node in sorted(snapshot.nodes.items())
        ],
        "rate_in": rounded(sum(rates)) if rates else None,
        "changes": changes(snapshot),
    }
    return document(
        "cluster",
        snapshot,
        parts,
        unknown=snapshot.unknown,
        alarms=cluster_alarms(snapshot),
        commands=[
            command("State of the cluster", "cluster", "status", "--bootstrap", str(source.cluster)),
            command("Elect the preferred leaders", "cluster", "elect", "--bootstrap", str(source.cluster)),
        ],
    )


def _partitions(snapshot: Snapshot) -> Iterator[tuple[TopicState, PartitionState]]:
    for topic in snapshot.topics.values():
        for partition in topic.partitions.values():
            yield topic, partition


def _counts(snapshot: Snapshot) -> dict[int, _Counts]:
    found: dict[int, _Counts] = defaultdict(_Counts)
    for _, partition in _partitions(snapshot):
        for node_id in partition.replicas:
            found[node_id].replicas += 1
            found[node_id].out_of_sync += node_id not in partition.isr
        if partition.leader is not None:
            leader = found[partition.leader]
            leader.leaders += 1
            if partition.rate_in is not None:
                leader.records_in = (leader.records_in or 0.0) + partition.rate_in
    return found


def _node(snapshot: Snapshot, node: NodeState, counts: _Counts, tiles: Tiles) -> Document:
    return {
        "id": node.node_id,
        "host": node.host,
        "port": node.port,
        "rack": node.rack,
        "state": "up" if node.up else "down",
        "since": node.since_ms,
        "controller": node.node_id == snapshot.controller,
        "leaders": counts.leaders,
        "replicas": counts.replicas,
        "out_of_sync": counts.out_of_sync,
        "records_in": rounded(counts.records_in),
        "disk_used": node.disk_used_bytes,
        "disk_free": node.disk_free_bytes,
        "disk_total": node.disk_total_bytes,
        "problem": node.disk_problem or node.problem,
        "tiles": tiles.shown,
        "tiles_more": tiles.more,
    }


VIEW = View(name="cluster", build=build, history=True)
