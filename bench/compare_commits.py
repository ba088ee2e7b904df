# SPDX-License-Identifier: Apache-2.0
"""Compares the broker CPU per request of two source trees: `python -m bench.compare_commits OLD NEW`.

A node of either tree runs at the same time; the same client code drives one after the other, in turns that
swap their order every round. Read next: measures/request_costs.py.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from bench.__main__ import raise_descriptor_limit
from bench.cell import Cell
from bench.measures.groups import LONG_SESSION_PROFILE
from bench.measures.request_costs import COSTS, RequestCost
from bench.nodes import Nodes, Variant
from bench.workers import WorkerPool
from headrace.cluster.engines.engine import EngineError, PreparedNode, RunningNode
from headrace.cluster.engines.headrace import HeadraceEngine
from headrace.cluster.engines.kafka import KafkaEngine

OLD, NEW = "old", "new"
LEAST_RATIO = 0.95
_TABLE_WIDTH = 120
_WARM_UP_SECONDS = 0.3
_KERNELS = Path("src/headrace/kernels/_kernels.so")


class TreeEngine:
    """Headrace as it stands in a source tree, with the libraries of this environment."""

    def __init__(self, tree: Path) -> None:
        self._tree = tree.resolve()
        self._installed = HeadraceEngine()

    @property
    def name(self) -> str:
        return f"headrace of {self._tree}"

    @property
    def version(self) -> str:
        return self._installed.version

    def prepare(self, data_dir: Path, settings: Mapping[str, str]) -> PreparedNode:
        prepared = self._installed.prepare(data_dir, settings)
        environment = {**prepared.environment, "PYTHONPATH": str(self._tree / "src")}
        return replace(prepared, engine=self.name, environment=environment)

    def start(self, data_dir: Path, settings: Mapping[str, str]) -> RunningNode:
        return self.prepare(data_dir, settings).launch()


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Microseconds of broker CPU per request, round by round."""

    title: str
    old: Sequence[float]
    new: Sequence[float]

    @property
    def ratios(self) -> list[float]:
        return [old / new for old, new in zip(self.old, self.new, strict=True)]

    @property
    def ratio(self) -> float:
        """Old by new: more than one means that the new tree is cheaper."""
        return median(self.ratios)


def compare(cost: RequestCost, cells: Mapping[str, Cell], *, rounds: int, seconds: float) -> Comparison:
    found: dict[str, list[float]] = {OLD: [], NEW: []}
    for cell in cells.values():
        cost.measure(cell, _WARM_UP_SECONDS)
    for turn in range(rounds):
        for side in (OLD, NEW) if turn % 2 == 0 else (NEW, OLD):
            os.sync()
            found[side].append(cost.measure(cells[side], seconds))
    return Comparison(title=cost.title, old=found[OLD], new=found[NEW])


@contextmanager
def running(trees: Mapping[str, Path]) -> Iterator[dict[str, Cell]]:
    """A node and a cell for each tree."""
    work, pool = Path(tempfile.mkdtemp(prefix="headrace-compare-")), WorkerPool()
    variants = {name: Variant(name=name, engine=TreeEngine(tree)) for name, tree in trees.items()}
    nodes = Nodes(variants, work)
    nodes.use(LONG_SESSION_PROFILE)
    try:
        for name in variants:
            nodes.start_if_needed(name)
        yield {name: Cell(variant=name, nodes=nodes, tools=KafkaEngine(), pool=pool) for name in variants}
    finally:
        nodes.stop()
        pool.close()
        shutil.rmtree(work, ignore_errors=True)


def check_trees(trees: Mapping[str, Path]) -> None:
    """Both with the kernels in C or both without: otherwise the comparison is not one of commits."""
    for tree in trees.values():
        if not (tree / "src/headrace/cli/main.py").is_file():
            raise EngineError(f"{tree} is no source tree of Headrace: it has no src/headrace/cli/main.py")
    without = [str(tree) for tree in trees.values() if not (tree / _KERNELS).exists()]
    if len(without) == 1:
        raise EngineError(f"compile {_KERNELS} in {without[0]}: the other tree has it")


def print_table(console: Console, comparisons: Sequence[Comparison]) -> None:
    table = Table(title="broker CPU per request, medians of rounds")
    for column in ("request", "old µs", "new µs", "old ÷ new", "lowest … highest", ""):
        table.add_column(column, justify="left" if column == "request" else "right")
    for one in comparisons:
        table.add_row(
            one.title,
            f"{median(one.old):.1f}",
            f"{median(one.new):.1f}",
            f"{one.ratio:.2f}",
            f"{min(one.ratios):.2f} … {max(one.ratios):.2f}",
            "" if one.ratio >= LEAST_RATIO else f"< {LEAST_RATIO}",
        )
    console.print(table)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.compare_commits", description=__doc__)
    parser.add_argument("old", type=Path, help="source tree of the old commit")
    parser.add_argument("new", type=Path, help="source tree of the new commit")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.8, help="of one turn")
    parser.add_argument("--only", default="", help="requests whose title contains this")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 when a request became dearer than allowed."""
    options = parse_arguments(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the nodes are stopped, too
    raise_descriptor_limit()
    console, comparisons = Console(width=_TABLE_WIDTH), []
    trees = {OLD: options.old, NEW: options.new}
    try:
        check_trees(trees)
        with running(trees) as cells:
            for cost in COSTS:
                if options.only.lower() in cost.title.lower():
                    found = compare(cost, cells, rounds=options.rounds, seconds=options.seconds)
                    console.print(f"{found.ratio:5.2f}  {found.title}", highlight=False)
                    comparisons.append(found)
    except EngineError as error:
        console.print(f"bench: {error}", markup=False)
        return 2
    print_table(console, comparisons)
    return 0 if all(one.ratio >= LEAST_RATIO for one in comparisons) else 1


if __name__ == "__main__":
    sys.exit(main())
