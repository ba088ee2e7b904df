# SPDX-License-Identifier: Apache-2.0
"""All checks of the mixed simulation, for mutations (T3): the named schedules, then seeds.

Read next: tests/harness/mutations.py, scenarios.py, cluster.py.
"""

from __future__ import annotations

from tests.harness.simulation.mixed.cluster import run_seed as run_seed
from tests.harness.simulation.mixed.scenarios import SCENARIOS as SCENARIOS
