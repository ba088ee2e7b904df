# SPDX-License-Identifier: Apache-2.0
"""Two source trees against each other: the order of turns, the ratio, and trees that cannot be compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from bench.cell import Cell
from bench.compare_commits import NEW, OLD, Comparison, TreeEngine, check_trees, compare
from bench.measures.request_costs import COSTS, RequestCost
from headrace.cluster.engines.engine import EngineError


def test_rounds_alternate_between_the_trees_and_swap_their_order() -> None:
    turns: list[tuple[str, float]] = []

    def measure(cell: Cell, seconds: float) -> float:
        turns.append((cast(str, cell), seconds))
        return 2.0 if cast(str, cell) == OLD else 4.0

    cells = cast(dict[str, Cell], {OLD: OLD, NEW: NEW})
    found = compare(RequestCost(title="x", measure=measure), cells, rounds=3, seconds=1.0)
    assert [side for side, seconds in turns if seconds == 1.0] == [OLD, NEW, NEW, OLD, OLD, NEW]
    assert found.ratio == 0.5


def test_the_ratio_is_the_median_of_the_rounds_ratios() -> None:
    comparison = Comparison(title="x", old=[10, 100, 10], new=[10, 50, 20])
    assert comparison.ratios == [1.0, 2.0, 0.5]
    assert comparison.ratio == 1.0


def test_a_node_runs_from_the_source_of_its_tree(tmp_path: Path) -> None:
    prepared = TreeEngine(tmp_path).prepare(tmp_path / "data", {})
    assert prepared.environment["PYTHONPATH"] == str(tmp_path / "src")


def tree(folder: Path, *, kernels: bool) -> Path:
    (folder / "src/headrace/cli").mkdir(parents=True)
    (folder / "src/headrace/cli/main.py").touch()
    (folder / "src/headrace/kernels").mkdir()
    if kernels:
        (folder / "src/headrace/kernels/_kernels.so").touch()
    return folder


def test_trees_with_and_without_compiled_kernels_are_not_compared(tmp_path: Path) -> None:
    with_kernels, without = tree(tmp_path / "a", kernels=True), tree(tmp_path / "b", kernels=False)
    check_trees({OLD: with_kernels, NEW: with_kernels})
    with pytest.raises(EngineError, match=r"compile .*_kernels\.so in .*b: the other tree has it"):
        check_trees({OLD: with_kernels, NEW: without})
    with pytest.raises(EngineError, match="no source tree"):
        check_trees({OLD: with_kernels, NEW: tmp_path})


def test_every_cost_has_a_title_of_its_own() -> None:
    titles: list[Any] = [cost.title for cost in COSTS]
    assert len(set(titles)) == len(titles)
