# SPDX-License-Identifier: Apache-2.0
"""The simulated event loop: virtual time, seeded order, kill. It runs plain asyncio code."""

from __future__ import annotations

import asyncio
import itertools
from random import Random

import pytest

from headrace.testing.simloop import Process, SimLoop, SimulationError
from headrace.testing.simworld import Simulation


def _loop(seed: int = 0, **options: int) -> SimLoop:
    return SimLoop(Random(seed), **options)


def test_time_is_virtual_and_exact() -> None:
    loop = _loop()

    async def wait_a_day() -> float:
        await asyncio.sleep(86_400)
        return asyncio.get_running_loop().time()

    assert loop.run_until_complete(wait_a_day()) == 86_400


def test_asyncio_primitives_work_on_it() -> None:
    async def scenario() -> list[str]:
        seen: list[str] = []
        event, lock = asyncio.Event(), asyncio.Lock()

        async def waiter(name: str) -> None:
            await event.wait()
            async with lock:
                await asyncio.sleep(1)
                seen.append(name)

        async with asyncio.TaskGroup() as group:
            for name in "abc":
                group.create_task(waiter(name))
            await asyncio.sleep(1)
            event.set()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        assert await asyncio.gather(asyncio.sleep(1, "x"), asyncio.sleep(2, "y")) == ["x", "y"]
        return seen

    loop = _loop()
    assert sorted(loop.run_until_complete(scenario())) == ["a", "b", "c"]
    assert loop.time() == 1 + 3 + 5 + 2
    assert not loop.unhandled


def _order_of_racers(seed: int) -> tuple[str, str]:
    loop = _loop(seed)
    order: list[str] = []

    async def racer(name: str) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
            order.append(name)

    async def race() -> None:
        await asyncio.gather(*(racer(name) for name in "abcd"))

    loop.run_until_complete(race())
    return "".join(order), loop.trace_hash()


def test_the_same_seed_gives_the_same_order_and_other_seeds_other_orders() -> None:
    assert _order_of_racers(7) == _order_of_racers(7)
    assert len({_order_of_racers(seed) for seed in range(20)}) > 10


def test_callbacks_of_one_owner_keep_their_order() -> None:
    for seed in range(20):
        loop = _loop(seed)
        seen: list[int] = []

        async def scenario(loop: SimLoop = loop, seen: list[int] = seen) -> None:
            for number in range(10):
                loop.call_soon(seen.append, number)
            await asyncio.sleep(1)

        loop.run_until_complete(scenario())
        assert seen == list(range(10))


def test_nothing_of_a_killed_process_runs_any_more() -> None:
    loop = _loop()
    process = Process("victim")
    events: list[str] = []

    async def victim() -> None:
        try:
            while True:
                events.append("beat")
                await asyncio.sleep(1)
        finally:
            events.append("cleaned up")

    async def scenario() -> None:
        loop.create_task(victim(), context=process.context())
        loop.call_later(5, events.append, "timer", context=process.context())
        await asyncio.sleep(2.5)
        loop.kill(process)
        await asyncio.sleep(10)

    loop.run_until_complete(scenario())
    assert events == ["beat", "beat", "beat"]
    loop.close()
    assert not loop.unhandled


def test_children_belong_to_the_process_of_their_parent() -> None:
    loop = _loop()
    process = Process("parent")
    ticks: list[float] = []

    async def child() -> None:
        while True:
            ticks.append(loop.time())
            await asyncio.sleep(1)

    async def parent() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(child())

    async def scenario() -> None:
        loop.create_task(parent(), context=process.context())
        await asyncio.sleep(1.5)
        loop.kill(process)
        await asyncio.sleep(5)

    loop.run_until_complete(scenario())
    loop.close()
    assert ticks == [0.0, 1.0]


def test_a_deadlock_is_reported() -> None:
    loop = _loop()
    process = Process("stuck")

    async def never() -> None:
        await loop.create_future()

    task = loop.create_task(never(), context=process.context())
    with pytest.raises(SimulationError, match="nothing left to run"):
        loop.run_until_complete(task)
    loop.kill(process)
    loop.close()


def test_a_loop_that_spins_is_reported() -> None:
    loop = _loop(max_steps=1000)
    process = Process("spinning")

    async def spin() -> None:
        for _ in itertools.count():
            await asyncio.sleep(0)

    task = loop.create_task(spin(), context=process.context())
    with pytest.raises(SimulationError, match=r"too many steps.*spin"):
        loop.run_until_complete(task)
    loop.kill(process)
    loop.close()


def test_an_unretrieved_exception_is_kept() -> None:
    loop = _loop()

    async def failing() -> None:
        raise ValueError("lost")

    async def scenario() -> None:
        loop.create_task(failing())
        await asyncio.sleep(1)

    loop.run_until_complete(scenario())
    assert [str(context["exception"]) for context in loop.unhandled] == ["lost"]


def test_a_paused_process_runs_nothing_until_it_is_resumed() -> None:
    with Simulation(1) as simulation:
        world = simulation.start_process("node")
        ticks: list[float] = []

        async def tick() -> None:
            while True:
                ticks.append(simulation.loop.time())
                await asyncio.sleep(1)

        async def drive() -> None:
            world.tasks.spawn(tick(), name="tick")
            await asyncio.sleep(2.5)
            simulation.loop.pause(world.process)
            await asyncio.sleep(10)
            assert len(ticks) == 3
            simulation.loop.resume(world.process)
            await asyncio.sleep(0.1)
            assert ticks[3] == pytest.approx(12.5)
            await asyncio.sleep(1)
            assert len(ticks) == 5

        simulation.run(drive())
