# SPDX-License-Identifier: Apache-2.0
"""Evaluates rounds: percentiles, per-round ratios, their median, and whether a target is met.

Pure functions over recorded rounds; no round is ever left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bench.model import KAFKA, VARIANTS, Better, Figures, Line, Measure

Round = Mapping[str, Figures]
"""The figures of one round by variant; a variant whose turn failed is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The median of the rounds, with the lowest and the highest."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LineResult:
    measure: str
    line: Line
    values: Mapping[str, Spread]
    ratios: Mapping[str, Spread]
    """By variant. To Apache Kafka for those of Headrace; of an own line the figure itself, for all."""
    verdict: str


def percentile(samples: Sequence[float], percent: float) -> float:
    """Nearest rank: a value that was really measured."""
    if not samples:
        raise ValueError("no samples: nothing was measured")
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def spread(values: Sequence[float]) -> Spread | None:
    if not values:
        return None
    return Spread(median=median(values), low=min(values), high=max(values))


def ratios_to_kafka(rounds: Sequence[Round], variant: str, figure: str) -> list[float]:
    """One ratio per round in which both engines gave the figure."""
    return [
        done[variant][figure] / done[KAFKA][figure]
        for done in rounds
        if figure in done.get(variant, {}) and done.get(KAFKA, {}).get(figure)
    ]


def judge_line(measure: Measure, line: Line, rounds: Sequence[Round]) -> LineResult:
    values: dict[str, Spread] = {}
    ratios: dict[str, Spread] = {}
    for variant in VARIANTS:
        figures = [done[variant][line.figure] for done in rounds if line.figure in done.get(variant, {})]
        if seen := spread(figures):
            values[variant] = seen
        compared = figures if line.own else ratios_to_kafka(rounds, variant, line.figure)
        if (line.own or variant != KAFKA) and (seen := spread(compared)):
            ratios[variant] = seen
    complete = all(line.figure in done.get(line.judged, {}) for done in rounds)
    ratio = ratios.get(line.judged) if complete else None
    return LineResult(
        measure=measure.name, line=line, values=values, ratios=ratios, verdict=_verdict(line, ratio)
    )


def _verdict(line: Line, ratio: Spread | None) -> str:
    if ratio is None:
        return "not measured"
    if line.target is None:
        return ""
    if not _reaches(line, ratio.median, line.target):
        return "missed"
    if line.goal is not None and _reaches(line, ratio.median, line.goal):
        return "met, goal reached"
    return "met"


def _reaches(line: Line, ratio: float, target: float) -> bool:
    return ratio >= target if line.better is Better.HIGHER else ratio <= target
