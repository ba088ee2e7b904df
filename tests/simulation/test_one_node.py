"""One node of the real broker code under seeded faults (T2), and proof that the simulation sees enough (T3).

A failing seed is repeated by `run_seed(SEED)`; it is then written to seeds.txt, where it stays.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from headrace.testing import faults, soak
from headrace.testing.mutations import check_fresh, load_mutation
from headrace.testing.one_node import run_seed

FRESH_SEEDS = 300
SOAK_SEEDS = 2_000
SEEDS_FILE = Path(__file__).with_name("seeds.txt")
MUTATIONS = sorted(Path(__file__).with_name("mutations").glob("*.toml"))
QUICK_TO_CATCH = {
    "hw_over_unsynced",
    "duplicates_appended",
    "read_past_high_watermark",
    "short_write_taken_for_whole",
}
_PER_JOB = 10


@dataclass(slots=True)
class Tally:
    failures: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    records_read: int = 0
    starts: int = 0

    def add(self, other: Tally) -> None:
        self.failures += other.failures
        self.faults += other.faults
        self.outcomes += other.outcomes
        self.records_read += other.records_read
        self.starts += other.starts


def _root_of(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def run_some(seeds: Sequence[int]) -> Tally:
    logging.disable(logging.CRITICAL)
    try:
        return _run_quietly(seeds)
    finally:
        logging.disable(logging.NOTSET)


def _run_quietly(seeds: Sequence[int]) -> Tally:
    tally = Tally()
    for seed in seeds:
        try:
            report = run_seed(seed)
        except Exception as error:  # noqa: BLE001 - every kind of failure is reported with its seed
            tally.failures.append(f"seed {seed}: {_root_of(error)!r}")
            continue
        tally.faults += report.faults
        tally.outcomes += report.outcomes
        tally.records_read += report.records_read
        tally.starts += report.starts
    return tally


def run_all(seeds: Sequence[int]) -> Tally:
    jobs = [seeds[start : start + _PER_JOB] for start in range(0, len(seeds), _PER_JOB)]
    tally = Tally()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(os.cpu_count() or 1, 8), mp_context=context) as pool:
        for part in pool.map(run_some, jobs):
            tally.add(part)
    return tally


def kept_seeds() -> list[int]:
    lines = (line.split("#")[0].strip() for line in SEEDS_FILE.read_text().splitlines())
    return [int(line) for line in lines if line]


def test_seeds_that_once_failed_still_pass() -> None:
    assert run_some(kept_seeds()).failures == []


def test_t2_fresh_seeds_break_no_promise() -> None:
    first = soak.first_seed()
    tally = run_all(range(first, first + FRESH_SEEDS))
    assert tally.failures == [], "add the seeds to tests/simulation/seeds.txt"
    assert set(tally.faults) == set(faults.ALL)
    assert tally.outcomes["ok"] > 50 * FRESH_SEEDS
    assert tally.records_read > 50 * FRESH_SEEDS
    assert tally.starts > 2 * FRESH_SEEDS


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_soak_t2_many_fresh_seeds_break_no_promise() -> None:
    started, first = time.monotonic(), soak.first_seed() + FRESH_SEEDS
    tally = run_all(range(first, first + SOAK_SEEDS))
    figures = {
        "first_seed": first,
        "seeds": SOAK_SEEDS,
        "failures": tally.failures,
        "faults": tally.faults,
        "sends": tally.outcomes,
        "records_read": tally.records_read,
        "starts": tally.starts,
    }
    soak.write_report("T2", started, figures)
    assert tally.failures == []


_TRACES = """
import json, logging
from headrace.testing.one_node import run_seed
logging.disable(logging.CRITICAL)
print(json.dumps([run_seed(seed).trace_hash for seed in range(4)]))
"""


def _traces(hash_seed: str) -> list[str]:
    """In a process of its own: neither what ran before nor the order of sets may matter."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", _TRACES], env=environment, capture_output=True, text=True, check=True
    )
    traces: list[str] = json.loads(done.stdout)
    return traces


def test_the_same_seed_gives_the_same_trace() -> None:
    first, second = _traces("1"), _traces("2")
    assert first == second
    assert len(set(first)) == len(first)


@pytest.mark.parametrize("path", MUTATIONS, ids=lambda path: path.stem)
def test_t3_every_mutation_still_fits_the_code(path: Path) -> None:
    check_fresh(load_mutation(path))


def _is_caught(path: Path, seeds: int) -> str:
    command = [sys.executable, "-m", "headrace.testing.mutations", str(path), str(seeds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "path", [path for path in MUTATIONS if path.stem in QUICK_TO_CATCH], ids=lambda path: path.stem
)
def test_t3_the_simulation_notices_that_a_rule_is_missing(path: Path) -> None:
    assert "caught by seed" in _is_caught(path, 100)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_soak_t3_the_simulation_notices_every_mutation() -> None:
    started = time.monotonic()
    caught = {path.stem: _is_caught(path, 500).strip() for path in MUTATIONS}
    soak.write_report("T3", started, {"caught": caught})
