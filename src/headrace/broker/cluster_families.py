"""The metrics of a cluster: controller, elections, partitions that lack something.

What is counted over all partitions comes from the controller alone, so that sums over nodes are right.
Read next: cluster_metrics.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from headrace.broker.cluster_metrics import ClusterMetrics, Health, health
from headrace.broker.metric_family import Family, Sample

if TYPE_CHECKING:
    from headrace.broker.metrics import Metrics, ReplicationFigures


def _of_cluster(read: Callable[[ClusterMetrics], float]) -> Callable[[Metrics], Iterable[Sample]]:
    return lambda metrics: [] if metrics.cluster is None else [((), read(metrics.cluster))]


def _of_controller(read: Callable[[Health], int]) -> Callable[[Metrics], Iterable[Sample]]:
    def samples(metrics: Metrics) -> Iterable[Sample]:
        if metrics.cluster is None or not metrics.cluster.is_controller:
            return []
        return [((), read(health(metrics.cluster.view)))]

    return samples


def _elections(metrics: Metrics) -> list[Sample]:
    cluster = metrics.cluster
    if cluster is None:
        return []
    clean = cluster.elections - cluster.unclean_elections
    return [(("clean",), clean), (("unclean",), cluster.unclean_elections)]


def _isr_changes(metrics: Metrics) -> list[Sample]:
    cluster = metrics.cluster
    return [] if cluster is None else [(("shrink",), cluster.isr_shrinks), (("expand",), cluster.isr_expands)]


def _of_replication(read: Callable[[ReplicationFigures], int]) -> Callable[[Metrics], Iterable[Sample]]:
    return lambda metrics: [] if metrics.replication is None else [((), read(metrics.replication()))]


CLUSTER_FAMILIES = (
    Family(
        name="headrace_nodes",
        kind="gauge",
        help="Live nodes, as this node sees the cluster.",
        read=_of_cluster(lambda cluster: len(cluster.view.nodes)),
    ),
    Family(
        name="headrace_controller",
        kind="gauge",
        help="1 on the node that is the controller, else 0.",
        read=_of_cluster(lambda cluster: float(cluster.is_controller)),
    ),
    Family(
        name="headrace_controller_epoch",
        kind="gauge",
        help="Rises whenever a node becomes the controller.",
        read=_of_cluster(lambda cluster: cluster.view.controller_epoch),
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
)
