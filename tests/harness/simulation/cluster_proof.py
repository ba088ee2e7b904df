# SPDX-License-Identifier: Apache-2.0
"""All checks of a simulated cluster, for mutations (T3): the named schedules, then seeds.

Read next: tests/harness/mutations.py, cluster_scenarios.py, rule_scenarios.py, several_nodes.py.
"""

from __future__ import annotations

from tests.harness.simulation import cluster_scenarios, rule_scenarios
from tests.harness.simulation.several_nodes import run_seed as run_seed

SCENARIOS = (*cluster_scenarios.SCENARIOS, *rule_scenarios.SCENARIOS)
