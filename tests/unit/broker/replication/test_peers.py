# SPDX-License-Identifier: Apache-2.0
"""Connections between nodes: kept, opened again, and the sign by which a dead process is known at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.broker.replication.peers import CONNECT_TIMEOUT_MS, PeerLost, Peers, PeerTimedOut
from headrace.broker.security.node_login import NodeLogin
from headrace.types import ClusterView
from headrace.wire.messages import decode_reply, encode_request
from tests.harness.broker.simulated_node import SimBroker, on_a_node

METADATA = 3
DESCRIBE_CLUSTER = 60


class Neighbour:
    """Another node that has only its connections."""

    def __init__(self, node: SimBroker) -> None:
        self.view: ClusterView = node.broker.cluster.view
        self.dead: list[tuple[int, int]] = []
        self.world = node.simulation.start_process("neighbour")
        secret = node.broker.cluster.node_secret
        login = NodeLogin(node_id=7, secret=lambda: secret, random=self.world.random)
        self.peers = Peers(world=self.world, node_id=7, view=lambda: self.view, listener=None, login=login)
        self.peers.on_refused(lambda *who: self.dead.append(who))

    async def ask(self) -> str:
        reply = await self.peers.request(1, DESCRIBE_CLUSTER, None, {}, 1000)
        return str(reply.cluster_id)


def test_requests_share_one_connection() -> None:
    async def scenario(node: SimBroker) -> None:
        neighbour = Neighbour(node)
        assert await neighbour.ask() == node.broker.cluster.view.cluster_id
        before = len(node.simulation.network.transports)
        await neighbour.ask()
        assert len(node.simulation.network.transports) == before
        await neighbour.peers.close()

    on_a_node(scenario)


def test_a_late_reply_is_told_from_a_lost_connection() -> None:
    async def scenario(node: SimBroker) -> None:
        neighbour = Neighbour(node)
        await neighbour.ask()
        with pytest.raises(PeerTimedOut):
            await neighbour.peers.request(1, DESCRIBE_CLUSTER, None, {}, timeout_ms=0)
        await node.kill()
        with pytest.raises(PeerLost) as lost:
            await neighbour.ask()
        assert not isinstance(lost.value, PeerTimedOut)
        await neighbour.peers.close()

    on_a_node(scenario)


def test_a_request_is_forwarded_byte_by_byte() -> None:
    async def scenario(node: SimBroker) -> None:
        neighbour = Neighbour(node)
        body = encode_request(METADATA, 12, 0, None, {"topics": []})[4 + 8 + 2 + 1 :]
        reply = await neighbour.peers.forward(1, METADATA, 12, body, 1000)
        correlation_id, decoded = decode_reply(METADATA, 12, memoryview(reply.for_request(77))[4:])
        assert correlation_id == 77
        assert decoded.cluster_id == node.broker.cluster.view.cluster_id
        await neighbour.peers.close()

    on_a_node(scenario)


def test_a_killed_peer_is_named_with_its_epoch() -> None:
    async def scenario(node: SimBroker) -> None:
        neighbour = Neighbour(node)
        neighbour.peers.watch([1])
        await neighbour.ask()
        await node.kill()
        with pytest.raises(PeerLost):
            await neighbour.ask()
        await neighbour.world.tasks.sleep(1)
        assert set(neighbour.dead) == {(1, neighbour.view.nodes[1].epoch)}
        await neighbour.peers.close()
        await node.start()

    on_a_node(scenario)


def test_a_peer_that_only_hung_up_is_not_dead() -> None:
    async def scenario(node: SimBroker) -> None:
        neighbour = Neighbour(node)
        neighbour.peers.watch([1])
        await neighbour.world.tasks.sleep(1)
        for transport in node.simulation.network.transports_of(node.world.process):
            transport.abort()
        await neighbour.world.tasks.sleep(5)
        assert neighbour.dead == []
        assert await neighbour.ask()
        await neighbour.peers.close()

    on_a_node(scenario)


def test_a_peer_that_could_not_be_reached_at_first_is_watched_all_the_same() -> None:
    async def scenario(node: SimBroker) -> None:
        neighbour, network = Neighbour(node), node.simulation.network
        for one, other in (("node", "neighbour"), ("neighbour", "node")):
            network.cut(one, other)
        neighbour.peers.watch([1])
        await neighbour.world.tasks.sleep(CONNECT_TIMEOUT_MS / 1000 + 0.1)
        network.mend_all()
        await neighbour.world.tasks.sleep(5)
        await node.kill()
        await neighbour.world.tasks.sleep(1)
        assert set(neighbour.dead) == {(1, neighbour.view.nodes[1].epoch)}
        await neighbour.peers.close()

    on_a_node(scenario)


def test_nodes_missing_in_the_view_are_not_asked() -> None:
    async def scenario(node: SimBroker) -> None:
        neighbour = Neighbour(node)
        neighbour.view = replace(neighbour.view, nodes={})
        with pytest.raises(PeerLost, match="node 1 is not in the cluster now"):
            await neighbour.ask()
        await neighbour.peers.close()

    on_a_node(scenario)
