# SPDX-License-Identifier: Apache-2.0
"""A file of one node of three is changed, cut or removed: that is noticed, and it heals (R27)."""

from __future__ import annotations

import time

import pytest

from tests.harness import soak
from tests.harness.simulation.damaged_files import KINDS, run_seed
from tests.harness.simulation.seeds import run_all

SIMULATION = "damaged_files"
ENOUGH_SEEDS = 200
SOAK_SEEDS = 2_000
CHECKPOINTS = {
    "log-start-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    ".properties",
    ".metadata",
}


@pytest.mark.parametrize("seed", [*range(1, 9), 115])
def test_a_damaged_log_of_one_node_heals(seed: int) -> None:
    """Seed 115: an offset in the last segment that no index entry can hold kept the node from starting."""
    assert run_seed(seed, logs_only=True).records_read


@pytest.mark.parametrize("seed", [334839386900447, 334839386901582, 334839386901239, 334839386902209])
def test_what_long_runs_found_heals(seed: int) -> None:
    """Leader epochs in unflushed batches that no leader had; a digit in what a node knows of the store."""
    assert run_seed(seed).records_read


@pytest.mark.seeds
@pytest.mark.timeout(900)
def test_any_damaged_file_of_one_node_heals() -> None:
    seeds = soak.fresh_seeds()
    tally = run_all(SIMULATION, seeds)
    assert tally.failures == []
    assert set(KINDS) <= set(tally.faults)
    # The soak meets each of them; a few hundred seeds may miss one by chance.
    assert len(seeds) < ENOUGH_SEEDS or CHECKPOINTS & set(tally.faults)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_soak_many_damaged_files_heal() -> None:
    started, seeds = time.monotonic(), soak.long_seeds(SOAK_SEEDS)
    tally = run_all(SIMULATION, seeds)
    soak.write_report(
        "T7-files", started, {"first_seed": seeds.start, "seeds": len(seeds), **tally.as_report()}
    )
    assert tally.failures == []
    assert set(tally.faults) >= {*KINDS, *CHECKPOINTS}
