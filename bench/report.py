# SPDX-License-Identifier: Apache-2.0
"""The table, on a terminal (rich) and as Markdown; both from the same cells.

Numbers are rounded for reading; the JSON has them whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from bench.curves import MeasuredCurve
from bench.judge import LineResult
from bench.model import ACK, KAFKA, OS, VARIANT_TITLES, Better

HEADINGS = (
    "measure",
    "Apache Kafka",
    "Headrace `os`",
    "ratio (lowest … highest)",
    "target",
    "",
    "Headrace `ack`",
    "ratio (lowest … highest)",
)
_PIPE_WIDTH = 190
_STYLES = {"missed": "red", "not measured": "yellow"}


def number(value: float) -> str:
    """Three significant figures, with thousands set apart."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def row_cells(result: LineResult) -> list[str]:
    line = result.line
    return [
        line.title,
        _value(result, KAFKA),
        _value(result, OS),
        _ratio(result, KAFKA if line.judged == KAFKA else OS),
        _target(result),
        result.verdict,
        _value(result, ACK),
        _ratio(result, ACK),
    ]


def _value(result: LineResult, variant: str) -> str:
    value = result.values.get(variant)
    return "–" if value is None else f"{number(value.median)} {result.line.unit}"


def _ratio(result: LineResult, variant: str) -> str:
    ratio = result.ratios.get(variant)
    if ratio is None:
        return "–"
    sign = _sign(result)
    figures = [ratio.median, ratio.low, ratio.high]
    median, low, high = (number(each) if result.line.own else _times(each) for each in figures)
    return f"{median}{sign} ({low} … {high})"


def _times(ratio: float) -> str:
    """Two decimals, or as many as it takes to see two figures."""
    return f"{ratio:.2f}" if ratio >= 0.1 or ratio <= 0 else f"{ratio:.2g}"


def _sign(result: LineResult) -> str:
    """An own figure is no ratio, unless it was made as one."""
    line = result.line
    return f" {line.unit}" if line.own and not line.unit.startswith("×") else "×"


def _target(result: LineResult) -> str:
    line = result.line
    if line.target is None:
        return "–"
    compared = "≥" if line.better is Better.HIGHER else "≤"
    goal = f" (goal {line.goal:g}×)" if line.goal is not None else ""
    judged = {ACK: " on `ack`", KAFKA: " on Apache Kafka"}.get(line.judged, "")
    return f"{compared} {line.target:g}{_sign(result)}{goal}{judged}"


_WIDE = 150
_NARROW_COLUMNS = (0, 3, 4, 5, 7)
"""What a narrow terminal shows: ratios and verdicts, without the figures behind them."""


def print_table(console: Console, title: str, results: Sequence[LineResult]) -> None:
    columns = range(len(HEADINGS)) if console.width >= _WIDE else _NARROW_COLUMNS
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    for column in columns:
        table.add_column(HEADINGS[column], max_width=56 if column == 0 else None)
    for result in results:
        cells = row_cells(result)
        table.add_row(*(cells[column] for column in columns), style=_STYLES.get(result.verdict, ""))
    console.print(table)


def open_console() -> Console:
    """A pipe has no width: give it room for the whole table."""
    console = Console()
    return console if console.is_terminal else Console(width=_PIPE_WIDTH)


_FLUSH_POLICIES = (
    "`os` leaves flushing to the page cache, as Apache Kafka does by default. `ack` is Headrace's default "
    "on one node: acks=all and every consumer wait for the fsync."
)
_HOW = (
    "A figure is the median of its rounds; a ratio is the median of the per-round ratios to Apache Kafka, "
    "with the lowest and the highest round. A line is met when that median reaches the target. "
    "No round is left out."
)


def markdown(
    title: str, results: Sequence[LineResult], run: Mapping[str, Any], *, pictures: Mapping[str, str]
) -> str:
    """`pictures`: file names by what they show."""
    origin = f"`make bench SUITE={run['suite']}` on {run['time'][:10]}, commit {run['commit']}"
    made = f"Made by {origin}: do not edit."
    lines = [f"# {title}", "", made, "", _setting(run), "", _HOW, "", _FLUSH_POLICIES, ""]
    if run.get("note"):
        lines += [run["note"], ""]
    shown = [f"\n![{what}]({file})\n" for what, file in pictures.items()]
    return "\n".join((*lines, markdown_table(results))) + "".join(shown)


def markdown_table(results: Sequence[LineResult]) -> str:
    lines = ["| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS)]
    lines += ["| " + " | ".join(_markdown_cells(result)) + " |" for result in results]
    return "\n".join(lines) + "\n"


def curves_table(curves: Sequence[MeasuredCurve]) -> str:
    """The figures at each size, what one more costs at the largest, and how they grow."""
    headings = ["measure", "", "sizes", "smallest", "middle", "largest"]
    headings += ["each at the largest", "growth", "last step"]
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    for one in curves:
        sizes = " / ".join(f"{size:,}" for size in one.curve.sizes)
        values = [f"{number(value)} {one.curve.unit}" for value in one.values]
        cells = [one.curve.title, VARIANT_TITLES[one.variant], f"{sizes} {one.curve.of}", *values]
        cells += [_each(one), number(one.growth), number(one.last_step)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


_THOUSANDTH = {"s": "ms", "ms": "µs", "MB": "kB"}


def _each(one: MeasuredCurve) -> str:
    if one.curve.unit not in _THOUSANDTH:
        return "–"
    each, unit = one.values[-1] / one.curve.sizes[-1] * 1000, _THOUSANDTH[one.curve.unit]
    if unit in _THOUSANDTH and each < 1:
        each, unit = each * 1000, _THOUSANDTH[unit]
    return f"{number(each)} {unit}"


def _setting(run: Mapping[str, Any]) -> str:
    machine, versions = run["machine"], run["versions"]
    return (
        f"{machine['cores']} cores ({machine['processor']}), {machine['memory_gb']} GB, {machine['system']}. "
        f"Apache Kafka {versions['apache-kafka']} (KRaft, 1 GiB heap, default settings, warmed up), "
        f"Headrace {versions['headrace']} on Python {versions['python']}, "
        f"confluent-kafka {versions['confluent-kafka']}. {run['rounds']} rounds in {run['minutes']} minutes, "
        "all variants in turn, the order swapped each round."
    )


def _markdown_cells(result: LineResult) -> list[str]:
    cells = row_cells(result)
    if result.verdict == "missed":
        cells[5] = "**missed**"
    return cells
