# SPDX-License-Identifier: Apache-2.0
"""What the tests of every simulation share: traces of seeds."""

from __future__ import annotations

import json
import os
import subprocess
import sys

_TRACES = """
import json, logging, sys
from importlib import import_module
logging.disable(logging.CRITICAL)
run_seed = import_module(f"tests.harness.simulation.{sys.argv[1]}").run_seed
print(json.dumps([run_seed(seed).trace_hash for seed in range(int(sys.argv[2]))]))
"""


def traces(simulation: str, seeds: int, *, hash_seed: str) -> list[str]:
    """In a process of its own: neither what ran before nor the order of sets may matter."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", _TRACES, simulation, str(seeds)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: list[str] = json.loads(done.stdout)
    return found
