# SPDX-License-Identifier: Apache-2.0
"""A node with a slow disk or network does not slow its cluster, and does not move to and fro (R16b)."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.harness import soak
from tests.harness.simulation.seeds import run_all
from tests.harness.simulation.slow_nodes import SCENARIOS, run_seed

SIMULATION = "slow_nodes"
SOAK_SEEDS = 500


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_scenario(scenario: Callable[[], None]) -> None:
    scenario()


@pytest.mark.parametrize("seed", range(4))
def test_nodes_that_are_slow_at_random_lose_nothing_and_return(seed: int) -> None:
    assert run_seed(seed).records_read


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_soak_many_seeds_of_slow_nodes() -> None:
    started, first = time.monotonic(), soak.fresh_seeds().stop
    tally = run_all(SIMULATION, range(first, first + SOAK_SEEDS))
    soak.write_report("T7-slow", started, {"first_seed": first, "seeds": SOAK_SEEDS, **tally.as_report()})
    assert tally.failures == []
    assert {"disk", "network", "kill"} <= set(tally.faults)
