# SPDX-License-Identifier: Apache-2.0
"""T9: the event loop of a leader stands still while its other threads go on: `make soak PART=T9`.

Whatever kept its session alive by itself would have it lead for ever (R8). Others have to lead, and nothing
acknowledged is lost when it wakes up. Without a C compiler it is skipped by name.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.harness import soak
from tests.harness.live.cluster import LiveCluster
from tests.harness.live.kill_loop import Fault, strike_under_load
from tests.harness.waiting import wait_until
from tests.integration.preloads import Preload

SESSION_S = 2.0
BUSY_S = 20.0
"""The table's."""
SETTINGS = {
    "broker.session.timeout.ms": str(int(SESSION_S * 1000)),
    "group.initial.rebalance.delay.ms": "0",
}


def wedged(wedge: Preload, replaced_after_s: list[float]) -> Fault:
    def strike(cluster: LiveCluster, node_id: int) -> None:
        other = next(each for each in cluster.node_ids if each != node_id)
        started = time.monotonic()
        wedge.set(node_id, 1)
        try:
            wait_until(
                lambda: _is_replaced(cluster, node_id, seen_by=other),
                f"another leader than node {node_id}, which stands still (R8)",
                timeout_s=BUSY_S,
            )
            replaced_after_s.append(time.monotonic() - started)
            time.sleep(max(started + BUSY_S - time.monotonic(), 0))  # how long the loop is busy
        finally:
            wedge.set(node_id, 0)

    return strike


def _is_replaced(cluster: LiveCluster, node_id: int, *, seen_by: int) -> bool:
    metadata = cluster.metadata(of=seen_by)
    if metadata is None or metadata.controller in (None, node_id):
        return False
    return all(each.leader not in (node_id, -1) for each in metadata.partitions)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_soak_t9_a_node_whose_event_loop_is_blocked_is_replaced(tmp_path: Path) -> None:
    wedge, replaced_after_s = Preload("wedged_loop.c", "WEDGED_LOOP", tmp_path), list[float]()
    started = time.monotonic()
    with LiveCluster(tmp_path / "cluster", settings=SETTINGS, dress=wedge.dress) as cluster:
        report = strike_under_load(
            cluster,
            faults=4,
            seed=soak.first_seed(),
            fault=wedged(wedge, replaced_after_s),
            roles=("leader", "controller"),
        )
    slowest_s = round(max(replaced_after_s), 2)
    soak.write_report("T9-wedged", started, {**report.figures(), "slowest_takeover_s": slowest_s})
    report.check()
    assert slowest_s <= SESSION_S + 3, f"{slowest_s} s"
