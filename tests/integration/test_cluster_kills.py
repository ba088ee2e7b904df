# SPDX-License-Identifier: Apache-2.0
"""T4, T5, T9 on three nodes: nodes die or hang under load, and nothing that was acknowledged is lost.

Short forms here; the figures of the table are `make soak PART=T4` (or T5, T9, rolling), with a report of each
in build/soak/. On ZooKeeper they need its jars; where these cannot be had they are skipped by name.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.cluster.engines.zookeeper import ZooKeeperEnsemble
from tests.harness import soak
from tests.harness.live.cluster import LiveCluster
from tests.harness.live.kill_loop import (
    ROLES,
    kill_all_and_start,
    move_away,
    pause_for,
    stop_and_start,
    strike_under_load,
)

SESSION_MS = 2_000
QUICK = {"broker.session.timeout.ms": str(SESSION_MS), "group.initial.rebalance.delay.ms": "0"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LiveCluster]:
    with LiveCluster(tmp_path / "cluster", settings=QUICK) as cluster:
        yield cluster


@pytest.fixture
def ensemble(zookeeper_servers: Callable[..., ZooKeeperEnsemble]) -> Iterator[ZooKeeperEnsemble]:
    with zookeeper_servers() as ensemble:
        yield ensemble


@pytest.fixture
def on_zookeeper(tmp_path: Path, ensemble: ZooKeeperEnsemble) -> Iterator[LiveCluster]:
    place = f"zk://{ensemble.hosts}/headrace"
    with LiveCluster(tmp_path / "cluster", coordination=place, settings=QUICK) as cluster:
        yield cluster


def test_t4_a_kill_in_every_role_loses_nothing_and_doubles_nothing(cluster: LiveCluster) -> None:
    strike_under_load(cluster, faults=len(ROLES), seed=soak.first_seed()).check()


@pytest.mark.row("D19")
def test_t4_the_same_with_zookeeper(on_zookeeper: LiveCluster) -> None:
    roles = ("leader", "controller")
    strike_under_load(on_zookeeper, faults=2, seed=soak.first_seed(), roles=roles).check()


def test_t5_every_node_killed_at_once_loses_nothing(cluster: LiveCluster) -> None:
    fault = kill_all_and_start
    strike_under_load(cluster, faults=1, seed=soak.first_seed(), fault=fault, roles=("leader",)).check()


def test_t9_a_leader_that_hangs_is_replaced_and_acknowledges_nothing_afterwards(cluster: LiveCluster) -> None:
    pause = pause_for(2.5 * SESSION_MS / 1000)
    strike_under_load(cluster, faults=1, seed=soak.first_seed(), fault=pause, roles=("leader",)).check()


def test_a_rolling_restart_fails_no_request(cluster: LiveCluster) -> None:
    strike_under_load(cluster, faults=3, seed=soak.first_seed(), fault=stop_and_start, order="nodes").check()


def test_partitions_that_move_fail_no_request(tmp_path: Path) -> None:
    with LiveCluster(tmp_path / "cluster", nodes=4, settings=QUICK) as cluster:
        strike_under_load(cluster, faults=3, seed=soak.first_seed(), fault=move_away, order="nodes").check()


def _soak(cluster: LiveCluster, part: str, **options: object) -> None:
    started = time.monotonic()
    options = {"pause_s": 0.02, "seed": soak.first_seed() + 1, **options}
    report = strike_under_load(cluster, **options)  # type: ignore[arg-type]
    soak.write_report(part, started, report.figures())
    report.check()


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_soak_t4_two_hundred_kills(cluster: LiveCluster) -> None:
    _soak(cluster, "T4-sqlite", faults=200)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_soak_t4_two_hundred_kills_with_zookeeper(on_zookeeper: LiveCluster) -> None:
    _soak(on_zookeeper, "T4-zookeeper", faults=200)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_soak_t5_the_whole_cluster_killed_twenty_times(cluster: LiveCluster) -> None:
    _soak(cluster, "T5", faults=20, fault=kill_all_and_start, roles=("leader",))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("factor", [0.5, 1.5, 5.0])
def test_soak_t9_twenty_pauses(cluster: LiveCluster, factor: float) -> None:
    fault = pause_for(factor * SESSION_MS / 1000)
    _soak(cluster, f"T9-{factor}", faults=20, fault=fault, roles=("leader", "controller"))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_soak_rolling_restarts(cluster: LiveCluster) -> None:
    _soak(cluster, "rolling", faults=30, fault=stop_and_start, order="nodes")
