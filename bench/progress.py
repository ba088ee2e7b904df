# SPDX-License-Identifier: Apache-2.0
"""Progress of a run: a bar with the time left on a terminal, one line per turn in a pipe."""

from __future__ import annotations

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from bench.model import Measure
from bench.report import number
from bench.runner import Turn


class ConsoleProgress:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("starting", total=None)
        self._doing = ""

    def __enter__(self) -> ConsoleProgress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def expect(self, turns: int) -> None:
        self._bar.update(self._task, total=turns)

    def turn_begins(self, measure: Measure, round_number: int, rounds: int, variant: str) -> None:
        turn = "warm-up" if round_number < 0 else f"round {round_number + 1}/{rounds}"
        self._doing = f"{measure.name} {turn} {variant}"
        self._bar.update(self._task, description=self._doing)

    def turn_ends(self, turn: Turn) -> None:
        self._bar.advance(self._task)
        shown = list(turn.figures.items())[:4]
        said = ", ".join(f"{name} {number(value)}" for name, value in shown) or f"failed: {turn.error}"
        self._console.print(f"{self._doing}: {said} ({turn.seconds:.1f} s)", markup=False, highlight=False)
