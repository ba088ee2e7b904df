# SPDX-License-Identifier: Apache-2.0
"""Sessions and registration in simulated time: what a killed process leaves behind, and for how long."""

from __future__ import annotations

import pytest

from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.coordination.memory import MemoryState, MemoryStore
from headrace.coordination.node_lifecycle import DuplicateNode
from headrace.testing.simworld import Simulation, SimWorld

TTL_MS = 6_000


async def join(state: MemoryState, world: SimWorld, **more: bool) -> ClusterMetadata:
    cluster = await ClusterMetadata.open(MemoryStore(state, world), world)
    await cluster.register_node(
        node_id=1, host_id="h", hostname="h", endpoints=[], session_ttl_ms=TTL_MS, **more
    )
    return cluster


def test_a_killed_node_s_place_is_free_when_its_session_has_ended_and_not_before() -> None:
    with Simulation(seed=1) as simulation:
        state = MemoryState(simulation.start_process("store"), profile="zookeeper")
        first = simulation.start_process("node")
        second = simulation.start_process("node")

        async def scenario() -> float:
            await first.tasks.spawn(join(state, first), name="first")
            await first.tasks.sleep(60)  # kept alive by its heartbeat
            simulation.kill(first)
            killed = second.clock.monotonic()
            while True:
                try:
                    await second.tasks.spawn(join(state, second), name="second")
                    return second.clock.monotonic() - killed
                except DuplicateNode:
                    await second.tasks.sleep(0.1)

        waited_s = simulation.run(scenario())
        assert TTL_MS / 1000 * 0.7 < waited_s < TTL_MS / 1000 + 0.5


def test_a_dead_predecessor_known_by_its_lock_is_not_waited_for() -> None:
    with Simulation(seed=2) as simulation:
        state = MemoryState(simulation.start_process("store"))
        first, second = simulation.start_process("node"), simulation.start_process("node")

        async def scenario() -> float:
            before = await first.tasks.spawn(join(state, first), name="first")
            await before.become_controller(1)
            simulation.kill(first)
            killed = second.clock.monotonic()
            after = await second.tasks.spawn(
                join(state, second, replaces_dead_predecessor=True), name="second"
            )
            assert await after.become_controller(1) == 2
            return second.clock.monotonic() - killed

        assert simulation.run(scenario()) < 0.1


def test_a_node_cut_off_from_its_store_knows_of_it_before_its_session_expires() -> None:
    with Simulation(seed=3) as simulation:
        state = MemoryState(simulation.start_process("store"), profile="zookeeper")
        world = simulation.start_process("node")

        async def scenario() -> None:
            cluster = await world.tasks.spawn(join(state, world), name="node")
            lifecycle = cluster._lifecycle
            assert lifecycle is not None
            assert lifecycle._heartbeat is not None
            lifecycle._heartbeat.cancel()
            await world.tasks.sleep(TTL_MS / 1000 * 0.5)
            assert not cluster.session_may_have_expired
            await world.tasks.sleep(TTL_MS / 1000 * 0.25)
            assert cluster.session_may_have_expired
            assert 1 in (await join_as_watcher(state, world)).view.nodes
            await world.tasks.sleep(TTL_MS / 1000 * 0.3)
            assert cluster.view.nodes == {}

        simulation.run(scenario())


async def join_as_watcher(state: MemoryState, world: SimWorld) -> ClusterMetadata:
    return await ClusterMetadata.open(MemoryStore(state, world), world)


@pytest.mark.parametrize("seed", [7, 8])
def test_the_same_seed_gives_the_same_cluster_id(seed: int) -> None:
    def cluster_id() -> str:
        with Simulation(seed=seed) as simulation:
            state = MemoryState(simulation.start_process("store"))
            world = simulation.start_process("node")

            async def scenario() -> str:
                return (await join_as_watcher(state, world)).view.cluster_id

            return simulation.run(scenario())

    assert cluster_id() == cluster_id()
