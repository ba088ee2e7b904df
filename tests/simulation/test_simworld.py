# SPDX-License-Identifier: Apache-2.0
"""The simulated World: clocks, threads, disks and kills, and that each of its faults bites."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from headrace.testing.simloop import SimulationError
from headrace.testing.simworld import DATA_DIRECTORY, ClockProfile, Simulation, WorkProfile
from headrace.world import World, read_file, write_all

PATH = DATA_DIRECTORY / "file"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def simulate(
    scenario: Callable[[Simulation], Coroutine[Any, Any, None]], seed: int = 1, **options: Any
) -> str:
    with Simulation(seed, **options) as simulation:
        simulation.run(scenario(simulation))
    return simulation.loop.trace_hash()


def test_the_simulated_world_implements_world() -> None:
    with Simulation(1) as simulation:
        world: World = simulation.start_process("host")
        assert world.clock.monotonic() > 0


def test_a_clock_jump_moves_the_wall_clock_only() -> None:
    async def scenario(simulation: Simulation) -> None:
        world = simulation.start_process("host")
        monotonic, wall = world.clock.monotonic(), world.clock.wall_ms()
        world.machine.wall_jump_ms -= 3_600_000
        await asyncio.sleep(1)
        assert world.clock.monotonic() - monotonic == 1
        assert world.clock.wall_ms() - wall == 1000 - 3_600_000

    simulate(scenario)


def test_time_does_not_advance_within_a_callback_by_default() -> None:
    async def scenario(simulation: Simulation) -> None:
        clock = simulation.start_process("host").clock
        assert {clock.monotonic() for _ in range(200)} == {clock.monotonic()}

    simulate(scenario)


def test_time_may_pass_between_two_looks_at_the_clock() -> None:
    async def scenario(simulation: Simulation) -> None:
        clock = simulation.start_process("host").clock
        looks = [clock.monotonic() for _ in range(2_000)]
        steps_s = [later - earlier for earlier, later in pairwise(looks)]
        assert min(steps_s) == 0
        assert sum(step > 0 for step in steps_s) > 100
        assert max(steps_s) > 0.001, "at times the process is away for longer"

    simulate(scenario, clock=ClockProfile())


def test_timers_and_sleeps_end_up_to_a_millisecond_and_a_half_early_as_those_of_uvloop_do() -> None:
    async def scenario(simulation: Simulation) -> None:
        loop, tasks = simulation.loop, simulation.start_process("host").tasks
        early_s = []
        for _ in range(100):
            fired, start = loop.create_future(), loop.time()
            tasks.call_later(0.02, fired.set_result, None)
            await fired
            early_s.append(0.02 - (loop.time() - start))
            start = loop.time()
            await tasks.sleep(0.02)
            early_s.append(0.02 - (loop.time() - start))
        assert 0 <= min(early_s) < 0.0002
        assert 0.0013 < max(early_s) <= 0.0015 + 1e-9
        start = loop.time()
        await tasks.sleep(0.001)  # no timer fires before it was set
        await tasks.sleep(0)
        assert 0 <= loop.time() - start <= 0.001

    simulate(scenario, clock=ClockProfile())


def test_a_thread_runs_its_jobs_in_order_while_the_loop_goes_on() -> None:
    async def scenario(simulation: Simulation) -> None:
        world = simulation.start_process("host")
        thread = world.tasks.thread("disk")
        seen: list[int] = []
        jobs = [thread.run(seen.append, number) for number in range(5)]
        assert seen == []
        for job in jobs:
            await job
        assert seen == [0, 1, 2, 3, 4]

    for seed in range(5):
        simulate(scenario, seed)


def test_an_error_on_a_thread_reaches_its_caller() -> None:
    async def scenario(simulation: Simulation) -> None:
        world = simulation.start_process("host")
        with pytest.raises(ValueError, match="boom"):
            await world.tasks.bulk(_raise)

    simulate(scenario)


def _raise() -> None:
    raise ValueError("boom")


def test_a_slow_disk_delays_its_jobs() -> None:
    async def scenario(simulation: Simulation) -> None:
        world = simulation.start_process("host")
        world.machine.work = WorkProfile(least_ms=500, most_ms=600)
        start = simulation.loop.time()
        await world.tasks.thread("disk").run(int)
        assert simulation.loop.time() - start >= 1

    simulate(scenario)


def test_a_kill_keeps_what_was_written_and_releases_locks() -> None:
    async def scenario(simulation: Simulation) -> None:
        world = simulation.start_process("host")
        write_all(world.files.open(PATH, "create"), b"written", 0)
        world.files.lock(PATH.with_name(".lock"))
        simulation.kill(world)
        again = simulation.start_process("host")
        again.files.lock(PATH.with_name(".lock"))
        assert again.files.open(PATH, "read").pread(100, 0) == b"written"

    simulate(scenario)


def test_a_power_cut_loses_what_was_not_synced_and_keeps_what_was() -> None:
    lost = 0
    for seed in range(20):
        with Simulation(seed) as simulation:
            world = simulation.start_process("host")
            file = world.files.open(PATH, "create")
            write_all(file, b"a" * 10_000, 0)
            file.fsync()
            world.files.sync_directory(DATA_DIRECTORY)
            write_all(file, b"b" * 10_000, 10_000)
            before = read_file(world.files, BOOT_ID)
            simulation.cut_power("host")
            assert not world.process.alive
            again = simulation.start_process("host")
            data = again.files.open(PATH, "read").pread(30_000, 0)
            assert data[:10_000] == b"a" * 10_000
            assert read_file(again.files, BOOT_ID) != before
            lost += data != b"a" * 10_000 + b"b" * 10_000
    assert lost > 5


def test_nothing_of_a_killed_node_touches_its_disk() -> None:
    async def scenario(simulation: Simulation) -> None:
        world = simulation.start_process("host")
        file = world.files.open(PATH, "create")
        thread = world.tasks.thread("disk")

        async def writer() -> None:
            while True:
                await thread.run(write_all, file, b"x", file.size())

        world.tasks.spawn(writer(), name="writer")
        await asyncio.sleep(1)
        size = file.size()
        assert size > 0
        simulation.kill(world)
        await asyncio.sleep(1)
        assert file.size() == size

    simulate(scenario)


def test_the_same_seed_gives_the_same_trace() -> None:
    async def scenario(simulation: Simulation) -> None:
        world = simulation.start_process("host")
        thread = world.tasks.thread("disk")

        async def worker(number: int) -> None:
            for _ in range(20):
                await thread.run(int)
                await world.tasks.sleep(world.random.random())

        await asyncio.gather(*(worker(number) for number in range(5)))

    assert simulate(scenario, 3) == simulate(scenario, 3)
    assert simulate(scenario, 3) != simulate(scenario, 4)
    clock = ClockProfile()
    assert simulate(scenario, 3, clock=clock) == simulate(scenario, 3, clock=clock)
    assert simulate(scenario, 3, clock=clock) != simulate(scenario, 3)


def test_a_task_that_fails_unseen_fails_the_simulation() -> None:
    async def scenario(simulation: Simulation) -> None:
        world = simulation.start_process("host")

        async def failing() -> None:
            raise ValueError("unseen")

        world.tasks.spawn(failing(), name="failing")
        await asyncio.sleep(1)

    with pytest.raises(SimulationError, match="unseen"):
        simulate(scenario)


def test_a_failed_task_fails_the_simulation_although_it_is_referenced() -> None:
    kept: list[asyncio.Task[None]] = []

    async def failing() -> None:
        raise ValueError("kept and not looked at")

    async def scenario(simulation: Simulation) -> None:
        world = simulation.start_process("host")
        kept.append(world.tasks.spawn(failing(), name="failing"))
        await asyncio.sleep(1)

    with pytest.raises(SimulationError, match=r"failing: ValueError.*not looked at"):
        simulate(scenario)


def test_a_task_whose_error_was_awaited_is_no_failure() -> None:
    async def scenario(simulation: Simulation) -> None:
        world = simulation.start_process("host")

        async def failing() -> None:
            raise ValueError("boom")

        with pytest.raises(ValueError, match="boom"):
            await world.tasks.spawn(failing(), name="failing")

    simulate(scenario)
