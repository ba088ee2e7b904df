# SPDX-License-Identifier: Apache-2.0
"""Carries out one seeded run of a simulation and counts what every kind of run counts.

Knows no node and no plan. Read next: one_node.py and several_nodes.py (the runs), seeds.py (many seeds).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from headrace.testing.simworld import ClockProfile, Simulation
from tests.harness.history import History


class Faults(Protocol):
    counts: Counter[str]


class Run(Protocol):
    history: History

    @property
    def faults(self) -> Faults: ...

    def run(self) -> Coroutine[Any, Any, None]: ...


P = TypeVar("P")


@dataclass(slots=True, kw_only=True)
class RunReport(Generic[P]):
    """What happened in a run. Those of a kind of run add what else it counts."""

    seed: int
    plan: P
    trace_hash: str = ""
    logical_s: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    records_read: int = 0
    starts: int = 0


R = TypeVar("R", bound=Run)


def carry_out(
    report: RunReport[Any], make_run: Callable[[Simulation], R], *, max_steps: int = 2_000_000
) -> R:
    """Raises what went wrong, with the seed and its plan."""
    with Simulation(report.seed, clock=ClockProfile(), max_steps=max_steps) as simulation:
        try:
            run = make_run(simulation)
            simulation.run(run.run())
        except BaseException as error:
            error.add_note(f"seed {report.seed}: {report.plan}")
            raise
        report.logical_s = simulation.loop.time()
        report.trace_hash = simulation.loop.trace_hash()
    report.outcomes.update(run.history.outcomes())
    report.faults = run.faults.counts
    report.records_read = sum(len(poll.records) for poll in run.history.polls)
    return run
