# SPDX-License-Identifier: Apache-2.0
"""T9 and T10 for the store itself: ZooKeeper's servers die, hang, and are all lost for a while, under load.

Three servers and three nodes. Short forms here; at length: `make soak PART=zookeeper`. They need ZooKeeper's
jars; where these cannot be had they are skipped by name. Of the store alone: test_zookeeper_store.py.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.cluster.engines.zookeeper import ZooKeeperEnsemble, ZooKeeperServer
from tests.harness import soak
from tests.harness.live.cluster import LiveCluster
from tests.harness.live.kill_loop import Fault, in_turn, strike_under_load

SESSION_S = 2.0
QUICK = {
    "broker.session.timeout.ms": str(int(SESSION_S * 1000)),
    "group.initial.rebalance.delay.ms": "0",
}

Choose = Callable[[ZooKeeperEnsemble], list[ZooKeeperServer]]
OnServer = Callable[[ZooKeeperServer], None]


@pytest.fixture
def ensemble(zookeeper_servers: Callable[..., ZooKeeperEnsemble]) -> Iterator[ZooKeeperEnsemble]:
    with zookeeper_servers(servers=3) as ensemble:
        yield ensemble


@pytest.fixture
def cluster(tmp_path: Path, ensemble: ZooKeeperEnsemble) -> Iterator[LiveCluster]:
    place = f"zk://{ensemble.hosts}/headrace"
    with LiveCluster(tmp_path / "cluster", coordination=place, settings=QUICK) as cluster:
        yield cluster


def the_leader(ensemble: ZooKeeperEnsemble) -> list[ZooKeeperServer]:
    return [ensemble.leader]


def a_follower(ensemble: ZooKeeperEnsemble) -> list[ZooKeeperServer]:
    leader = ensemble.leader
    return [random.choice([server for server in ensemble.servers if server is not leader])]


def all_of_them(ensemble: ZooKeeperEnsemble) -> list[ZooKeeperServer]:
    return list(ensemble.servers)


def _struck_for(
    ensemble: ZooKeeperEnsemble, choose: Choose, seconds: float, strike: OnServer, mend: OnServer
) -> Fault:
    def fault(cluster: LiveCluster, node_id: int) -> None:
        chosen = choose(ensemble)
        for server in chosen:
            strike(server)
        time.sleep(seconds)  # how long the servers are struck
        for server in chosen:
            mend(server)
        for server in ensemble.servers:
            server.wait_ready()

    return fault


def killed_for(ensemble: ZooKeeperEnsemble, choose: Choose, seconds: float) -> Fault:
    return _struck_for(ensemble, choose, seconds, ZooKeeperServer.kill, ZooKeeperServer.launch)


def paused_for(ensemble: ZooKeeperEnsemble, choose: Choose, seconds: float) -> Fault:
    return _struck_for(ensemble, choose, seconds, ZooKeeperServer.pause, ZooKeeperServer.resume)


@pytest.mark.row("D19")
def test_t9_zookeeper_loses_its_leader_and_then_all_servers(
    cluster: LiveCluster, ensemble: ZooKeeperEnsemble
) -> None:
    fault = in_turn(killed_for(ensemble, the_leader, 0.2), killed_for(ensemble, all_of_them, 1.5 * SESSION_S))
    strike_under_load(cluster, faults=2, seed=soak.first_seed(), fault=fault, order="nodes").check()


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("choose", [the_leader, a_follower, all_of_them], ids=lambda choose: choose.__name__)
def test_soak_t9_servers_of_zookeeper_hang_and_die(
    cluster: LiveCluster, ensemble: ZooKeeperEnsemble, choose: Choose
) -> None:
    """Half a session, one and a half, five: hung, then killed."""
    lengths = [factor * SESSION_S for factor in (0.5, 1.5, 5.0)]
    faults = [act(ensemble, choose, length) for length in lengths for act in (paused_for, killed_for)]
    started = time.monotonic()
    report = strike_under_load(
        cluster,
        faults=4 * len(faults),
        seed=soak.first_seed() + 1,
        fault=in_turn(*faults),
        order="nodes",
        pause_s=0.02,
    )
    soak.write_report(f"T9-zookeeper-{choose.__name__}", started, report.figures())
    report.check()
