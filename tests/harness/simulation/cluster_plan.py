# SPDX-License-Identifier: Apache-2.0
"""The plan that a seed draws for a simulated cluster: how many nodes, which store, which faults.

Read next: several_nodes.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from headrace.config import NodeConfig, load_config
from headrace.coordination.memory import Profile
from headrace.testing.simworld import DATA_DIRECTORY
from tests.harness.simulation import cluster_faults
from tests.harness.simulation.producer import ProducerKind

PORT = 9092
DURATION_S = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    nodes: int
    profile: Profile
    flush: str
    partitions: int
    replicas: int
    session_ms: int
    moves: bool
    """Somebody asks for preferred leaders and for other replicas meanwhile."""
    duration_s: float
    producers: tuple[ProducerKind, ...]
    allowed_faults: tuple[str, ...]
    lag_ms: int = 10_000
    """How long a replica may be behind before its leader wants it out of sync (R15, R16)."""


def draw_plan(random: Random, duration_s: float = DURATION_S) -> ClusterPlan:
    profile: Profile = random.choice(("sqlite", "zookeeper"))
    flush = random.choice(("ack", "os"))
    faults = [*cluster_faults.OF_ONE_NODE, *cluster_faults.BETWEEN_NODES, *cluster_faults.OF_POWER]
    if profile == "zookeeper":
        faults += cluster_faults.CUTS
    nodes = random.choice((3, 3, 3, 4, 5))
    idempotent = ProducerKind(acks=-1, idempotent=True, depth=random.choice((1, 3, 5)), pause_s=0.5)
    others = [ProducerKind(acks=acks, depth=random.choice((1, 4)), pause_s=0.6) for acks in (-1, 1, 0)]
    return ClusterPlan(
        nodes=nodes,
        profile=profile,
        flush=flush,
        partitions=random.choice((1, 1, 2)),
        replicas=random.choice((3, 3, nodes)),
        session_ms=random.choice((1500, 3000)),
        moves=random.random() < 0.3,
        duration_s=duration_s,
        producers=(idempotent, random.choice(others)),
        allowed_faults=tuple(random.sample(faults, random.randint(3, 8))),
        lag_ms=random.choice((1_000, 10_000)),
    )


def node_config(plan: ClusterPlan, node_id: int, more: Mapping[str, str]) -> NodeConfig:
    settings = {
        "node.id": str(node_id),
        "log.dirs": str(DATA_DIRECTORY),
        "listeners": f"PLAINTEXT://{host_of(node_id)}:{PORT}",
        "listeners.allow.anonymous": "true",
        "broker.session.timeout.ms": str(plan.session_ms),
        "replica.lag.time.max.ms": str(plan.lag_ms),
        "offsets.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "3000",  # as in a cluster: these nodes share a store of the test
        "headrace.flush.default": plan.flush,
        "headrace.flush.interval.ms": "300",
        "headrace.metrics.port": "-1",
        "headrace.disk.reserve.bytes": "500",
        "headrace.slow.replica.return.ms": "3000",  # all are to be in sync again within PROGRESS_S
        **more,
    }
    return load_config(None, settings, None)


def host_of(node_id: int) -> str:
    return f"node{node_id}"
