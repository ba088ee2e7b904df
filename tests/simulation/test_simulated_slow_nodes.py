# SPDX-License-Identifier: Apache-2.0
"""A node with a slow disk or network does not slow its cluster, and does not move to and fro (R16b)."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness import soak
from tests.harness.mutations import check_fresh, load_mutation
from tests.harness.simulation.seeds import run_all
from tests.harness.simulation.slow_nodes import SCENARIOS, run_seed
from tests.simulation.sim_proofs import caught

SIMULATION = "slow_nodes"
SOAK_SEEDS = 500
MUTATIONS = sorted((Path(__file__).parent / "mutations" / "slow").glob("*.toml"))
QUICK_TO_CATCH = {"shrinks_below_minimum", "all_slow_counts_as_slow"}
"""The others are noticed within seconds, too, and left to the soak."""


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


@pytest.mark.parametrize("path", MUTATIONS, ids=lambda path: path.stem)
def test_t3_every_mutation_still_fits_the_code(path: Path) -> None:
    check_fresh(load_mutation(path))


@pytest.mark.parametrize(
    "path", [path for path in MUTATIONS if path.stem in QUICK_TO_CATCH], ids=lambda path: path.stem
)
def test_t3_the_simulation_notices_that_a_rule_is_missing(path: Path) -> None:
    assert "caught by" in caught(path, 1, SIMULATION)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_soak_t3_slow_nodes_notice_every_mutation() -> None:
    started = time.monotonic()
    noticed = {path.stem: caught(path, 5, SIMULATION) for path in MUTATIONS}
    soak.write_report("T3-slow", started, {"caught": noticed})
