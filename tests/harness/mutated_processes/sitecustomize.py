# SPDX-License-Identifier: Apache-2.0
"""Removes the rule that HEADRACE_MUTATION names, in every Python process with this folder in PYTHONPATH.

Read next: tests/harness/mutations.py, tests/harness/mutation_coverage.py (which sets both).
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.harness.mutations import install, load_mutation

install(load_mutation(Path(os.environ["HEADRACE_MUTATION"])))
