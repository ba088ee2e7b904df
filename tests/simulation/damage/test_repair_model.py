# SPDX-License-Identifier: Apache-2.0
"""The machine that repairs a damaged segment takes nothing but what the segment held (R27)."""

from __future__ import annotations

from tests.harness.simulation.repair_model import FAULTS
from tests.harness.simulation.seeds import run_some

SIMULATION = "repair_model"
SEEDS = 600


def test_a_repaired_segment_holds_what_it_held() -> None:
    tally = run_some(SIMULATION, {}, range(SEEDS))
    assert tally.failures == []
    assert set(FAULTS) <= set(tally.faults)
    assert min(tally.outcomes[name] for name in ("WHOLE", "FETCH_WHOLE_LOG", "LOG_START_MOVES")) > 20
    assert tally.figures["records_read"] > SEEDS
