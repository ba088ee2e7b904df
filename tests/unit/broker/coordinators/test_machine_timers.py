# SPDX-License-Identifier: Apache-2.0
"""The one alarm behind all timers of machines: no error and no early ring makes it forget any."""

from __future__ import annotations

import asyncio

import pytest

from headrace.broker.coordinators.machine_timers import MachineTimers
from headrace.testing.simworld import ClockProfile, Simulation


def test_the_error_of_one_timer_does_not_keep_the_others_from_firing() -> None:
    fired: list[int] = []

    def fail(number: int) -> None:
        raise ValueError("not foreseen")

    async def scenario() -> None:
        now_ms = int(world.clock.monotonic() * 1000)
        timers = MachineTimers(world.clock, world.tasks)
        timers.set(now_ms + 10, fail)
        same_moment = timers.set(now_ms + 10, fired.append)
        later = timers.set(now_ms + 500, fired.append)
        await asyncio.sleep(1)
        assert fired == [same_moment, later]

    with Simulation(1) as simulation:
        world = simulation.start_process("node")
        simulation.run(scenario())
        assert [str(each["exception"]) for each in simulation.loop.unhandled] == ["not foreseen"]
        simulation.loop.unhandled.clear()


@pytest.mark.parametrize("seed", range(20))
def test_no_timer_fires_early_and_none_is_lost_after_an_early_wakeup(seed: int) -> None:
    async def scenario() -> None:
        timers = MachineTimers(world.clock, world.tasks)
        early: list[float] = []
        start_ms = int(world.clock.monotonic() * 1000)
        for wait_ms in range(1, 200, 3):
            due_ms = start_ms + wait_ms
            timers.set(due_ms, lambda _, due_ms=due_ms: early.append(due_ms - world.clock.monotonic() * 1000))
        await asyncio.sleep(1)
        assert len(early) == len(range(1, 200, 3))
        assert max(early) <= 0

    with Simulation(seed, clock=ClockProfile()) as simulation:
        world = simulation.start_process("node")
        simulation.run(scenario())


def test_an_alarm_rings_once_for_a_deadline_that_floats_do_not_hold_exactly() -> None:
    """130.42 s are 130,419 whole milliseconds: it rang again at once, until the clock had moved."""
    deadlines_ms = range(130_000, 131_000)

    async def scenario() -> None:
        timers = MachineTimers(world.clock, world.tasks)
        fired: list[int] = []
        for deadline_ms in deadlines_ms:
            timers.set(deadline_ms, fired.append)
        await asyncio.sleep(131)
        assert len(fired) == len(deadlines_ms)

    with Simulation(1, max_steps=3 * len(deadlines_ms)) as simulation:
        world = simulation.start_process("node")
        simulation.run(scenario())
