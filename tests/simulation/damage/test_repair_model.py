# SPDX-License-Identifier: Apache-2.0
"""The machine that repairs a damaged segment takes nothing but what the segment held (R27)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.mutations import check_fresh, load_mutation
from tests.harness.simulation.repair_model import FAULTS
from tests.harness.simulation.seeds import run_some
from tests.simulation.sim_proofs import caught

SIMULATION = "repair_model"
SEEDS = 600
MUTATIONS = sorted((Path(__file__).parents[1] / "mutations" / "repair").glob("*.toml"))


def test_a_repaired_segment_holds_what_it_held() -> None:
    tally = run_some(SIMULATION, {}, range(SEEDS))
    assert tally.failures == []
    assert set(FAULTS) <= set(tally.faults)
    assert min(tally.outcomes[name] for name in ("WHOLE", "FETCH_WHOLE_LOG", "LOG_START_MOVES")) > 20
    assert tally.figures["records_read"] > SEEDS


@pytest.mark.parametrize("path", MUTATIONS, ids=lambda path: path.stem)
def test_t3_every_rule_of_the_repair_is_needed(path: Path) -> None:
    check_fresh(load_mutation(path))
    assert "caught by" in caught(path, SEEDS, SIMULATION)
