# SPDX-License-Identifier: Apache-2.0
"""Runs many seeds of a simulation on all cores and counts what happened in them.

Simulations are modules with a `run_seed`: one_node.py, several_nodes.py, transactions/cluster.py. Read next:
tests/simulation.
"""

from __future__ import annotations

import importlib
import logging
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

_PER_JOB = 10
_FIGURES = (
    "logical_s",
    "records_read",
    "starts",
    "commits",
    "elections",
    "committed",
    "not_committed",
    "endings",
    "late_answers",
    "deleted",
    "compacted",
    "changes",
    "replaced",
)


@dataclass(slots=True)
class Tally:
    failures: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    figures: Counter[str] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        self.failures += other.failures
        self.faults += other.faults
        self.outcomes += other.outcomes
        self.figures += other.figures

    def count(self, report: Any) -> None:
        self.faults += report.faults
        self.outcomes += report.outcomes
        self.figures.update({name: getattr(report, name) for name in _FIGURES if hasattr(report, name)})

    def as_report(self) -> dict[str, Any]:
        figures = dict(self.figures)
        logical_s, cpu_s = figures.pop("logical_s", 0), figures.pop("cpu_s", 0)
        return {
            "failures": self.failures,
            "logical_hours": round(logical_s / 3600, 2),
            "cpu_hours": round(cpu_s / 3600, 3),
            "logical_hours_per_cpu_hour": round(logical_s / max(cpu_s, 1e-9), 1),
            "faults": self.faults,
            "sends": self.outcomes,
            **figures,
        }


def root_of(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def run_some(simulation: str, arguments: Mapping[str, Any], seeds: Sequence[int]) -> Tally:
    """Here, one after the other. `simulation` is a module of this package."""
    started_s = time.process_time()
    run_seed = importlib.import_module(f"tests.harness.simulation.{simulation}").run_seed
    tally = Tally()
    logging.disable(logging.CRITICAL)
    try:
        for seed in seeds:
            try:
                tally.count(run_seed(seed, **arguments))
            except Exception as error:  # noqa: BLE001 - every kind of failure is reported with its seed
                tally.failures.append(f"seed {seed}: {root_of(error)!r}")
    finally:
        logging.disable(logging.NOTSET)
    tally.figures["cpu_s"] = time.process_time() - started_s  # type: ignore[assignment]
    return tally


def run_all(simulation: str, seeds: Sequence[int], **arguments: Any) -> Tally:
    """On all cores, in processes of their own. `arguments` go to `run_seed`."""
    jobs = [seeds[start : start + _PER_JOB] for start in range(0, len(seeds), _PER_JOB)]
    tally = Tally()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(os.cpu_count() or 1, 8), mp_context=context) as pool:
        for part in pool.map(partial(run_some, simulation, arguments), jobs):
            tally.add(part)
    return tally


def known_seeds(path: Path) -> list[int]:
    """One to a line, with what it once found after a #."""
    lines = (line.split("#")[0].strip() for line in path.read_text().splitlines())
    return [int(line) for line in lines if line]
