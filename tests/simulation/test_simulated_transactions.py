# SPDX-License-Identifier: Apache-2.0
"""Transactional clients of both protocols on three simulated nodes (T12).

A failing seed is repeated by `transactions.cluster.run_seed(SEED)`; it is then written to
transaction_seeds.txt, where it stays. A run takes longer than one of plain sends: of the fresh seeds one in
six is taken.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.harness import soak
from tests.harness.simulation.seeds import known_seeds, run_all
from tests.harness.simulation.transactions.cluster import draw_plan, run_seed
from tests.harness.simulation.transactions.compaction import run_seed as run_compaction
from tests.harness.simulation.transactions.life import Habits
from tests.harness.simulation.transactions.scenarios import SCENARIOS
from tests.simulation.sim_proofs import traces

SIMULATION = "transactions.cluster"
ONE_IN = 6
SOAK_SEEDS = 500
NEVER = 10**9
SEEDS_FILE = Path(__file__).with_name("transaction_seeds.txt")


def test_seeds_that_once_failed_still_pass() -> None:
    assert run_all(SIMULATION, known_seeds(SEEDS_FILE)).failures == []


@pytest.mark.seeds
@pytest.mark.timeout(900)
def test_t12_fresh_seeds_find_no_anomaly() -> None:
    seeds = soak.fresh_seeds()[::ONE_IN]
    tally = run_all(SIMULATION, seeds)
    assert tally.failures == [], "add the seeds to tests/simulation/transaction_seeds.txt"
    assert tally.figures["committed"] > 8 * len(seeds)
    assert tally.figures["not_committed"] > len(seeds)
    assert tally.figures["records_read"] > 20 * len(seeds)
    assert tally.figures["late_answers"] > len(seeds)
    assert tally.figures["elections"] > len(seeds)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_soak_t12_many_fresh_seeds_of_transactions_find_no_anomaly() -> None:
    started, seeds = time.monotonic(), soak.long_seeds(SOAK_SEEDS)
    tally = run_all(SIMULATION, seeds, of_sites=True)
    report = {"first_seed": seeds.start, "seeds": len(seeds), **tally.as_report()}
    soak.write_report("T12-simulation", started, report)
    assert tally.failures == []


def test_without_faults_no_client_is_refused() -> None:
    """Neither by late copies of its own requests nor by the markers of its last transaction."""
    plan = draw_plan(Random(1))
    habits = Habits(aborts=8, deaths=NEVER, replacements=NEVER, copies=4, timeouts_ms=(60_000,))
    calm = replace(plan, cluster=replace(plan.cluster, allowed_faults=("clock_jump",)), habits=habits)
    report = run_seed(1, plan=calm)
    assert report.ends == {}
    assert report.committed >= 15
    assert sum(report.late.values()) > 5


def test_the_same_seed_gives_the_same_trace() -> None:
    first, second = traces(SIMULATION, 1, hash_seed="1"), traces(SIMULATION, 1, hash_seed="2")
    assert first == second


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_scenario(scenario: Callable[[], None]) -> None:
    scenario()


def test_compaction_leaves_the_last_committed_record_of_every_key() -> None:
    for seed in range(50):
        run_compaction(seed)
