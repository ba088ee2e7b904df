# SPDX-License-Identifier: Apache-2.0
"""T12 with confluent-kafka: a topic is copied in transactions while copiers and nodes die; output = input.

Short forms here, at length: `make soak PART=transactions`. Other clients: tests/compat/test_copies.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.cluster.engines.zookeeper import ZooKeeperEnsemble
from tests.harness import soak
from tests.harness.copies.copier import python_copier
from tests.harness.copies.copy_loop import (
    CopyPlan,
    CopyReport,
    Fault,
    copy_under_faults,
    faults,
    kill_a_coordinator,
    kill_a_coordinator_and_all_copiers,
    kill_a_copier,
    restart_a_coordinator,
)
from tests.harness.copies.settings import COPIES_ON_HEADRACE
from tests.harness.live.cluster import LiveCluster

SHORT = (kill_a_copier, kill_a_coordinator, restart_a_coordinator)


def copied(cluster: LiveCluster, folder: Path, *strikes: Fault) -> CopyReport:
    plan = CopyPlan(seed=soak.first_seed(), faults=strikes)
    with cluster:
        return copy_under_faults(cluster, python_copier("confluent"), plan, folder)


def test_t12_a_copy_on_one_node_is_exact(tmp_path: Path) -> None:
    cluster = LiveCluster(tmp_path / "cluster", nodes=1, settings=COPIES_ON_HEADRACE)
    copied(cluster, tmp_path, *SHORT).check()


def test_t12_a_copy_on_three_nodes_is_exact(tmp_path: Path) -> None:
    cluster = LiveCluster(tmp_path / "cluster", settings=COPIES_ON_HEADRACE)
    copied(cluster, tmp_path, *SHORT).check()


@pytest.mark.row("D19")
def test_t12_the_same_with_zookeeper(
    tmp_path: Path, zookeeper_servers: Callable[..., ZooKeeperEnsemble]
) -> None:
    with zookeeper_servers() as ensemble:
        place = f"zk://{ensemble.hosts}/headrace"
        cluster = LiveCluster(tmp_path / "cluster", coordination=place, settings=COPIES_ON_HEADRACE)
        copied(cluster, tmp_path, kill_a_copier, kill_a_coordinator_and_all_copiers).check()


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("client", ["confluent", "aiokafka", "transform"])
@pytest.mark.parametrize("store", ["sqlite", "zookeeper"])
def test_soak_t12_transactions_forty_faults(
    tmp_path: Path, zookeeper_servers: Callable[..., ZooKeeperEnsemble], client: str, store: str
) -> None:
    started = time.monotonic()
    plan = CopyPlan(seed=soak.first_seed(), faults=faults(40), copiers=3)
    if store == "sqlite":
        report = _soaked(tmp_path, client, plan, None)
    else:
        with zookeeper_servers() as ensemble:
            report = _soaked(tmp_path, client, plan, f"zk://{ensemble.hosts}/headrace")
    soak.write_report(f"T12-{client}-{store}", started, report.figures())
    report.check()
    assert report.uncommitted > 0, report.figures()


def _soaked(folder: Path, client: str, plan: CopyPlan, place: str | None) -> CopyReport:
    with LiveCluster(folder / "cluster", coordination=place, settings=COPIES_ON_HEADRACE) as cluster:
        return copy_under_faults(cluster, python_copier(client), plan, folder)
