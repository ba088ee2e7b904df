# SPDX-License-Identifier: Apache-2.0
"""Takes the rounds: every variant in turn, the order swapped each round, every turn recorded.

A turn that fails is recorded with its error and ends its measure; the rest of the suite goes on.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from bench.cell import Cell
from bench.judge import LineResult, Round, judge_line
from bench.measures.warm_up import warm_up_node
from bench.model import Figures, Measure
from bench.nodes import Nodes
from bench.workers import WorkerPool
from headrace.cluster.engines.kafka import KafkaEngine

_WARM_UP_SHARE = 0.25
_PAUSE_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One variant's turn in one round."""

    round: int
    """-1 is the warm-up, which is not judged."""
    position: int
    variant: str
    figures: Figures
    seconds: float
    load_average: tuple[float, float, float]
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureRecord:
    measure: Measure
    turns: list[Turn] = field(default_factory=list)

    @property
    def error(self) -> str | None:
        return next((turn.error for turn in self.turns if turn.error), None)

    def rounds(self) -> list[Round]:
        rounds: dict[int, dict[str, Figures]] = {}
        for turn in self.turns:
            if turn.round >= 0:
                rounds.setdefault(turn.round, {})[turn.variant] = turn.figures
        return list(rounds.values())

    def results(self) -> list[LineResult]:
        return [judge_line(self.measure, line, self.rounds()) for line in self.measure.lines]

    def as_json(self) -> dict[str, Any]:
        profile = self.measure.profile
        return {
            "measure": self.measure.name,
            "settings": dict(profile.settings) if profile else {},
            "turns": [asdict(turn) for turn in self.turns],
        }


class Progress(Protocol):
    def turn_begins(self, measure: Measure, round_number: int, rounds: int, variant: str) -> None: ...

    def turn_ends(self, turn: Turn) -> None: ...


def turn_order(variants: Sequence[str], round_number: int) -> list[str]:
    """Forwards in even rounds, backwards in odd ones: nobody always goes first."""
    return list(variants) if round_number % 2 == 0 else list(reversed(variants))


@dataclass(kw_only=True)
class Runner:
    nodes: Nodes
    tools: KafkaEngine
    pool: WorkerPool
    rounds: int
    scale: float
    progress: Progress

    def turns_in(self, measure: Measure) -> int:
        return len(self._variants(measure)) * (self._rounds_of(measure) + measure.warm_up)

    def run(self, measure: Measure) -> MeasureRecord:
        """All rounds of one measure."""
        self.nodes.use(measure.profile)
        cells = {variant: self._cell(variant) for variant in self._variants(measure)}
        record = MeasureRecord(measure=measure)
        first, rounds = -1 if measure.warm_up else 0, self._rounds_of(measure)
        for round_number in range(first, rounds):
            for position, variant in enumerate(turn_order(list(cells), round_number)):
                self.progress.turn_begins(measure, round_number, rounds, variant)
                if measure.profile is not None:
                    self._ready_node(cells[variant])
                turn = _take_turn(measure, cells[variant], round_number, position)
                record.turns.append(turn)
                self.progress.turn_ends(turn)
                if turn.error:
                    return record
                _sync_disks()
        for cell in cells.values():
            if measure.profile is not None:
                cell.release()
        return record

    def _rounds_of(self, measure: Measure) -> int:
        return self.rounds if measure.rounds is None else min(measure.rounds, self.rounds)

    def _ready_node(self, cell: Cell) -> None:
        """Starting a node and warming it up are no part of a turn."""
        if self.nodes.start_if_needed(cell.variant):
            warm_up_node(cell)

    def _variants(self, measure: Measure) -> list[str]:
        return [variant for variant in measure.variants if variant in self.nodes.variants]

    def _cell(self, variant: str) -> Cell:
        return Cell(
            variant=variant,
            nodes=self.nodes,
            tools=self.tools,
            pool=self.pool,
            suite_scale=self.scale,
        )


def _sync_disks() -> None:
    """What one node left for the disk to write must not slow down the next one's writes."""
    os.sync()
    time.sleep(_PAUSE_SECONDS)


def _take_turn(measure: Measure, cell: Cell, round_number: int, position: int) -> Turn:
    warming_up = round_number < 0
    cell.scale = cell.suite_scale * (_WARM_UP_SHARE if warming_up else 1.0)
    load_average = os.getloadavg()
    started = time.monotonic()
    error: str | None = None
    figures: Figures = {}
    try:
        figures = measure.run(cell)
    except Exception:  # noqa: BLE001 - whatever a client library raises, the other measures must go on
        error = traceback.format_exc(limit=-3)
    return Turn(
        round=round_number,
        position=position,
        variant=cell.variant,
        figures=figures,
        seconds=round(time.monotonic() - started, 3),
        load_average=load_average,
        error=error,
    )
