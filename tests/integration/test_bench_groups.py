# SPDX-License-Identifier: Apache-2.0
"""The raw measures of the group benchmark in small, on one node: they run, and their figures are figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from bench.cell import Cell
from bench.measures import groups
from bench.model import OS, Figures
from bench.nodes import Nodes, Variant
from headrace.cluster.engines.headrace import HeadraceEngine

UNUSED: Any = None


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    variant = Variant(name=OS, engine=HeadraceEngine(), settings={"headrace.flush.default": "os"})
    nodes = Nodes({OS: variant}, tmp_path_factory.mktemp("bench"))
    yield nodes
    nodes.stop()


@pytest.mark.parametrize(
    "measure",
    [
        groups.classic_rebalance,
        groups.kip848_target,
        groups.offset_commits,
        groups.classic_heartbeats,
        groups.kip848_heartbeats,
        groups.reload,
    ],
    ids=lambda measure: str(measure.__name__),
)
def test_a_measure_of_groups_runs(nodes: Nodes, measure: Any) -> None:
    nodes.use(groups.LONG_SESSION_PROFILE)
    cell = Cell(variant=OS, nodes=nodes, tools=UNUSED, pool=UNUSED, scale=0.02, suite_scale=0.02)
    figures = cast(Figures, measure(cell))
    assert figures
    assert all(figure >= 0 for figure in figures.values())
