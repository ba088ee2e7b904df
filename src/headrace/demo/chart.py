# SPDX-License-Identifier: Apache-2.0
"""Charts of measured values over time: drawn in the terminal, and saved as SVG without any library.

A chart has an x axis, a y axis, series of points and vertical lines at events. `in_terminal` returns lines of
text, `as_svg` a document that every browser and GitHub shows. Knows nothing of scenes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from html import escape
from itertools import pairwise
from typing import NamedTuple

Point = tuple[float, float]

_COLORS = ("#1f6fb2", "#e08a1e", "#3a9d4b", "#b23a6f", "#6b5bb2", "#7a7a7a")
_SYMBOLS = "●▲■◆○△"
_FONT = 'font-family="system-ui, sans-serif"'


class Kind(Enum):
    LINE = "line"
    DOTS = "dots"
    BARS = "bars"
    """From zero; series of bars stand on top of each other at the same x."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    name: str
    points: Sequence[Point]
    kind: Kind = Kind.LINE


class Mark(NamedTuple):
    """An event at a moment: a vertical line with a label."""

    x: float
    label: str


@dataclass(frozen=True, kw_only=True)
class Chart:
    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    marks: Sequence[Mark] = ()
    log: bool = False
    """Logarithmic y axis: for latencies, where one value may be a thousand times another."""

    def stacked(self) -> Iterator[tuple[Series, Sequence[tuple[float, float, float]]]]:
        """Each series with its points as (x, from y, to y)."""
        heights: dict[float, float] = {}
        for series in self.series:
            drawn = []
            for x, y in series.points:
                base = heights.get(x, 0.0) if series.kind is Kind.BARS else 0.0
                drawn.append((x, base, base + y))
                if series.kind is Kind.BARS:
                    heights[x] = base + y
            yield series, drawn

    @cached_property
    def x_range(self) -> tuple[float, float]:
        places = [x for series in self.series for x, _ in series.points] + [mark.x for mark in self.marks]
        if not places:
            return 0.0, 1.0
        low, high = min(places), max(places)
        half = self.bar_width() / 2
        return (low - half, high + half) if high > low or half else (low, low + 1.0)

    @cached_property
    def y_range(self) -> tuple[float, float]:
        values = [y for _, points in self.stacked() for _, _, y in points]
        highest = max(values, default=1.0) or 1.0
        if not self.log:
            return 0.0, ticks(0.0, highest)[-1]
        lowest = min((y for y in values if y > 0), default=highest / 10)
        return 10.0 ** math.floor(math.log10(lowest)), 10.0 ** math.ceil(math.log10(highest) + 1e-9)

    def bar_width(self) -> float:
        """The distance of neighbouring bars; 0 without bars."""
        places = sorted({x for series in self.series if series.kind is Kind.BARS for x, _ in series.points})
        if not places:
            return 0.0
        return min((after - before for before, after in pairwise(places)), default=1.0)

    def y_ticks(self) -> list[float]:
        low, high = self.y_range
        if not self.log:
            return ticks(low, high)
        first, last = round(math.log10(low)), round(math.log10(high))
        return [10.0**power for power in range(first, last + 1)]

    def height_of(self, y: float) -> float:
        """0 at the lower end of the y axis, 1 at the upper."""
        low, high = self.y_range
        if self.log:
            return math.log10(max(y, low) / low) / math.log10(high / low)
        return (y - low) / (high - low)


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers from `low` to the first at or above `high`: steps of 1, 2 or 5 times a power of ten."""
    span = (high - low) or 1.0
    magnitude = 10.0 ** math.floor(math.log10(span / most))
    step = next(factor * magnitude for factor in (1, 2, 5, 10) if span / (factor * magnitude) <= most)
    first = math.floor(low / step + 1e-9)
    count = math.ceil(high / step - 1e-9) - first
    return [round((first + number) * step, 10) for number in range(max(count, 1) + 1)]


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 10 or value == int(value) else f"{value:g}"


# In the terminal


def in_terminal(chart: Chart, width: int = 78, rows: int = 12) -> list[str]:
    """Title, plot, x axis, what the symbols mean. No line is longer than `width`."""
    labels = {_row(chart, value, rows): number(value) for value in chart.y_ticks()}
    margin = max(len(label) for label in labels.values()) + 1
    columns = width - margin - 2
    grid = [[" "] * columns for _ in range(rows)]
    for mark in chart.marks:
        for line in grid:
            line[_column(chart, mark.x, columns)] = "┊"
    low, high = chart.x_range
    side = max(0, min(2, int(chart.bar_width() / (high - low) * columns / 2 - 1)))  # of a bar's middle
    for symbol, (series, points) in zip(_SYMBOLS, chart.stacked(), strict=False):
        for x, base, y in points:
            lowest = _row(chart, base, rows) if series.kind is Kind.BARS else _row(chart, y, rows)
            column, wide = _column(chart, x, columns), side if series.kind is Kind.BARS else 0
            for row in range(_row(chart, y, rows), lowest + 1):
                for place in range(max(column - wide, 0), min(column + wide + 1, columns)):
                    grid[row][place] = symbol
    plot = [f"{labels.get(row, ''):>{margin}} │{''.join(line).rstrip()}" for row, line in enumerate(grid)]
    axis = f"{'':>{margin}} └{'─' * columns}"
    title = f"{chart.title} ({chart.y_label})"
    titles = [title] if len(title) <= width else [chart.title, f"({chart.y_label})"]
    return [*titles, *plot, axis, *_x_axis(chart, margin, columns), *_legend(chart, width)]


def _row(chart: Chart, y: float, rows: int) -> int:
    return rows - 1 - round(min(max(chart.height_of(y), 0.0), 1.0) * (rows - 1))


def _column(chart: Chart, x: float, columns: int) -> int:
    low, high = chart.x_range
    return round((x - low) / (high - low) * (columns - 1))


def _x_axis(chart: Chart, margin: int, columns: int) -> list[str]:
    low, high = chart.x_range
    text = [" "] * (columns + 1)
    for value in ticks(low, high):
        label, column = number(value), _column(chart, value, columns)
        start = column - len(label) // 2
        free = start >= 0 and start + len(label) <= columns + 1
        if free and low <= value <= high and set(text[max(start - 1, 0) : start + len(label) + 1]) <= {" "}:
            text[start : start + len(label)] = label
    return [f"{'':>{margin + 2}}{''.join(text).rstrip()}", f"{'':>{margin + 2}}{chart.x_label}"]


def _legend(chart: Chart, width: int) -> list[str]:
    entries = [f"{symbol} {series.name}" for symbol, series in zip(_SYMBOLS, chart.series, strict=False)]
    entries += [f"┊ {number(abs(round(mark.x, 1)))}: {mark.label}" for mark in chart.marks]
    lines = [""]
    for entry in entries:
        longer = f"{lines[-1]}   {entry}" if lines[-1] else f"  {entry}"
        if len(longer) > width and lines[-1]:
            lines.append(f"  {entry}")
        else:
            lines[-1] = longer
    return lines


# SVG

_WIDTH, _HEIGHT = 760, 400
_LEFT, _RIGHT, _TOP = 70, 20, 50


def as_svg(chart: Chart) -> str:
    """The whole document."""
    legend = list(_svg_legend(chart))
    bottom = _HEIGHT - 60 - 18 * math.ceil(len(legend) / 3)
    frame = _Frame(chart, bottom)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" {_FONT}>',
        f"<title>{escape(chart.title)}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        _text(_LEFT, 24, chart.title, size=16),
        _text(_LEFT, 42, chart.y_label, size=12, fill="#555"),
        *frame.axes(),
        *frame.marks(),
        *frame.series(),
        _text(_WIDTH / 2, bottom + 36, chart.x_label, size=12, fill="#555", anchor="middle"),
        *(_placed(entry, place, bottom) for place, entry in enumerate(legend)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


@dataclass(frozen=True, slots=True)
class _Frame:
    """Turns values into positions of the picture."""

    chart: Chart
    bottom: float

    def x(self, value: float) -> float:
        low, high = self.chart.x_range
        return round(_LEFT + (value - low) / (high - low) * (_WIDTH - _LEFT - _RIGHT), 1)

    def y(self, value: float) -> float:
        height = min(max(self.chart.height_of(value), 0.0), 1.0)
        return round(self.bottom - height * (self.bottom - _TOP), 1)

    def axes(self) -> Iterator[str]:
        left, right = _LEFT, _WIDTH - _RIGHT
        for value in self.chart.y_ticks():
            y = self.y(value)
            yield f'<line x1="{left}" y1="{y}" x2="{right}" y2="{y}" stroke="#ddd"/>'
            yield _text(left - 8, y + 4, number(value), size=11, anchor="end")
        low, high = self.chart.x_range
        for value in ticks(low, high, most=8):
            if low <= value <= high:
                yield _text(self.x(value), self.bottom + 18, number(value), size=11, anchor="middle")
        yield f'<line x1="{left}" y1="{self.bottom}" x2="{right}" y2="{self.bottom}" stroke="#333"/>'

    def marks(self) -> Iterator[str]:
        for place, mark in enumerate(self.chart.marks, start=1):
            x, dashed = self.x(mark.x), 'stroke="#b22" stroke-dasharray="4 3"'
            yield f'<line x1="{x}" y1="{_TOP}" x2="{x}" y2="{self.bottom}" {dashed}/>'
            yield _text(x + 3, _TOP + 10, str(place), size=11, fill="#b22")

    def series(self) -> Iterator[str]:
        for color, (series, points) in zip(_COLORS, self.chart.stacked(), strict=False):
            if series.kind is Kind.LINE:
                path = " ".join(f"{self.x(x)},{self.y(y)}" for x, _, y in points)
                yield f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>'
            elif series.kind is Kind.DOTS:
                for x, _, y in points:
                    yield f'<circle cx="{self.x(x)}" cy="{self.y(y)}" r="2.5" fill="{color}"/>'
            else:
                yield from (self._bar(color, *point) for point in points)

    def _bar(self, color: str, x: float, base: float, y: float) -> str:
        wide = self.chart.bar_width() * 0.35
        left, top = self.x(x - wide), self.y(y)
        width, height = round(self.x(x + wide) - left, 1), round(self.y(base) - top, 1)
        return f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="{color}"/>'


def _svg_legend(chart: Chart) -> Iterator[tuple[str, str]]:
    """(color, text) of each entry."""
    yield from ((color, f"■ {series.name}") for color, series in zip(_COLORS, chart.series, strict=False))
    yield from (("#b22", f"{place} ┊ {mark.label}") for place, mark in enumerate(chart.marks, start=1))


def _placed(entry: tuple[str, str], place: int, bottom: float) -> str:
    column, row = place % 3, place // 3
    return _text(_LEFT + column * 230, bottom + 60 + row * 18, entry[1], size=12, fill=entry[0])


def _text(x: float, y: float, text: str, *, size: int, fill: str = "#222", anchor: str = "start") -> str:
    style = f'font-size="{size}" fill="{fill}" text-anchor="{anchor}"'
    return f'<text x="{x}" y="{y}" {style}>{escape(text)}</text>'
