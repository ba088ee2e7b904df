# SPDX-License-Identifier: Apache-2.0
"""Settings of one Apache Kafka node of a cluster; otherwise Kafka's defaults.

Only what a node requires is set; internal topics have as many replicas as there are nodes, up to
Kafka's own default of three. Read next: kafka.py.
"""

from __future__ import annotations

from pathlib import Path

from headrace.cluster.plan import ClusterPlan, Member

_KAFKAS_REPLICAS = 3


def kafka_member_settings(plan: ClusterPlan, member: Member, logs: Path) -> dict[str, str]:
    voters = [each for each in plan.members if each.controller_port is not None]
    listeners = [f"PLAINTEXT://{member.host}:{member.port}"]
    if member.controller_port is not None:
        listeners.append(f"CONTROLLER://{member.host}:{member.controller_port}")
    replicas = str(min(_KAFKAS_REPLICAS, len(plan.members)))
    in_sync = str(max(int(replicas) - 1, 1))
    return {
        "process.roles": "broker" if member.controller_port is None else "broker,controller",
        "node.id": str(member.node_id),
        "controller.quorum.voters": ",".join(
            f"{each.node_id}@{each.host}:{each.controller_port}" for each in voters
        ),
        "controller.listener.names": "CONTROLLER",
        "listeners": ",".join(listeners),
        "advertised.listeners": f"PLAINTEXT://{member.host}:{member.port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(logs),
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
    }
