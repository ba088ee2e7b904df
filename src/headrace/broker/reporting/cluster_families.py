# SPDX-License-Identifier: Apache-2.0
"""Metrics of the cluster: controller, elections, under-replicated and leaderless partitions, follower lag.

Counts over all partitions are exported by the controller only, so that sums over nodes are right.
Read next: controller/loop.py, replication/replicas.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from headrace.broker.controller.placement import share_one_host
from headrace.broker.replication.replicas import ReplicationFigures
from headrace.broker.reporting.metric_family import Family, MetricSources, Read, Sample
from headrace.types import NO_NODE, ClusterView


class Health(NamedTuple):
    """Numbers of partitions in the whole cluster that need attention."""

    under_replicated: int
    offline: int
    same_host: int
    """All in-sync replicas, of several, are on one host."""
    moving: int


def health(view: ClusterView) -> Health:
    under = offline = same_host = moving = 0
    for topic in view.topics.values():
        moving += len(topic.moves)
        for state in topic.partitions:
            under += len(state.isr) < len(state.replicas)
            offline += state.leader == NO_NODE
            same_host += share_one_host(state.isr, view.nodes)
    return Health(under, offline, same_host, moving)


def _backup_age(sources: MetricSources) -> list[Sample]:
    age_s = sources.store_backup_age_s()
    return [] if age_s is None else [((), age_s)]


def _of_view(read: Callable[[ClusterView], float]) -> Read:
    return lambda sources: [((), read(sources.view()))]


def _of_controller(read: Callable[[Health], int]) -> Read:
    return lambda sources: [((), read(health(sources.view())))] if sources.is_controller() else []


def _elections(sources: MetricSources) -> list[Sample]:
    counters = sources.metrics.controller
    clean = counters.elections - counters.unclean_elections
    return [(("clean",), clean), (("unclean",), counters.unclean_elections)]


def _isr_changes(sources: MetricSources) -> list[Sample]:
    counters = sources.metrics.controller
    return [(("shrink",), counters.isr_shrinks), (("expand",), counters.isr_expands)]


def _slow_nodes(sources: MetricSources) -> list[Sample]:
    """For every node that was measured or found slow: 0 tells that it is not."""
    figures = sources.replication()
    known = sorted({*figures.ack_ms, *figures.slow_moves, *figures.slow})
    return [((str(node),), float(node in figures.slow)) for node in known]


def _slow_moves(sources: MetricSources) -> list[Sample]:
    return [((str(node),), moves) for node, moves in sorted(sources.replication().slow_moves.items())]


def _ack_seconds(sources: MetricSources) -> list[Sample]:
    return [((str(node),), ms / 1000) for node, ms in sorted(sources.replication().ack_ms.items())]


def _of_replication(read: Callable[[ReplicationFigures], int]) -> Read:
    return lambda sources: [((), read(sources.replication()))]


CLUSTER_FAMILIES = (
    Family(
        name="headrace_nodes",
        kind="gauge",
        help="Live nodes, as this node sees the cluster.",
        read=_of_view(lambda view: len(view.nodes)),
    ),
    Family(
        name="headrace_controller",
        kind="gauge",
        help="1 on the node that is the controller, else 0.",
        read=lambda sources: [((), float(sources.is_controller()))],
    ),
    Family(
        name="headrace_controller_epoch",
        kind="gauge",
        help="Rises whenever a node becomes the controller.",
        read=_of_view(lambda view: view.controller_epoch),
    ),
    Family(
        name="headrace_coordination_backup_age_seconds",
        kind="gauge",
        help="Since the newest backup of the SQLite store, on the controller; nothing while there is none.",
        read=_backup_age,
    ),
    Family(
        name="headrace_partitions_under_replicated",
        kind="gauge",
        help="Partitions of the cluster with fewer in-sync replicas than replicas; from the controller.",
        read=_of_controller(lambda found: found.under_replicated),
    ),
    Family(
        name="headrace_partitions_leaderless",
        kind="gauge",
        help="Partitions of the cluster without a leader; from the controller.",
        read=_of_controller(lambda found: found.offline),
    ),
    Family(
        name="headrace_partitions_same_host",
        kind="gauge",
        help="Partitions whose in-sync replicas, of several, are all on one host; from the controller.",
        read=_of_controller(lambda found: found.same_host),
    ),
    Family(
        name="headrace_partitions_moving",
        kind="gauge",
        help="Partitions on their way to other replicas; from the controller.",
        read=_of_controller(lambda found: found.moving),
    ),
    Family(
        name="headrace_leader_elections",
        kind="counter",
        help="Leaders chosen by this node as controller; an unclean one gave records up.",
        labels=("kind",),
        read=_elections,
    ),
    Family(
        name="headrace_isr_changes",
        kind="counter",
        help="Changes of in-sync replicas written by this node as controller.",
        labels=("kind",),
        read=_isr_changes,
    ),
    Family(
        name="headrace_partitions_followed",
        kind="gauge",
        help="Partitions of which this node is a follower.",
        read=_of_replication(lambda figures: figures.followed),
    ),
    Family(
        name="headrace_replica_lag_records",
        kind="gauge",
        help="Committed records that this node lacks of the partition in which it is furthest behind.",
        read=_of_replication(lambda figures: figures.longest_lag),
    ),
    Family(
        name="headrace_partitions_below_min_insync",
        kind="gauge",
        help="Partitions led by this node that refuse acks=all for want of in-sync replicas.",
        read=_of_replication(lambda figures: figures.below_min_insync),
    ),
    Family(
        name="headrace_replica_ack_seconds",
        kind="gauge",
        help="How long a replica, or this node's own disk, last took to acknowledge what this node appended.",
        labels=("node",),
        read=_ack_seconds,
    ),
    Family(
        name="headrace_slow_node",
        kind="gauge",
        help="1 for a node that this node finds slow, else 0.",
        labels=("node",),
        read=_slow_nodes,
    ),
    Family(
        name="headrace_slow_node_moves",
        kind="counter",
        help="How often this node found a node slow.",
        labels=("node",),
        read=_slow_moves,
    ),
)
