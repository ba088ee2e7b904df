# SPDX-License-Identifier: Apache-2.0
"""One node of the real broker code under seeded faults (T2).

A failing seed is repeated by `run_seed(SEED)`; it is then written to seeds.txt, where it stays.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.harness import soak
from tests.harness.simulation import faults
from tests.harness.simulation.seeds import known_seeds, run_all, run_some
from tests.simulation.sim_proofs import traces

SIMULATION = "one_node"
ENOUGH_SEEDS = 200
"""So many draw every fault."""
SOAK_SEEDS = 2_000
SEEDS_FILE = Path(__file__).with_name("seeds.txt")


def test_seeds_that_once_failed_still_pass() -> None:
    assert run_some(SIMULATION, {}, known_seeds(SEEDS_FILE)).failures == []


@pytest.mark.seeds
def test_t2_fresh_seeds_find_no_anomaly() -> None:
    seeds = soak.fresh_seeds()
    tally = run_all(SIMULATION, seeds)
    assert tally.failures == [], "add the seeds to tests/simulation/seeds.txt"
    assert set(tally.faults) == set(faults.ALL) or len(seeds) < ENOUGH_SEEDS
    assert tally.outcomes["ok"] > 50 * len(seeds)
    assert tally.figures["records_read"] > 50 * len(seeds)
    assert tally.figures["starts"] > 2 * len(seeds)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_soak_t2_many_fresh_seeds_find_no_anomaly() -> None:
    started, seeds = time.monotonic(), soak.long_seeds(SOAK_SEEDS)
    tally = run_all(SIMULATION, seeds)
    soak.write_report("T2", started, {"first_seed": seeds.start, "seeds": len(seeds), **tally.as_report()})
    assert tally.failures == []


def test_the_same_seed_gives_the_same_trace() -> None:
    first, second = traces(SIMULATION, 4, hash_seed="1"), traces(SIMULATION, 4, hash_seed="2")
    assert first == second
    assert len(set(first)) == len(first)
