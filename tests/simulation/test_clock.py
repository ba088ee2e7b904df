# SPDX-License-Identifier: Apache-2.0
"""R34: the wall clock may jump; sessions, time-outs and segments do not care."""

from __future__ import annotations

import asyncio

import pytest

from headrace.wire.error_codes import ErrorCode
from tests.harness.simulation.clients import EARLIEST, list_offset
from tests.simulation.sim_lab import TARGET, Lab, simulate

DAY_MS = 86_400_000


@pytest.mark.parametrize("jump_ms", [30 * DAY_MS, 3650 * DAY_MS])
def test_a_jump_forward_deletes_no_segment_of_a_running_node(jump_ms: int) -> None:
    async def scenario(lab: Lab) -> None:
        for _ in range(20):
            assert await lab.produce() is ErrorCode.none
            await asyncio.sleep(0.2)
        lab.node.machine.wall_jump_ms = jump_ms
        await asyncio.sleep(60)
        assert await list_offset(lab.connection, TARGET, 0, EARLIEST) == 0
        lab.node.machine.wall_jump_ms = 0
        await asyncio.sleep(60)
        assert await lab.produce() is ErrorCode.none

    simulate(scenario, segment_ms="500")


@pytest.mark.parametrize("jump_ms", [-3650 * DAY_MS, 3650 * DAY_MS])
def test_a_jump_ends_no_session_and_no_wait(jump_ms: int) -> None:
    async def scenario(lab: Lab) -> None:
        lab.node.machine.wall_jump_ms = jump_ms
        started = lab.now()
        if jump_ms > 0:  # backwards, the producer's clock would be ahead by more than an hour
            assert await lab.produce() is ErrorCode.none
            assert lab.now() - started < 1
        await asyncio.sleep(60)
        assert lab.node.starts == 1
        assert lab.connection.is_open
        broker = lab.node.broker
        assert broker is not None
        assert broker.cluster.is_controller
        lab.node.machine.wall_jump_ms = 0
        assert await lab.produce() is ErrorCode.none

    simulate(scenario)


def test_a_lasting_clock_jump_is_accepted_after_an_hour() -> None:
    async def scenario(lab: Lab) -> None:
        for _ in range(5):
            assert await lab.produce() is ErrorCode.none
            await asyncio.sleep(0.5)
        lab.node.machine.wall_jump_ms = 30 * DAY_MS
        await asyncio.sleep(3500)
        await lab.connect()  # the connection was closed for being idle
        assert await list_offset(lab.connection, TARGET, 0, EARLIEST) == 0
        await asyncio.sleep(200)
        assert await list_offset(lab.connection, TARGET, 0, EARLIEST) == 6

    simulate(scenario, segment_ms="500")


def test_retention_by_time_works_while_no_clock_jumps() -> None:
    async def scenario(lab: Lab) -> None:
        for _ in range(10):
            assert await lab.produce() is ErrorCode.none
            await asyncio.sleep(0.5)
        await asyncio.sleep(30)
        assert await list_offset(lab.connection, TARGET, 0, EARLIEST) > 0

    simulate(scenario, segment_ms="500", retention_ms="3000")
