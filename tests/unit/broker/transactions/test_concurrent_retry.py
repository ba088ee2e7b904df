# SPDX-License-Identifier: Apache-2.0
"""CONCURRENT_TRANSACTIONS: asked again for a short time, with a backoff that grows."""

from __future__ import annotations

from itertools import pairwise

import pytest

from headrace.broker.transactions.concurrent_retry import LONGEST_BACKOFF_S, RETRY_S, ConcurrentRetry
from headrace.testing.simworld import Simulation


def test_it_is_asked_again_until_the_time_is_over_and_once_at_its_end() -> None:
    asked: list[float] = []
    with Simulation(1) as simulation:
        world = simulation.start_process("node")

        async def scenario() -> None:
            began = world.clock.monotonic()
            retry = ConcurrentRetry(world.clock, world.tasks)

            def ask() -> None:
                asked.append(world.clock.monotonic() - began)
                refused.append(not retry.schedule(ask))

            refused = [not retry.schedule(ask)]
            await world.tasks.sleep(2 * RETRY_S)
            assert refused == [False] * len(asked) + [True]

        simulation.run(scenario())

    assert asked[0] == pytest.approx(0.001, abs=0.0005)
    assert asked[-1] == pytest.approx(RETRY_S, abs=0.001)
    waits = [round(later - earlier, 3) for earlier, later in pairwise(asked[:-1])]
    assert waits == sorted(waits)
    assert waits[-1] == LONGEST_BACKOFF_S
    assert len(asked) < 15, "not a busy loop"


def test_nothing_is_asked_again_when_the_first_answer_took_too_long() -> None:
    with Simulation(1) as simulation:
        world = simulation.start_process("node")

        async def scenario() -> None:
            retry = ConcurrentRetry(world.clock, world.tasks)
            await world.tasks.sleep(RETRY_S)
            assert not retry.schedule(lambda: pytest.fail("asked again"))
            await world.tasks.sleep(RETRY_S)

        simulation.run(scenario())
