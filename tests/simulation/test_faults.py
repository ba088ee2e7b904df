# SPDX-License-Identifier: Apache-2.0
"""Each fault of the simulation bites: on a live node it has the effect that it is named after."""

from __future__ import annotations

import asyncio

import pytest

from headrace.client.errors import ClientError
from headrace.wire.error_codes import ErrorCode
from tests.simulation.sim_lab import Lab, simulate


@pytest.mark.parametrize("fault", ["kill", "power_cut", "restart"])
def test_an_end_of_the_node_ends_it_and_it_starts_again(fault: str) -> None:
    async def scenario(lab: Lab) -> None:
        world = lab.node.world
        await lab.faults.inject(fault)
        await asyncio.sleep(10)
        assert world is not None
        assert not world.process.alive
        assert lab.node.starts == 2
        with pytest.raises(ClientError):
            await lab.produce()
        await lab.node.wait_until_serving()

    simulate(scenario)


def test_a_full_disk_refuses_records_until_it_is_freed() -> None:
    async def scenario(lab: Lab) -> None:
        full = await lab.during("disk_full")
        assert await lab.produce(10_000) is ErrorCode.kafka_storage_error
        await full
        await asyncio.sleep(3)
        assert await lab.produce(10_000) is ErrorCode.none

    simulate(scenario)


@pytest.mark.parametrize("fault", ["write_error", "sync_error"])
def test_a_disk_error_is_not_acknowledged(fault: str) -> None:
    async def scenario(lab: Lab) -> None:
        error = await lab.during(fault)
        try:
            assert await lab.produce() is ErrorCode.kafka_storage_error
        except ClientError:
            assert lab.node.broker is None  # it has ended itself (R24)
        await error

    simulate(scenario)


def test_a_clock_jump_moves_the_nodes_wall_clock() -> None:
    jumps = set()
    for seed in range(12):

        async def scenario(lab: Lab) -> None:
            await lab.faults.inject("clock_jump")
            jumps.add(lab.node.machine.wall_jump_ms)

        simulate(scenario, seed)
    assert min(jumps) < 0 < max(jumps)


def test_resets_lose_connections() -> None:
    lost = 0
    for seed in range(8):

        async def scenario(lab: Lab) -> None:
            nonlocal lost
            await lab.faults.inject("reset_connections")
            await asyncio.sleep(1)
            lost += not lab.connection.is_open

        simulate(scenario, seed)
    assert 0 < lost < 8


@pytest.mark.parametrize(("fault", "at_least_s"), [("slow_disk", 0.04), ("slow_network", 0.02)])
def test_slow_things_are_slow(fault: str, at_least_s: float) -> None:
    async def scenario(lab: Lab) -> None:
        started = lab.now()
        await lab.produce()
        quick = lab.now() - started
        slow = await lab.during(fault)
        started = lab.now()
        await lab.produce()
        assert lab.now() - started > max(at_least_s, quick)
        await slow

    simulate(scenario)


def test_a_small_window_makes_the_sender_wait() -> None:
    async def scenario(lab: Lab) -> None:
        world = lab.node.world
        assert world is not None
        small = await lab.during("small_window")
        (transport,) = lab.simulation.network.transports_of(lab.clients.process)
        sending = asyncio.ensure_future(lab.produce(50_000))
        await asyncio.sleep(0.001)
        assert transport.get_write_buffer_size() > 40_000
        assert await sending is ErrorCode.none
        await small

    simulate(scenario)
