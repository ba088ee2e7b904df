# SPDX-License-Identifier: Apache-2.0
"""Idle clients that take every connection of a node do not keep its followers out of the ISR (S3)."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.harness.live.cluster import LiveCluster

PLACES = 40
SETTINGS = {
    "max.connections": str(PLACES),
    "max.connection.creation.rate": "100000",
    "broker.session.timeout.ms": "2000",
}


@contextmanager
def idle_clients(cluster: LiveCluster) -> Iterator[None]:
    """As many as each running node accepts, and some more."""
    plan = cluster.folder.read()
    with ExitStack() as sockets:
        for node_id in cluster.alive():
            member = plan.member(node_id)
            for _ in range(PLACES + 10):
                sockets.enter_context(socket.create_connection((member.host, member.port)))
        yield


def test_a_follower_comes_back_into_the_isr_though_idle_clients_take_all_places(tmp_path: Path) -> None:
    with LiveCluster(tmp_path / "cluster", settings=SETTINGS) as cluster:
        cluster.create_topic("t", [[*cluster.node_ids]])
        leader = cluster.leader("t", 0)
        follower = next(node_id for node_id in cluster.node_ids if node_id != leader)
        cluster.kill(follower)
        with idle_clients(cluster):
            cluster.start(follower)
            cluster.wait_in_sync()
