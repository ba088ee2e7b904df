# SPDX-License-Identifier: Apache-2.0
"""The plan of a mixed run: more kinds of faults, topics that lose records, and stretches without faults.

Read next: cluster.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from headrace.coordination.memory import Profile
from tests.harness.simulation import cluster_faults
from tests.harness.simulation.cluster_plan import ClusterPlan
from tests.harness.simulation.producer import ProducerKind

FAULTS_S = 3.0
"""How long faults are injected at a time."""
SHORT_HOURS = 0.01
_SHORTEST_REST_S = 30.0
_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedPlan:
    cluster: ClusterPlan
    rests_s: tuple[float, ...]
    """How long the cluster is left alone after each time of faults: retention, compaction and scrubs run."""
    retention_ms: int
    """-1: by `retention_bytes`."""
    retention_bytes: int
    segment_ms: int
    tombstones_kept_ms: int
    replaces_node: bool
    clients_change_rules: bool
    topics_come_and_go: bool
    settings: dict[str, str]


def draw_plan(random: Random, hours: float = SHORT_HOURS) -> MixedPlan:
    """`hours`: about as much virtual time."""
    rest_s = max(_SHORTEST_REST_S, min(hours * _HOUR_S / 2, random.uniform(0.2, 1.0) * _HOUR_S))
    rests_s = tuple(rest_s for _ in range(max(1, round(hours * _HOUR_S / rest_s))))
    by_time = random.random() < 0.6
    replaces_node = random.random() < 0.3
    settings = {
        "log.retention.check.interval.ms": str(random.choice((1_000, 5_000))),
        "log.cleaner.backoff.ms": str(random.choice((1_000, 5_000))),
        "headrace.scrub.interval.ms": str(int(rest_s * 1000 / 4)),
        "replica.fetch.wait.max.ms": str(random.choice((500, 5_000))),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "log.cleaner.min.cleanable.ratio": "0.01",
    }
    return MixedPlan(
        cluster=_draw_cluster(random, spare=replaces_node, calm=hours > 1),
        rests_s=rests_s,
        retention_ms=int(rest_s * 1000 * random.choice((0.3, 0.6))) if by_time else -1,
        retention_bytes=-1 if by_time else random.choice((2_000, 10_000)),
        segment_ms=random.choice((300, 1_000, int(rest_s * 100))),
        tombstones_kept_ms=int(rest_s * 1000 * random.choice((0.2, 2.0))),
        replaces_node=replaces_node,
        clients_change_rules=random.random() < 0.7,
        topics_come_and_go=random.random() < 0.7,
        settings=settings,
    )


def _draw_cluster(random: Random, *, spare: bool, calm: bool) -> ClusterPlan:
    profile: Profile = random.choice(("sqlite", "zookeeper"))
    faults = [*cluster_faults.OF_ONE_NODE, *cluster_faults.BETWEEN_NODES, *cluster_faults.OF_POWER]
    if profile == "zookeeper":
        faults += cluster_faults.CUTS
    nodes = random.choice((3, 3, 4)) + spare
    more = [*cluster_faults.OF_SITES, *cluster_faults.OF_FILES]
    return ClusterPlan(
        nodes=nodes,
        profile=profile,
        flush=random.choice(("ack", "os")),
        partitions=1,
        replicas=3,
        session_ms=random.choice((1500, 3000, *((9000, 18000) if calm else ()))),
        moves=not spare and random.random() < 0.3,
        duration_s=FAULTS_S,
        producers=(ProducerKind(acks=-1, idempotent=True, depth=random.choice((1, 3, 5)), pause_s=0.5),),
        allowed_faults=(*random.sample(faults, random.randint(2, 6)), *random.sample(more, 3), "clock_jump"),
        lag_ms=random.choice((1_000, 10_000)),
    )
