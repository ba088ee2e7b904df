# SPDX-License-Identifier: Apache-2.0
"""Three nodes that reach each other over TLS alone, each with a certificate of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer

import headrace
from headrace.cluster.engines.engine import PreparedNode, free_ports
from tests.harness.live.certificates import Authority
from tests.harness.live.cluster import LiveCluster
from tests.harness.waiting import wait_until

VALUES = [b"%d" % number * 20 for number in range(1_000)]


class BetweenNodes:
    """Adds a TLS listener for the other nodes, which has to be given a certificate."""

    def __init__(self, authority: Authority, *, alternative: str = "DNS:localhost") -> None:
        self.authority = authority
        self._alternative = alternative
        self.extra: list[str] = []

    def dress(self, node_id: int, prepared: PreparedNode) -> PreparedNode:
        certificate = self.authority.issue(f"node-{node_id}", alternative=self._alternative)
        (port,) = free_ports(1)
        settings = {
            "inter.broker.listener.name": "BETWEEN",
            "ssl.keystore.location": certificate,
            "ssl.truststore.location": self.authority.ca,
            "ssl.client.auth": "required",
        }
        listener = f"between=127.0.0.1:{port},advertise=localhost:{port},protocol=SSL"
        flags = [flag for key, value in settings.items() for flag in ("--set", f"{key}={value}")]
        command = (*prepared.command, "--listener", listener, *flags, *self.extra)
        return replace(prepared, command=command)


def log_text(cluster: LiveCluster) -> str:
    folders = [cluster.folder.node(node_id) for node_id in cluster.node_ids]
    return "".join(path.read_text() for folder in folders for path in folder.glob("*.log"))


def test_three_nodes_replicate_over_tls_and_survive_a_kill(tmp_path: Path) -> None:
    between = BetweenNodes(Authority(tmp_path / "ca"))
    with LiveCluster(tmp_path / "cluster", dress=between.dress) as cluster:
        cluster.create_topic("t", [cluster.node_ids], min_insync_replicas="2")
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        for value in VALUES[:500]:
            producer.produce("t", value)
        assert producer.flush(30) == 0
        cluster.wait_in_sync()
        first, *others = cluster.node_ids
        cluster.kill(first)
        cluster.wait_until(lambda seen: all(each.leader in others for each in seen.partitions))
        for value in VALUES[500:]:
            producer.produce("t", value)
        assert producer.flush(30) == 0
        cluster.start(first)
        cluster.wait_in_sync()
        back = headrace.topic("t", bootstrap=cluster.bootstrap).select("value").to_arrow()
        assert back["value"].to_pylist() == VALUES
        assert "TLS handshake failed" not in log_text(cluster)


@pytest.mark.parametrize("checked", [True, False])
def test_nodes_check_the_host_name_in_each_others_certificates(tmp_path: Path, checked: bool) -> None:
    between = BetweenNodes(Authority(tmp_path / "ca"), alternative="DNS:elsewhere")
    if not checked:
        between.extra = ["--set", "ssl.endpoint.identification.algorithm="]
    with LiveCluster(tmp_path / "cluster", dress=between.dress) as cluster:
        cluster.create_topic("t", [cluster.node_ids])
        if not checked:
            cluster.wait_in_sync()
            return
        wait_until(lambda: "Hostname mismatch" in log_text(cluster))
