# SPDX-License-Identifier: Apache-2.0
"""Each fault of the simulated cluster bites: it has the effect that it is named after."""

from __future__ import annotations

import asyncio

import pytest

from headrace.client.errors import ClientError
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from tests.harness.simulation.cluster_lab import ClusterLab, simulate_cluster
from tests.harness.simulation.routing import open_any


async def during(lab: ClusterLab, fault: str, node_id: int) -> asyncio.Task[None]:
    """The fault goes on while the test looks at its effect."""
    task = asyncio.ensure_future(lab.faults.inject(fault, node_id))
    await asyncio.sleep(0.01)
    return task


async def answers(lab: ClusterLab, node_id: int) -> bool:
    try:
        connection = await open_any(lab.world, [lab.addresses[node_id]], "lab")
    except ClientError:
        return False
    await connection.call(ApiKey.METADATA, {"topics": []})
    connection.abort()
    return True


def test_a_paused_node_does_not_answer_until_it_goes_on() -> None:
    silent = 0
    for seed in range(4):

        async def scenario(lab: ClusterLab) -> None:
            nonlocal silent
            paused = await during(lab, "pause", 0)
            started = lab.simulation.loop.time()
            heard = await answers(lab, 0)
            silent += not heard or lab.simulation.loop.time() - started > 0.1
            await paused
            assert await answers(lab, 0)

        simulate_cluster(scenario, seed)
    assert silent == 4


def test_an_expired_session_removes_the_nodes_entry_and_the_node_registers_again() -> None:
    async def scenario(lab: ClusterLab) -> None:
        before = lab.invariants.view.nodes[1].epoch
        await lab.faults.inject("expire_session", 1)
        assert 1 not in lab.invariants.view.nodes
        await lab.until(lambda: 1 in lab.invariants.view.nodes, "node 1 is back")
        assert lab.invariants.view.nodes[1].epoch > before

    simulate_cluster(scenario)


@pytest.mark.parametrize("fault", ["isolate", "cut_a_link", "cut_one_way"])
def test_a_cut_keeps_nodes_apart_and_not_their_clients(fault: str) -> None:
    async def scenario(lab: ClusterLab) -> None:
        cut = await during(lab, fault, 0)
        network = lab.simulation.network
        apart = [name for name in ("node1", "node2") if network.is_cut("node0", name)]
        assert len(apart) == (2 if fault == "isolate" else 1)
        assert network.is_cut(apart[0], "node0") or fault == "cut_one_way"
        assert await answers(lab, 0)
        await cut
        assert not network.is_cut("node0", apart[0])

    simulate_cluster(scenario, profile="zookeeper")


def test_a_session_may_have_expired_when_a_node_is_cut_off_from_the_store() -> None:
    expiring = 0
    for seed in range(6):

        async def scenario(lab: ClusterLab) -> None:
            nonlocal expiring
            cut = await during(lab, "cut_off_from_store", 0)
            broker = lab.nodes[0].broker
            assert broker is not None
            await asyncio.sleep(2.5)
            expiring += broker.cluster.session_may_have_expired and not cut.done()
            await cut

        simulate_cluster(scenario, seed, profile="zookeeper")
    assert 0 < expiring < 6


def test_late_views_are_late() -> None:
    async def scenario(lab: ClusterLab) -> None:
        late = await during(lab, "late_views", 0)
        await lab.faults.inject("expire_session", 2)
        broker = lab.nodes[0].broker
        assert broker is not None
        await asyncio.sleep(0.05)
        assert 2 in broker.cluster.view.nodes
        await late

    simulate_cluster(scenario, seed=5)


def test_unknown_outcomes_and_a_lossy_network_pass() -> None:
    async def scenario(lab: ClusterLab) -> None:
        for fault in ("unknown_outcomes", "lossy_network"):
            going_on = await during(lab, fault, 0)
            assert lab.store.unknown_probability > 0 or lab.simulation.network.profile.loss_probability > 0
            await going_on
            assert lab.store.unknown_probability == 0
            assert lab.simulation.network.profile.loss_probability == 0

    simulate_cluster(scenario)


def test_several_nodes_die_at_once() -> None:
    async def scenario(lab: ClusterLab) -> None:
        await lab.faults.inject("kill_several", 0)
        assert sum(node.broker is None for node in lab.nodes) >= 2

    simulate_cluster(scenario)


def test_a_host_without_power_sends_no_reset() -> None:
    async def scenario(lab: ClusterLab) -> None:
        assert await lab.produce(b"v", acks=1) is ErrorCode.none
        connection = await open_any(lab.world, [lab.addresses[1]], "lab")
        cut = await during(lab, "power_cut", 1)
        assert lab.nodes[1].broker is None
        assert connection.is_open
        await cut
        await asyncio.sleep(0.1)
        assert not connection.is_open

    simulate_cluster(scenario)
