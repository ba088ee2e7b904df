# SPDX-License-Identifier: Apache-2.0
"""The pictures in docs/benchmarks: ratios to Apache Kafka, and how latency and memory grow.

Reads judged lines and recorded figures only.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from textwrap import wrap

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter

from bench.curves import MeasuredCurve
from bench.judge import LineResult, Round
from bench.measures.fresh import GROWTH_CONNECTIONS, GROWTH_PARTITIONS, growth_figure
from bench.model import ACK, KAFKA, OS, Better

_COLORS = {KAFKA: "#7a7a7a", OS: "#1f6fb2", ACK: "#e08a1e"}
_TARGET = "#3a9d4b"
_LABELS = {KAFKA: "Apache Kafka", OS: "Headrace, flush os", ACK: "Headrace, flush ack"}


def draw_ratios(title: str, results: Sequence[LineResult], path: Path) -> bool:
    """One dot per line and flush policy with its lowest and highest round; green: the target is met.

    False: there is no ratio to draw.
    """
    panels = _panels(results)
    if not panels:
        return False
    heights = [len(rows) + 1.5 for _, rows in panels]
    figure = Figure(figsize=(11, 0.36 * sum(heights) + 1.6), layout="constrained")
    axes = figure.subplots(len(panels), 1, height_ratios=heights, squeeze=False)[:, 0]
    for axis, (label, rows) in zip(axes, panels, strict=True):
        _draw_panel(axis, label, rows)
    figure.legend(handles=_legend(results), loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    figure.suptitle(title.replace("`", ""), fontsize=11)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    return True


def _panels(results: Sequence[LineResult]) -> list[tuple[str, list[LineResult]]]:
    """(what the axis means, its lines); panels without lines are left out."""
    to_kafka = [result for result in results if result.ratios and not result.line.own]
    higher = [result for result in to_kafka if result.line.better is Better.HIGHER]
    lower = [result for result in to_kafka if result.line.better is Better.LOWER]
    own = [r for r in results if r.ratios and r.line.own and r.line.unit.startswith("×")]
    panels = [
        ("Headrace ÷ Apache Kafka: higher is better →", higher),
        ("Headrace ÷ Apache Kafka: ← lower is better", lower),
        *_own_panels(own),
    ]
    return [(label, rows) for label, rows in panels if rows]


def _own_panels(results: Sequence[LineResult]) -> list[tuple[str, list[LineResult]]]:
    """By what a line is compared with, which stands in its unit ("× raw fetch"), and by direction."""
    panels: dict[str, list[LineResult]] = {}
    for result in results:
        better = "higher is better →" if result.line.better is Better.HIGHER else "← lower is better"
        compared_with = result.line.unit.removeprefix("×").strip()
        panels.setdefault(f"ratio to {compared_with}: {better}", []).append(result)
    return list(panels.items())


def _legend(results: Sequence[LineResult]) -> list[Artist]:
    """An entry for every kind of mark that is drawn."""
    drawn = [variant for variant in (KAFKA, OS, ACK) if any(variant in _variants(each) for each in results)]
    marks: list[Artist] = [
        Line2D([], [], color=_COLORS[variant], marker="o", markersize=4, label=_LABELS[variant])
        for variant in drawn
    ]
    marks.append(Line2D([], [], color="#444444", label="bar: lowest to highest round; dot: median"))
    marks.append(Line2D([], [], color=_TARGET, linewidth=6, alpha=0.25, label="target reached"))
    marks.append(Line2D([], [], color=_TARGET, marker="|", markersize=11, linestyle="", label="target"))
    marks.append(Line2D([], [], color=_COLORS[KAFKA], linewidth=1, label="1×: equal"))
    return marks


def _variants(result: LineResult) -> Sequence[str]:
    """The variants that the panel of the line shows, from top to bottom."""
    shown = (KAFKA,) if result.line.judged == KAFKA else (OS, ACK)
    return [variant for variant in shown if variant in result.ratios]


def _draw_panel(axis: Axes, label: str, rows: Sequence[LineResult]) -> None:
    axis.axvline(1.0, color=_COLORS[KAFKA], linewidth=1)
    for position, result in enumerate(rows):
        _draw_target(axis, position, result)
        variants = _variants(result)
        for place, variant in enumerate(variants):
            ratio = result.ratios[variant]
            error = [[ratio.median - ratio.low], [ratio.high - ratio.median]]
            shift = 0.28 * (place - (len(variants) - 1) / 2)
            axis.errorbar(
                ratio.median, position + shift, xerr=error, fmt="o", markersize=4, color=_COLORS[variant]
            )
    axis.set_xscale("log")
    low, high = axis.get_xlim()
    axis.set_xlim(min(low, 0.45), max(high, 2.2))  # several ticks, however close the ratios are
    axis.set_yticks(range(len(rows)), [_wrapped(result.line.title) for result in rows], fontsize=8)
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.set_title(label, fontsize=9, loc="left")
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}×")
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.tick_params(axis="x", labelsize=8)
    axis.grid(axis="x", alpha=0.3)


def _draw_target(axis: Axes, position: int, result: LineResult) -> None:
    target = result.line.target
    if target is None:
        return
    edge = target * 1.6 if result.line.better is Better.HIGHER else target / 1.6
    axis.plot([target, edge], [position, position], color=_TARGET, linewidth=6, alpha=0.25)
    axis.plot([target], [position], marker="|", color=_TARGET, markersize=11)


def _wrapped(title: str) -> str:
    return "\n".join(wrap(title.replace("`", ""), 62))


def draw_growth(rounds: Sequence[Round], path: Path) -> None:
    """Latency and memory with more partitions, and with more connections."""
    figure = Figure(figsize=(10, 6.5), layout="constrained")
    axes = figure.subplots(2, 2)
    few, many = GROWTH_CONNECTIONS
    by_partitions = [(count, few) for count in GROWTH_PARTITIONS]
    by_connections = [(GROWTH_PARTITIONS[-1], few), (GROWTH_PARTITIONS[-1], many)]
    kinds = (("p50_us", "synchronous produce p50, µs"), ("rss_mb", "resident memory, MB"))
    for row, (kind, label) in enumerate(kinds):
        left, right = axes[row]
        _draw_growth(left, rounds, kind, by_partitions, x=0)
        _draw_growth(right, rounds, kind, by_connections, x=1)
        left.set_ylabel(label)
        left.set_xlabel(f"partitions ({few} connections)")
        right.set_xlabel(f"connections ({GROWTH_PARTITIONS[-1]:,} partitions)")
    axes[0][0].legend(frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def _draw_growth(
    axis: Axes, rounds: Sequence[Round], kind: str, points: Sequence[tuple[int, int]], *, x: int
) -> None:
    for variant in (KAFKA, OS, ACK):
        places: list[int] = []
        values: list[float] = []
        for point in points:
            name = growth_figure(kind, *point)
            measured = [done[variant][name] for done in rounds if name in done.get(variant, {})]
            if measured:
                places.append(point[x])
                values.append(median(measured))
        if values:
            axis.plot(places, values, marker="o", color=_COLORS[variant], label=_LABELS[variant])
    axis.set_xscale("log")
    axis.set_ylim(bottom=0)
    axis.set_xticks([point[x] for point in points], [f"{point[x]:,}" for point in points])
    axis.minorticks_off()
    axis.grid(alpha=0.3)


def draw_curves(title: str, curves: Sequence[MeasuredCurve], path: Path) -> None:
    """A panel for each measure and unit, with logarithmic axes: what is steeper than the dots is worse."""
    panels: dict[tuple[str, str], list[MeasuredCurve]] = {}
    for one in curves:
        panels.setdefault((one.curve.of, one.curve.unit), []).append(one)
    columns = 3
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(5 * columns, 5 * rows), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axis, drawn in zip(axes, panels.values(), strict=False):
        _draw_curves(axis, drawn)
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    figure.suptitle(title.replace("`", ""), fontsize=11)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)


def _draw_curves(axis: Axes, curves: Sequence[MeasuredCurve]) -> None:
    first = curves[0].curve
    for one in curves:
        label = one.curve.title.removesuffix(f", {first.of}").replace("`", "")
        if any(other.variant != one.variant for other in curves):
            label = f"{label} ({_LABELS[one.variant]})"
        style = "o--" if one.variant == KAFKA else "o-"
        axis.plot(first.sizes, one.values, style, markersize=4, label="\n".join(wrap(label, 34)))
    ends, begin = (first.sizes[0], first.sizes[-1]), curves[0].values[0]
    if first.most is not None and begin > 0:
        axis.plot(ends, [begin, begin * ends[1] / ends[0]], ":", color=_COLORS[KAFKA], label="linear")
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xticks(first.sizes, [f"{size:,}" for size in first.sizes])
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    for each in (axis.xaxis, axis.yaxis):
        each.set_minor_formatter(NullFormatter())
    axis.tick_params(labelsize=8)
    axis.set_title(f"{first.of}: {first.unit}", fontsize=9, loc="left")
    axis.grid(alpha=0.3)
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.06), ncols=2, frameon=False, fontsize=7)
