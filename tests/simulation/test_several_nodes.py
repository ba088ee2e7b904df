# SPDX-License-Identifier: Apache-2.0
"""Three to five nodes of the real broker code under seeded faults (T2).

A failing seed is repeated by `several_nodes.run_seed(SEED)`; it is then written to cluster_seeds.txt, where
it stays.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.harness import soak
from tests.harness.simulation import cluster_faults
from tests.harness.simulation.seeds import known_seeds, run_all
from tests.simulation.sim_proofs import traces

SIMULATION = "several_nodes"
ENOUGH_SEEDS = 200
"""So many draw every fault."""
SOAK_SEEDS = 2_000
SEEDS_FILE = Path(__file__).with_name("cluster_seeds.txt")
ALL_FAULTS = {
    *cluster_faults.OF_ONE_NODE,
    *cluster_faults.BETWEEN_NODES,
    *cluster_faults.CUTS,
    *cluster_faults.OF_POWER,
}


def test_seeds_that_once_failed_still_pass() -> None:
    assert run_all(SIMULATION, known_seeds(SEEDS_FILE)).failures == []


@pytest.mark.seeds
@pytest.mark.timeout(900)
def test_t2_fresh_seeds_find_no_anomaly() -> None:
    seeds = soak.fresh_seeds()
    tally = run_all(SIMULATION, seeds)
    assert tally.failures == [], "add the seeds to tests/simulation/cluster_seeds.txt"
    assert set(tally.faults) == ALL_FAULTS or len(seeds) < ENOUGH_SEEDS
    assert tally.outcomes["ok"] > 30 * len(seeds)
    assert tally.figures["records_read"] > 30 * len(seeds)
    assert tally.figures["commits"] > 5 * len(seeds)
    assert tally.figures["elections"] > 2 * len(seeds)
    assert tally.figures["starts"] > 4 * len(seeds)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_soak_t2_many_fresh_seeds_of_a_cluster_find_no_anomaly() -> None:
    started, seeds = time.monotonic(), soak.long_seeds(SOAK_SEEDS)
    tally = run_all(SIMULATION, seeds)
    soak.write_report(
        "T2-cluster", started, {"first_seed": seeds.start, "seeds": len(seeds), **tally.as_report()}
    )
    assert tally.failures == []


def test_the_same_seed_gives_the_same_trace() -> None:
    first, second = traces(SIMULATION, 3, hash_seed="1"), traces(SIMULATION, 3, hash_seed="2")
    assert first == second
    assert len(set(first)) == len(first)
