# SPDX-License-Identifier: Apache-2.0
"""All checks of the mixed simulation, for mutations (T3): schedules, seeds that once failed, other seeds.

Read next: tests/harness/mutations.py, scenarios.py, cluster.py.
"""

from __future__ import annotations

from pathlib import Path

from tests.harness.simulation.mixed.cluster import run_seed as run_seed
from tests.harness.simulation.mixed.scenarios import SCENARIOS as SCENARIOS
from tests.harness.simulation.seeds import known_seeds

KNOWN_SEEDS = known_seeds(Path(__file__).parents[3] / "simulation" / "mixed_seeds.txt")
