"""One node of the real broker code under seeded faults (T2), and proof that the simulation sees enough (T3).

A failing seed is repeated by `run_seed(SEED)`; it is then written to seeds.txt, where it stays.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from sim_proofs import caught, traces

from headrace.testing import faults, soak
from headrace.testing.mutations import check_fresh, load_mutation
from headrace.testing.seed_runs import kept_seeds, run_all, run_some

SIMULATION = "one_node"
FRESH_SEEDS = 300
SOAK_SEEDS = 2_000
SEEDS_FILE = Path(__file__).with_name("seeds.txt")
MUTATIONS = sorted(Path(__file__).with_name("mutations").glob("*.toml"))
QUICK_TO_CATCH = {
    "hw_over_unsynced",
    "duplicates_appended",
    "read_past_high_watermark",
    "short_write_taken_for_whole",
}


def test_seeds_that_once_failed_still_pass() -> None:
    assert run_some(SIMULATION, kept_seeds(SEEDS_FILE)).failures == []


def test_t2_fresh_seeds_break_no_promise() -> None:
    first = soak.first_seed()
    tally = run_all(SIMULATION, range(first, first + FRESH_SEEDS))
    assert tally.failures == [], "add the seeds to tests/simulation/seeds.txt"
    assert set(tally.faults) == set(faults.ALL)
    assert tally.outcomes["ok"] > 50 * FRESH_SEEDS
    assert tally.figures["records_read"] > 50 * FRESH_SEEDS
    assert tally.figures["starts"] > 2 * FRESH_SEEDS


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_soak_t2_many_fresh_seeds_break_no_promise() -> None:
    started, first = time.monotonic(), soak.first_seed() + FRESH_SEEDS
    tally = run_all(SIMULATION, range(first, first + SOAK_SEEDS))
    soak.write_report("T2", started, {"first_seed": first, "seeds": SOAK_SEEDS, **tally.as_report()})
    assert tally.failures == []


def test_the_same_seed_gives_the_same_trace() -> None:
    first, second = traces(SIMULATION, 4, hash_seed="1"), traces(SIMULATION, 4, hash_seed="2")
    assert first == second
    assert len(set(first)) == len(first)


@pytest.mark.parametrize("path", MUTATIONS, ids=lambda path: path.stem)
def test_t3_every_mutation_still_fits_the_code(path: Path) -> None:
    check_fresh(load_mutation(path))


@pytest.mark.parametrize(
    "path", [path for path in MUTATIONS if path.stem in QUICK_TO_CATCH], ids=lambda path: path.stem
)
def test_t3_the_simulation_notices_that_a_rule_is_missing(path: Path) -> None:
    assert "caught by seed" in caught(path, 100, SIMULATION)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_soak_t3_the_simulation_notices_every_mutation() -> None:
    started = time.monotonic()
    noticed = {path.stem: caught(path, 500, SIMULATION) for path in MUTATIONS}
    soak.write_report("T3", started, {"caught": noticed})
