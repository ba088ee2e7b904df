# SPDX-License-Identifier: Apache-2.0
"""Three nodes of Apache Kafka: the first also controls and stays, the others can be killed and come back."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from headrace.cluster.engines.engine import PreparedNode, RunningNode, free_ports
from headrace.cluster.engines.kafka import KafkaEngine
from headrace.cluster.plan import new_cluster_id
from tests.harness.groups.polled_consumers import QUICK_GROUPS

_TIMEOUT_S = 30
_SETTINGS = {
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.num.partitions": "4",
    "min.insync.replicas": "1",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    **QUICK_GROUPS,
}


class KafkaTrio:
    """Use it as a context manager. Nodes are numbered from 1."""

    def __init__(self, engine: KafkaEngine, folder: Path) -> None:
        ports = free_ports(4)
        cluster_id = new_cluster_id()
        self._prepared: dict[int, PreparedNode] = {}
        self._running: dict[int, RunningNode] = {}
        for node_id, port in enumerate(ports[:3], start=1):
            settings = {**_SETTINGS, **_addresses(node_id, port, ports[3])}
            prepared = engine.prepare(folder / str(node_id), settings, cluster_id=cluster_id)
            self._prepared[node_id] = dataclasses.replace(prepared, port=port)

    def __enter__(self) -> KafkaTrio:
        for node_id in self._prepared:
            self.start(node_id)
        return self

    def __exit__(self, *_: object) -> None:
        for node_id in list(self._running):
            self.kill(node_id)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{node.host}:{node.port}" for node in self._prepared.values())

    def start(self, node_id: int) -> None:
        self._running[node_id] = self._prepared[node_id].launch()

    def kill(self, node_id: int) -> None:
        """SIGKILL."""
        self._running.pop(node_id).kill()

    def create(self, topic: str, *replicas: tuple[int, ...]) -> None:
        """A partition for each of these; the first of its replicas leads it."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        assignment = [list(nodes) for nodes in replicas]
        new = NewTopic(topic, len(assignment), replica_assignment=assignment)
        admin.create_topics([new])[topic].result(_TIMEOUT_S)

    def leader(self, topic: str, partition: int) -> int:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        return int(admin.list_topics(topic, _TIMEOUT_S).topics[topic].partitions[partition].leader)


def _addresses(node_id: int, port: int, controller_port: int) -> dict[str, str]:
    controls = node_id == 1
    listeners = [f"PLAINTEXT://127.0.0.1:{port}"]
    if controls:
        listeners.append(f"CONTROLLER://127.0.0.1:{controller_port}")
    return {
        "process.roles": "broker,controller" if controls else "broker",
        "node.id": str(node_id),
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": ",".join(listeners),
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
    }
