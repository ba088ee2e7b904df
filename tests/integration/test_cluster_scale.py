# SPDX-License-Identifier: Apache-2.0
"""T18: a thousand partitions with three replicas each, one node killed under load: `make soak PART=T18`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from headrace.cluster.engines.process_stats import read_process_tree
from headrace.cluster.status import ClusterMetadata
from tests.harness import soak
from tests.harness.live.cluster import LiveCluster
from tests.harness.live.kill_loop import TOPIC, ConfluentLoad, Report

PARTITIONS = 1_000
MANY = "many"
LEADERS_WITHIN_S = 15
"""The table's bound; the cluster issue's goal is 3 s."""
RSS_LIMIT_BYTES = 1 << 30
METADATA_WITHIN_S = 1.0


def _all_led_without(node_id: int) -> Any:
    def all_led(metadata: ClusterMetadata) -> bool:
        return all(each.leader not in (-1, node_id) for each in metadata.partitions)

    return all_led


def _metadata_s(cluster: LiveCluster) -> float:
    started = time.monotonic()
    metadata = cluster.metadata()
    assert metadata is not None
    assert len(metadata.partitions) >= PARTITIONS
    return time.monotonic() - started


def _fail_over(cluster: LiveCluster) -> dict[str, float]:
    """Kills who leads the loaded partition; how long until all have leaders, and until all are in sync."""
    victim = cluster.leader(TOPIC, 0)
    figures = {"metadata_s": _metadata_s(cluster)}
    pids = [pid for pid in map(cluster.pid, cluster.node_ids) if pid is not None]
    figures["most_rss_mib"] = max(read_process_tree(pid).rss_bytes for pid in pids) / (1 << 20)
    cluster.kill(victim)
    figures["all_led_s"] = cluster.wait_until(_all_led_without(victim), timeout_s=4 * LEADERS_WITHIN_S)
    cluster.start(victim)
    figures["in_sync_s"] = cluster.wait_in_sync(timeout_s=300)
    return figures


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_soak_t18_a_thousand_partitions_have_leaders_again(tmp_path: Path) -> None:
    started = time.monotonic()
    report = Report(seed=soak.first_seed())
    with LiveCluster(tmp_path / "cluster") as cluster:
        nodes = cluster.node_ids
        turns = [[*nodes[place:], *nodes[:place]] for place in range(len(nodes))]
        cluster.create_topic(MANY, [turns[index % len(turns)] for index in range(PARTITIONS)])
        cluster.create_topic(TOPIC, turns, min_insync_replicas="2")
        cluster.wait_in_sync(timeout_s=300)
        load = ConfluentLoad(cluster.bootstrap, 0.02)
        with load:
            load.wait_started()
            rounds = [_fail_over(cluster) for _ in nodes]
        load.judge(report)
    report.faults, report.by_role = len(rounds), {"leader": len(rounds)}
    worst = {f"worst_{name}": round(max(each[name] for each in rounds), 2) for name in rounds[0]}
    figures = {**report.figures(), "partitions": PARTITIONS, **worst}
    soak.write_report("T18", started, figures)
    report.check()
    assert worst["worst_all_led_s"] <= LEADERS_WITHIN_S, figures
    assert worst["worst_metadata_s"] <= METADATA_WITHIN_S, figures
    assert worst["worst_most_rss_mib"] * (1 << 20) <= RSS_LIMIT_BYTES, figures
