"""All that proves a cluster, for mutations (T3): the schedules known by name, then seeds.

Read next: mutations.py, cluster_scenarios.py, several_nodes.py.
"""

from __future__ import annotations

from headrace.testing.cluster_scenarios import SCENARIOS as SCENARIOS
from headrace.testing.several_nodes import run_seed as run_seed
