# SPDX-License-Identifier: Apache-2.0
"""How a figure grows with what there is of something: growth exponents, and curves with their figures.

The exponent is the slope between logarithms: 0 does not grow, 1 is linear, 2 quadratic.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from bench.model import VARIANTS, Better, Curve, Figures, Line
from bench.runner import MeasureRecord

LINEAR = 1.1
"""What counts as linear: figures of one run differ by some percent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCurve:
    curve: Curve
    variant: str
    values: tuple[float, ...]
    """The median of the rounds, by size."""

    @property
    def growth(self) -> float:
        return exponent(self.curve.sizes, self.values)

    @property
    def last_step(self) -> float:
        return exponent(self.curve.sizes[-2:], self.values[-2:])


def exponent(sizes: Sequence[int], values: Sequence[float]) -> float:
    """From the smallest size to the largest. A figure of zero has no logarithm: it does not grow."""
    if min(values[0], values[-1]) <= 0:
        return 0.0
    return math.log(values[-1] / values[0]) / math.log(sizes[-1] / sizes[0])


def with_growth(figures: Figures, curves: Iterable[Curve]) -> Figures:
    """The figures, and the growth of each curve."""
    grown = {
        curve.exponent: exponent(curve.sizes, [figures[curve.at(size)] for size in curve.sizes])
        for curve in curves
    }
    return figures | grown


def growth_lines(curves: Iterable[Curve]) -> tuple[Line, ...]:
    """That the curve grows linearly at most, where that is asked of it."""
    return tuple(
        Line(
            figure=curve.exponent,
            title=f"{curve.title}: growth",
            unit="exponent",
            better=Better.LOWER,
            target=curve.most,
            own=True,
        )
        for curve in curves
        if curve.most is not None
    )


def curves_of(records: Sequence[MeasureRecord]) -> list[MeasuredCurve]:
    """Those that were measured at all their sizes."""
    measured = []
    for record in records:
        for curve in record.measure.curves:
            for variant in VARIANTS:
                rounds = [done[variant] for done in record.rounds() if variant in done]
                points = [curve.at(size) for size in curve.sizes]
                taken = [[done[point] for done in rounds if point in done] for point in points]
                if all(taken):
                    values = tuple(median(each) for each in taken)
                    measured.append(MeasuredCurve(curve=curve, variant=variant, values=values))
    return measured
