# SPDX-License-Identifier: Apache-2.0
"""Replication under seeded faults (T2 in small) and with each rule taken out (T3)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.mutations import load_mutation
from tests.harness.replication.model import ReplicationModel, run_seed
from tests.harness.replication.mutations import caught_by
from tests.harness.replication.scenarios import SCENARIOS

MUTATIONS = sorted((Path(__file__).parent / "mutations" / "replication").glob("*.toml"))
SEEDS_PER_MUTATION = 500
KEPT_SEEDS = (110, 11562)
"""A conflict with the own proposal; a recovered leader that lost power in its turn."""


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_nothing_acknowledged_is_lost_and_all_goes_on_after_the_faults(first: int) -> None:
    acknowledged = sum(len(run_seed(seed).acked) for seed in range(first, first + 50))
    assert acknowledged > 50, "the faults left nothing to prove"


@pytest.mark.parametrize("seed", KEPT_SEEDS)
def test_seeds_that_showed_a_fault(seed: int) -> None:
    run_seed(seed)


def test_the_same_seed_gives_the_same_run() -> None:
    one, other = run_seed(11), run_seed(11)
    assert (one.state, one.acked, one.now_ms) == (other.state, other.acked, other.now_ms)


def test_a_sole_in_sync_replica_restarts_with_a_tail_above_the_high_watermark() -> None:
    """Liveness: the others catch up on the tail, join, and it is committed."""
    model = ReplicationModel(1)
    model.faulty = False
    first, *others = model.nodes
    model.apply_view(first)
    for _ in range(3):
        model.produce(first)
    for node in others:
        model.kill(node)
        model.expire(node)
    model.elect()
    model.apply_view(first)
    model.kill(first)
    model.restart(first)
    model.apply_view(first)
    assert (model.state.isr, set(model.state.elr), first.high_watermark) == ((0,), {1, 2}, 0)
    model.heal()
    assert all(node.log.values[:3] == first.log.values[:3] for node in model.nodes)
    assert first.high_watermark >= 3


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_scenario(scenario: Callable[[], None]) -> None:
    scenario()


@pytest.mark.parametrize("path", MUTATIONS, ids=lambda path: path.stem)
def test_a_rule_taken_out_is_noticed(path: Path) -> None:
    mutation = load_mutation(path)
    assert caught_by(mutation, SEEDS_PER_MUTATION), f"{mutation.rule} survived: {mutation.why}"
