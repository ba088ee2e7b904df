# SPDX-License-Identifier: Apache-2.0
"""A private listener is for nodes only; the listener of clients takes no requests of nodes (S3)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.client.connection import Connection, ConnectionLost
from headrace.cluster.engines.engine import PreparedNode, free_ports
from headrace.wire.api_key import ApiKey
from headrace.wire.api_table import NODE_APIS
from tests.harness.live.cluster import LiveCluster

HOST = "127.0.0.1"


class TwoListeners:
    """Gives each node a second listener, for nodes."""

    def __init__(self) -> None:
        self.inner: dict[int, int] = {}

    def __call__(self, node_id: int, prepared: PreparedNode) -> PreparedNode:
        if node_id not in self.inner:
            taken = " ".join(prepared.command)  # its first listener's port is not bound yet
            self.inner[node_id] = next(port for port in free_ports(2) if f":{port}" not in taken)
        more = ("--listener", f"inside={HOST}:{self.inner[node_id]}")
        settings = ("inter.broker.listener.name=INSIDE", "headrace.inter.broker.listener.private=true")
        more += tuple(word for setting in settings for word in ("--set", setting))
        return replace(prepared, command=(*prepared.command, *more))


@pytest.fixture(scope="module")
def listeners() -> TwoListeners:
    return TwoListeners()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, listeners: TwoListeners) -> Iterator[LiveCluster]:
    folder: Path = tmp_path_factory.mktemp("private") / "cluster"
    with LiveCluster(folder, dress=listeners) as cluster:
        cluster.create_topic("t", [[*cluster.node_ids]])
        yield cluster


def test_nodes_replicate_over_their_own_listener(cluster: LiveCluster) -> None:
    metadata = cluster.metadata()
    assert metadata is not None
    (partition,) = (each for each in metadata.partitions if each.topic == "t")
    assert set(partition.isr) == set(cluster.node_ids)


def test_a_client_is_refused_on_the_listener_of_nodes(cluster: LiveCluster, listeners: TwoListeners) -> None:
    async def ask(port: int) -> None:
        connection = await Connection.open(HOST, port)
        try:
            await connection.call(ApiKey.METADATA, {"topics": None})
        finally:
            connection.abort()

    with pytest.raises(ConnectionLost):
        asyncio.run(ask(listeners.inner[cluster.node_ids[0]]))


def test_a_clients_listener_does_not_advertise_requests_of_nodes(cluster: LiveCluster) -> None:
    async def served() -> set[int]:
        member = cluster.folder.read().members[0]
        connection = await Connection.open(member.host, member.port)
        await connection.close()
        return set(connection.versions)

    assert not asyncio.run(served()) & NODE_APIS
