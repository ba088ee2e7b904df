# SPDX-License-Identifier: Apache-2.0
"""Members of a group come, go, die, sleep while the node is killed: nothing is lost, skipped or owned twice.

`make soak PART=storm` for five minutes with 50 members; here the same with fewer for a few seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.harness.groups.storm import NODE_SETTINGS, StormPlan, StormReport, run_storm
from tests.harness.live.node import NodeProcess
from tests.harness.soak import first_seed, write_report

PROTOCOLS = ("classic", "consumer")
StartNode = Callable[..., NodeProcess]


def judge(report: StormReport) -> None:
    """A storm in which little happened proves little."""
    assert not report.anomalies, "\n".join(map(str, report.anomalies[:10]))
    assert not report.events["not calm in time"]
    outcomes = report.figures()["commits"]
    assert outcomes.get("ok", 0) > 10
    assert report.events["node killed"] >= 1
    assert len(report.history.starts) > report.plan.partitions


@pytest.mark.row("D12")
@pytest.mark.row("D13")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_short_storm(start_node: StartNode, protocol: str) -> None:
    plan = StormPlan(
        protocol=protocol,
        members=8,
        partitions=12,
        seconds=7,
        change_s=(0.2, 1.0),
        node_uptime_s=(2, 4),
        seed=first_seed(),
        calm_s=20,
    )
    judge(run_storm(start_node(NODE_SETTINGS), plan))


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_storm_of_fifty_members_for_five_minutes(start_node: StartNode, protocol: str) -> None:
    started = time.monotonic()
    plan = StormPlan(
        protocol=protocol,
        members=50,
        partitions=100,
        seconds=300,
        change_s=(0.1, 1.5),
        node_uptime_s=(10, 40),
        seed=first_seed(),
    )
    report = run_storm(start_node(NODE_SETTINGS), plan)
    write_report(f"storm-{protocol}", started, report.figures())
    judge(report)
