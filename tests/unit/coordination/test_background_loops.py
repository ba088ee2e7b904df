# SPDX-License-Identifier: Apache-2.0
"""What goes on behind a node for ever goes on after any error: its view and its heartbeat."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headrace.coordination.cluster_metadata import ClusterMetadata, VersionWaiters
from headrace.coordination.memory import MemoryState, MemoryStore
from headrace.coordination.store import Applied, Changes, Conflict, Create
from headrace.errors import CoordinationError
from headrace.testing.simworld import Simulation, SimWorld

TTL_MS = 6_000


class StumblingStore(MemoryStore):
    """Fails once in a way that the contract does not know."""

    stumbles = 0

    async def changes(self, since_version: int, timeout_ms: int) -> Changes:
        if self.stumbles:
            self.stumbles -= 1
            raise ValueError("not foreseen")
        return await super().changes(since_version, timeout_ms)


def simulated(scenario: Callable[[SimWorld, StumblingStore], Awaitable[None]]) -> None:
    with Simulation(1) as simulation:
        world = simulation.start_process("node")
        store = StumblingStore(MemoryState(simulation.start_process("store")), world)

        async def main() -> None:
            async def inside() -> None:
                await scenario(world, store)

            await world.tasks.spawn(inside(), name="scenario")

        simulation.run(main())


def test_the_view_is_updated_after_an_unexpected_error() -> None:
    async def scenario(world: SimWorld, store: StumblingStore) -> None:
        cluster = await ClusterMetadata.open(store, world)
        store.stumbles = 1
        await store.commit([Create("/whatever", b"")])  # the follower returns, and stumbles at its next look
        await world.tasks.sleep(1)
        await store.commit([Create("/whatever-else", b"")])
        await world.tasks.sleep(1)
        assert store.stumbles == 0
        assert cluster.view.version == (await store.view()).version

    simulated(scenario)


def test_the_heartbeat_continues_after_an_unexpected_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: SimWorld, store: StumblingStore) -> None:
        cluster = await ClusterMetadata.open(store, world)
        await cluster.register_node(node_id=1, host_id="h", hostname="h", endpoints=[], session_ttl_ms=TTL_MS)
        session = store._sessions[0]
        renew = session._renew
        outcomes: list[Any] = [ValueError("not foreseen")]

        async def stumble() -> bool:
            if outcomes:
                raise outcomes.pop()
            return await renew()

        monkeypatch.setattr(session, "_renew", stumble)
        await world.tasks.sleep(3 * TTL_MS / 1000)
        assert outcomes == []
        assert not cluster.session_may_have_expired
        assert 1 in cluster.view.nodes

    simulated(scenario)


def test_a_node_that_registers_again_while_the_store_is_away_can_be_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The session that it opened cannot be closed either: that error must not replace the cancellation."""

    async def scenario(world: SimWorld, store: StumblingStore) -> None:
        cluster = await ClusterMetadata.open(store, world)
        await cluster.register_node(node_id=1, host_id="h", hostname="h", endpoints=[], session_ttl_ms=TTL_MS)
        registering = asyncio.Event()

        async def never_answered(_: object) -> Applied | Conflict:
            registering.set()
            await asyncio.get_running_loop().create_future()
            raise AssertionError("unreachable")

        async def not_closed(_: object) -> None:
            raise CoordinationError("the coordination store does not answer")

        monkeypatch.setattr(store, "commit", never_answered)
        store._sessions[0].lost = True  # the heartbeat registers again
        await registering.wait()
        monkeypatch.setattr(type(store._sessions[0]), "_close", not_closed)
        closing = world.tasks.spawn(cluster._lifecycle.close(), name="close")  # type: ignore[union-attr]
        await asyncio.wait({closing}, timeout=10 * TTL_MS / 1000)
        assert closing.done()

    simulated(scenario)


def test_nobody_waits_for_a_view_that_was_closed() -> None:
    async def scenario() -> None:
        waits = VersionWaiters()
        before = asyncio.ensure_future(waits.until(5))
        await asyncio.sleep(0)
        waits.end()
        for waiting in (before, waits.until(6)):
            with pytest.raises(CoordinationError, match="closed"):
                await asyncio.wait_for(waiting, 1)

    asyncio.run(scenario())
