# SPDX-License-Identifier: Apache-2.0
"""All checks of the replication machines, for mutations (T3): the named schedules, then seeds of the model.

Read next: tests/harness/mutations.py, scenarios.py, model.py.
"""

from __future__ import annotations

from tests.harness.replication.model import run_seed as run_seed
from tests.harness.replication.scenarios import SCENARIOS as SCENARIOS
