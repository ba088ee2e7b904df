# SPDX-License-Identifier: Apache-2.0
"""What the proofs of every simulation share: traces of seeds, and mutations that must be caught."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

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


def caught(path: Path, seeds: int, simulation: str) -> str:
    """What noticed that the rule is missing."""
    command = [sys.executable, "-m", "tests.harness.mutations", str(path), str(seeds), simulation]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()
