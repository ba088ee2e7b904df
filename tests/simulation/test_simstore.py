# SPDX-License-Identifier: Apache-2.0
"""The simulated store is late, forgetful or out of reach when told to be; it never does what was given up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headrace.coordination.memory import Profile
from headrace.coordination.store import Applied, Create, SessionLost
from headrace.errors import CoordinationError, OutcomeUnknown
from headrace.testing.simworld import Simulation, SimWorld
from tests.harness.simulation.store import STORE_HOST, SimStore, StoreServer

Scenario = Callable[[Simulation, StoreServer, SimStore], Coroutine[Any, Any, None]]


def simulate(scenario: Scenario, *, profile: Profile = "zookeeper") -> None:
    with Simulation(1) as simulation:
        server = StoreServer(simulation, profile)
        store = server.connect(_node(simulation))
        simulation.run(scenario(simulation, server, store))


def _node(simulation: Simulation) -> SimWorld:
    return simulation.start_process("node0")


def test_what_is_committed_is_seen_by_others() -> None:
    async def scenario(simulation: Simulation, server: StoreServer, store: SimStore) -> None:
        other = server.connect(simulation.start_process("node1"))
        waiting = asyncio.ensure_future(other.changes(0, 60_000))
        assert await store.commit([Create("/a", b"1")]) == Applied(1)
        assert list((await waiting).changed) == ["/a"]
        assert (await other.view()).entries["/a"].value == b"1"

    simulate(scenario)


def test_a_commit_that_cannot_reach_the_store_never_happens() -> None:
    async def scenario(simulation: Simulation, server: StoreServer, store: SimStore) -> None:
        simulation.network.cut("node0", STORE_HOST)
        with pytest.raises(CoordinationError):
            await store.commit([Create("/a", b"1")])
        simulation.network.mend_all()
        await asyncio.sleep(10)
        assert server.state.version == 0

    simulate(scenario)


def test_a_commit_whose_answer_is_lost_has_an_unknown_outcome() -> None:
    async def scenario(simulation: Simulation, server: StoreServer, store: SimStore) -> None:
        simulation.network.cut(STORE_HOST, "node0")
        with pytest.raises(OutcomeUnknown):
            await store.commit([Create("/a", b"1")])
        assert server.state.version == 1

    simulate(scenario)


def test_unknown_outcomes_come_both_ways() -> None:
    async def scenario(simulation: Simulation, server: StoreServer, store: SimStore) -> None:
        server.unknown_probability = 1.0
        for number in range(20):
            with pytest.raises(OutcomeUnknown):
                await store.commit([Create(f"/key-{number}", b"")])
        assert 0 < server.state.version < 20

    simulate(scenario)


def test_a_sent_commit_is_applied_while_its_sender_is_paused() -> None:
    async def scenario(simulation: Simulation, server: StoreServer, store: SimStore) -> None:
        world = simulation.start_process("node2")
        theirs = server.connect(world)
        world.tasks.spawn(theirs.commit([Create("/late", b"")]), name="commit")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        simulation.loop.pause(world.process)
        await asyncio.sleep(1)
        assert server.state.version == 1

    simulate(scenario)


@pytest.mark.parametrize(("profile", "noticed_at_once"), [("sqlite", True), ("zookeeper", False)])
def test_the_death_of_a_process_is_noticed_by_its_lock_or_by_silence(
    profile: Profile, noticed_at_once: bool
) -> None:
    async def scenario(simulation: Simulation, server: StoreServer, store: SimStore) -> None:
        world = simulation.start_process("node2")
        session = await server.connect(world).open_session(3000)
        await store.commit([Create("/alive", b"", owner=session.id)])
        simulation.kill(world)
        server.process_died(world.process)
        await asyncio.sleep(1)
        assert ("/alive" not in server.state.view().entries) is noticed_at_once
        await asyncio.sleep(3)
        assert "/alive" not in server.state.view().entries

    simulate(scenario, profile=profile)


def test_an_expired_session_is_found_lost_at_its_next_renewal() -> None:
    async def scenario(simulation: Simulation, server: StoreServer, store: SimStore) -> None:
        session = await store.open_session(3000)
        await session.renew()
        server.expire(store._world.process)
        assert not session.may_have_expired
        with pytest.raises(SessionLost):
            await session.renew()
        assert session.may_have_expired

    simulate(scenario)


def test_a_session_that_cannot_be_renewed_may_have_expired_before_it_ends() -> None:
    async def scenario(simulation: Simulation, server: StoreServer, store: SimStore) -> None:
        session = await store.open_session(3000)
        await store.commit([Create("/alive", b"", owner=session.id)])
        simulation.network.cut("node0", STORE_HOST)
        await asyncio.sleep(2.1)
        assert session.may_have_expired
        assert "/alive" in server.state.view().entries

    simulate(scenario)
