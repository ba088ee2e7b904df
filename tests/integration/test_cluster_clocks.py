# SPDX-License-Identifier: Apache-2.0
"""T14: a node's wall clock jumps by a day or ten years under load: no session ends by it, nothing is deleted.

`make soak PART=T14`. A library of a few lines (jumping_clock.c) is preloaded into each node; without a C
compiler the test is skipped by name. Clocks that jump in the simulation: tests.harness.simulation.faults.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

import pytest

from tests.harness import soak
from tests.harness.live.cluster import LiveCluster
from tests.harness.live.kill_loop import Fault, strike_under_load
from tests.harness.waiting import check_stays
from tests.integration.preloads import Preload

DAY_S, TEN_YEARS_S = 86_400, 3_650 * 86_400
JUMPS_S = (DAY_S, -DAY_S, TEN_YEARS_S, -TEN_YEARS_S)
STAYS_S = 3.0
SETTINGS = {
    "broker.session.timeout.ms": "2000",
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.check.interval.ms": "500",
    "offsets.retention.check.interval.ms": "500",
}
TOPIC_CONFIGS = {
    "retention_ms": "3600000",
    "segment_ms": "1000",
    "message_timestamp_after_max_ms": str(1 << 62),  # else a clock that is behind refuses what clients stamp
}


def clocks_in(folder: Path) -> Preload:
    """The wall clock of each node is off by so many seconds."""
    return Preload("jumping_clock.c", "JUMPING_CLOCK", folder)


def jumps(clocks: Preload, offsets_s: Sequence[int]) -> Fault:
    turns = cycle(offsets_s)

    def strike(cluster: LiveCluster, node_id: int) -> None:
        before = _terms(cluster)
        clocks.set(node_id, next(turns))
        check_stays(
            lambda: _terms(cluster) == before,
            "a jumping clock ended a leadership (R34)",
            seconds=STAYS_S,
            poll_s=0.2,
        )
        clocks.set(node_id, 0)

    return strike


def _terms(cluster: LiveCluster) -> tuple[int | None, list[int]]:
    """Who controls, and who leads each partition."""
    metadata = cluster.metadata()
    assert metadata is not None
    return metadata.controller, [each.leader for each in metadata.partitions]


def test_the_clock_of_another_process_jumps_and_no_steady_one(tmp_path: Path) -> None:
    clocks = clocks_in(tmp_path)
    clocks.set(0, DAY_S)
    program = "import time; print(time.time() - {!r}, time.monotonic() - {!r}); time.sleep(0.01)"
    command = [sys.executable, "-c", program.format(time.time(), time.monotonic())]
    environment = {**os.environ, **clocks.environment(0)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    ahead, steady = map(float, done.stdout.split())
    assert abs(ahead - steady - DAY_S) < 1, done.stdout


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_soak_t14_clocks_that_jump_end_no_session_and_delete_nothing(tmp_path: Path) -> None:
    started, clocks = time.monotonic(), clocks_in(tmp_path)
    with LiveCluster(tmp_path / "cluster", settings=SETTINGS, dress=clocks.dress) as cluster:
        report = strike_under_load(
            cluster,
            faults=3 * len(JUMPS_S),
            seed=soak.first_seed(),
            fault=jumps(clocks, JUMPS_S),
            order="nodes",
            configs=TOPIC_CONFIGS,
        )
        logs = [cluster.folder.node(node_id) / "serve.log" for node_id in cluster.node_ids]
        warned = sum(log.read_text().count("the clock jumped ahead") for log in logs)
    soak.write_report("T14", started, {**report.figures(), "jumps_noticed": warned})
    assert warned >= len(JUMPS_S), "half of the jumps go ahead, and the node saw them"
    report.check()
