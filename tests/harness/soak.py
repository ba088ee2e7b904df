# SPDX-License-Identifier: Apache-2.0
"""Reports of long tests, one JSON file per part in build/soak/, and the seeds that make a run repeatable."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[2]
_FRESH_SEEDS = 300
REPORTS = _ROOT / "build" / "soak"


def commit() -> str:
    """The commit under test; "unknown" outside a repository."""
    command = ["git", "-C", str(_ROOT), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def first_seed() -> int:
    """Fresh for every commit, the same for all runs of one; HEADRACE_SEED overrides it."""
    given = os.environ.get("HEADRACE_SEED")
    if given:
        return int(given)
    return int.from_bytes(hashlib.blake2b(commit().encode(), digest_size=4).digest()) * 100_000


def fresh_seeds() -> range:
    """The seeds that a simulation runs: 300, or as HEADRACE_SEEDS says.

    `50` means the first 50 of this commit, `50-300` those after them.
    """
    first, _, last = os.environ.get("HEADRACE_SEEDS", str(_FRESH_SEEDS)).rpartition("-")
    return range(first_seed() + int(first or 0), first_seed() + int(last))


def minutes(usual: float) -> float:
    """How long a long test goes on; HEADRACE_SOAK_MINUTES overrides what is usual."""
    return float(os.environ.get("HEADRACE_SOAK_MINUTES", usual))


def seeds_within(limit_minutes: float) -> Iterator[int]:
    """Seeds of this commit, one after the other; none begins after the limit.

    Each is printed, so that a failure names it: HEADRACE_SEED and HEADRACE_SOAK_MINUTES=0 run it again alone.
    """
    first, deadline = first_seed(), time.monotonic() + 60 * limit_minutes
    number = 0
    while number == 0 or time.monotonic() < deadline:
        print(f"seed {first + number}")
        yield first + number
        number += 1


def long_seeds(count: int) -> range:
    """The seeds of a long run: `count` fresh ones behind those of `make check`.

    HEADRACE_SOAK_SEEDS says how many instead, or which: `5000-6000` is a part of a run on several machines.
    """
    first, dash, last = os.environ.get("HEADRACE_SOAK_SEEDS", str(count)).partition("-")
    if dash:
        return range(int(first), int(last))
    begin = fresh_seeds().stop
    return range(begin, begin + int(first))


def hours_per_seed(hours: float) -> float:
    """Of virtual time; HEADRACE_SOAK_HOURS overrides it."""
    return float(os.environ.get("HEADRACE_SOAK_HOURS") or hours)


def write_report(part: str, started: float, figures: Mapping[str, Any]) -> None:
    """`started` is time.monotonic() of the beginning."""
    REPORTS.mkdir(parents=True, exist_ok=True)
    report = {"part": part, "commit": commit(), "seconds": round(time.monotonic() - started, 1), **figures}
    (REPORTS / f"{part}.json").write_text(json.dumps(report, indent=2, default=str) + "\n")
