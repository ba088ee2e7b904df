"""The pictures in docs/benchmarks: ratios to Apache Kafka, and how latency and memory grow.

Reads judged lines and recorded figures only.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from textwrap import wrap

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.judge import LineResult, Round
from bench.measures.fresh import GROWTH_CONNECTIONS, GROWTH_PARTITIONS, growth_figure
from bench.model import ACK, KAFKA, OS, Better

_COLORS = {KAFKA: "#7a7a7a", OS: "#1f6fb2", ACK: "#e08a1e"}
_LABELS = {KAFKA: "Apache Kafka", OS: "Headrace, flush os", ACK: "Headrace, flush ack"}


def draw_ratios(title: str, results: Sequence[LineResult], path: Path) -> None:
    """One dot per line and flush policy with its lowest and highest round; green is the promised side."""
    panels = _panels(results)
    if not panels:
        return
    heights = [len(rows) + 1.5 for _, rows in panels]
    figure = Figure(figsize=(11, 0.36 * sum(heights) + 1.2), layout="constrained")
    axes = figure.subplots(len(panels), 1, height_ratios=heights, squeeze=False)[:, 0]
    for axis, (label, rows) in zip(axes, panels, strict=True):
        _draw_panel(axis, label, rows)
    axes[0].legend(loc="upper left", bbox_to_anchor=(0, 1.0), ncols=3, frameon=False, fontsize=8)
    figure.suptitle(title.replace("`", ""), fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def _panels(results: Sequence[LineResult]) -> list[tuple[str, list[LineResult]]]:
    """(what the axis means, its lines); panels without lines are left out."""
    to_kafka = [result for result in results if result.ratios and not result.line.own]
    higher = [result for result in to_kafka if result.line.better is Better.HIGHER]
    lower = [result for result in to_kafka if result.line.better is Better.LOWER]
    own = [r for r in results if r.ratios and r.line.own and r.line.unit.startswith("×")]
    panels = [
        ("ratio to Apache Kafka = 1 (higher is better; green: promised)", higher),
        ("ratio to Apache Kafka = 1 (lower is better; green: promised)", lower),
        *((f"{unit} (green: promised)", rows) for unit, rows in _by_unit(own).items()),
    ]
    return [(label, rows) for label, rows in panels if rows]


def _by_unit(results: Sequence[LineResult]) -> dict[str, list[LineResult]]:
    """What a line is compared with stands in its unit: "× raw fetch"."""
    panels: dict[str, list[LineResult]] = {}
    for result in results:
        panels.setdefault(result.line.unit, []).append(result)
    return panels


def _draw_panel(axis: Axes, label: str, rows: Sequence[LineResult]) -> None:
    axis.axvline(1.0, color=_COLORS[KAFKA], linewidth=1)
    for position, result in enumerate(rows):
        _draw_target(axis, position, result)
        judged_only = ((KAFKA, 0.0),)
        for variant, shift in judged_only if result.line.judged == KAFKA else ((OS, -0.14), (ACK, 0.14)):
            ratio = result.ratios.get(variant)
            if ratio is None:
                continue
            error = [[ratio.median - ratio.low], [ratio.high - ratio.median]]
            color = _COLORS[variant]
            name = _LABELS[variant] if position == 0 else None
            axis.errorbar(
                ratio.median, position + shift, xerr=error, fmt="o", markersize=4, color=color, label=name
            )
    axis.set_xscale("log")
    axis.set_yticks(range(len(rows)), [_wrapped(result.line.title) for result in rows], fontsize=7)
    axis.set_ylim(len(rows) - 0.4, -0.9)
    axis.set_xlabel(label, fontsize=8)
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}×")
    axis.grid(axis="x", alpha=0.3)


def _draw_target(axis: Axes, position: int, result: LineResult) -> None:
    target = result.line.target
    if target is None:
        return
    edge = target * 1.6 if result.line.better is Better.HIGHER else target / 1.6
    axis.plot([target, edge], [position, position], color="#3a9d4b", linewidth=6, alpha=0.25)
    axis.plot([target], [position], marker="|", color="#3a9d4b", markersize=11)


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
