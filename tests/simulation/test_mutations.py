# SPDX-License-Identifier: Apache-2.0
"""Every rule that is removed from the code is noticed (T3): a simulation, a model or a test fails without it.

A few patches are tried here, all of them by `make soak PART=T3`; docs/evidence/rules.md has the table of all.
Those of tests/simulation/mutations/replication are also held against their model: test_replication_model.py.
"""

from __future__ import annotations

import time

import pytest

from tests.harness import soak
from tests.harness.mutation_coverage import (
    PAGE,
    fails_without,
    patches,
    path_of,
    proofs_of,
    run_proof,
    with_table,
)
from tests.harness.mutations import check_fresh, load_mutation

QUICK_TO_NOTICE = {
    "acknowledged_before_fsync": 100,
    "duplicates_appended": 100,
    "high_watermark_over_unsynced": 100,
    "read_past_high_watermark": 100,
    "short_write_taken_for_whole": 100,
    "cluster/acknowledged_before_committed": 50,
    "cluster/clock_read_twice": 50,
    "cluster/group_answers_uncommitted": 50,
    "cluster/high_watermark_of_a_sole_replica": 50,
    "cluster/sets_are_unconditional": 0,
    "damage/missing_files_unnoticed": 200,
    "repair/any_leader_is_asked": 600,
    "repair/compacted_range_taken": 600,
    "repair/late_answers_taken": 600,
    "repair/source_is_trusted": 600,
    "repair/whole_before_the_last_gap": 600,
    "slow/all_slow_counts_as_slow": 1,
    "slow/shrinks_below_minimum": 1,
    "transactions/aborted_keys_mapped": 100,
    "transactions/marker_before_prepare_is_committed": 20,
    "transactions/stable_past_unreplicated_marker": 20,
}
"""With the most seeds that are tried."""
SOAK_SEEDS = 2_000
"""Damage to a file that matters for one patch is rare."""
SOAK_MIXED_SEEDS = 200
"""Each takes seconds."""
NOT_NOTICED = {"mixed/damaged_member_proposed"}
"""A known gap: docs/evidence/rules.md says what was tried."""


def noticed_by(patch: str, seeds: int) -> str:
    """The first schedule, seed or test that notices it; empty when none does."""
    mutation = load_mutation(path_of(patch))
    if mutation.test:
        return mutation.test if fails_without(mutation, path_of(patch)) else ""
    for proof in proofs_of(patch):
        code, told = run_proof(patch, proof, str(seeds))
        assert code in (0, 3), told
        if code == 0:
            return told.strip().splitlines()[-1]
    return ""


@pytest.mark.parametrize("patch", patches())
def test_every_mutation_still_fits_the_code(patch: str) -> None:
    mutation = load_mutation(path_of(patch))
    check_fresh(mutation)
    assert bool(mutation.test) != bool(proofs_of(patch)), "either a test or proofs notice it"


@pytest.mark.parametrize("patch", sorted(QUICK_TO_NOTICE))
def test_t3_it_is_noticed_that_a_rule_is_missing(patch: str) -> None:
    assert "noticed by" in noticed_by(patch, QUICK_TO_NOTICE[patch])


def test_t3_a_rule_is_removed_in_the_processes_of_a_test_too() -> None:
    assert noticed_by("processes/own_pause_ends_leases", 0)


def test_the_published_table_names_every_rule_and_patch() -> None:
    """`python -m tests.harness.mutation_coverage table` adds what is missing."""
    page = PAGE.read_text()
    assert with_table({}, page) == page


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_soak_t3_every_mutation_is_noticed() -> None:
    started = time.monotonic()
    noticed = {patch: noticed_by(patch, _soak_seeds(patch)) for patch in patches()}
    soak.write_report("T3", started, {"noticed": noticed})
    assert {patch for patch, by in noticed.items() if not by} <= NOT_NOTICED


def _soak_seeds(patch: str) -> int:
    return SOAK_MIXED_SEEDS if patch.startswith("mixed/") else SOAK_SEEDS
