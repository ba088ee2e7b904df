# SPDX-License-Identifier: Apache-2.0
"""The measures of the security benchmark in small, on one node: they run, and their figures are figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from bench.cell import Cell
from bench.measures import security, security_own
from bench.model import OS, Figures
from bench.nodes import Nodes, Variant
from bench.workers import WorkerPool
from headrace.cluster.engines.headrace import HeadraceEngine

UNUSED: Any = None


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    variant = Variant(name=OS, engine=HeadraceEngine(), settings={"headrace.flush.default": "os"})
    nodes = Nodes({OS: variant}, tmp_path_factory.mktemp("bench"))
    nodes.use(security.PROFILE)
    yield nodes
    nodes.stop()


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    pool = WorkerPool(1)
    yield pool
    pool.close()


@pytest.mark.parametrize(
    "measure",
    [
        security.tls_fetch,
        security.tls_fetch_raw,
        security.tls_produce,
        security.tls_produce_raw,
        security.synchronous_login_produce,
        security.handshakes,
        security.logins,
        security_own.idle_plain,
        security_own.idle_tls,
        security_own.under_attack,
    ],
    ids=lambda measure: str(measure.__name__),
)
def test_a_measure_of_security_runs(nodes: Nodes, pool: WorkerPool, measure: Any) -> None:
    cell = Cell(variant=OS, nodes=nodes, tools=UNUSED, pool=pool, scale=0.02, suite_scale=0.02)
    figures = cast(Figures, measure(cell))
    assert figures
    assert all(figure >= 0 for figure in figures.values())


def test_the_measure_of_acls_writes_with_an_acl_and_without_an_authorizer(nodes: Nodes) -> None:
    cell = Cell(variant=OS, nodes=nodes, tools=UNUSED, pool=UNUSED, scale=0.02, suite_scale=0.02)
    figures = security_own.thousand_acls(cell)
    assert figures["single_open_us"] > 0
    assert figures["single_authorized_us"] > 0
