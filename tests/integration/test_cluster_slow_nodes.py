# SPDX-License-Identifier: Apache-2.0
"""Three nodes, one with 200 ms per fsync: writes are fast once it leads nothing and has left the ISR (R16b).

A preloaded library (slow_disk.c) makes the disk of one node slow while it runs. The long form is
`make soak PART=slow_nodes`; slow networks: tests/simulation/test_simulated_slow_nodes.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.cluster.status import ClusterMetadata, Partition, read_status
from headrace.types import TopicPartition
from tests.harness import soak
from tests.harness.live.cluster import LiveCluster
from tests.harness.live.load import read_all
from tests.harness.live.paced_writer import PacedWriter, percentile_ms
from tests.harness.waiting import check_stays, poll
from tests.integration.preloads import Preload

TOPIC = "written"
SLOW_MS = 200
FAST_P99_MS = 150.0
"""A write that waits for the slow disk takes longer than this, whatever else the machine does."""
RECENT_S = 2.0


def cluster_with_disks(folder: Path, after_ms: int, return_ms: int) -> tuple[LiveCluster, Preload]:
    disks = Preload("slow_disk.c", "SLOW_DISK", folder)
    settings = {
        "headrace.flush.default": "ack",
        "headrace.slow.replica.after.ms": str(after_ms),
        "headrace.slow.replica.return.ms": str(return_ms),
    }
    return LiveCluster(folder / "cluster", settings=settings, dress=disks.dress), disks


def partitions_of(metadata: ClusterMetadata) -> list[Partition]:
    return [each for each in metadata.partitions if each.topic == TOPIC]


def moved_off(victim: int) -> Callable[[ClusterMetadata], bool]:
    """It leads none of the partitions, and is in the ISR of none."""
    return lambda metadata: all(
        each.leader != victim and victim not in each.isr for each in partitions_of(metadata)
    )


def back_in_sync(victim: int) -> Callable[[ClusterMetadata], bool]:
    return lambda metadata: all(victim in each.isr for each in partitions_of(metadata))


def slow_nodes_shown(cluster: LiveCluster) -> set[int]:
    return {each["node"] for each in read_status(cluster.folder).document()["slow_nodes"]}


def wait_until_fast(writer: PacedWriter, timeout_s: float) -> float:
    return poll(
        lambda: writer.recent_p99_ms(RECENT_S),
        lambda p99_ms: p99_ms < FAST_P99_MS,
        timeout_s=timeout_s,
        poll_s=0.2,
    )


def check_all_is_there(cluster: LiveCluster, writer: PacedWriter) -> None:
    found = {
        value
        for index in range(3)
        for _, value in read_all(cluster.bootstrap, TopicPartition(TOPIC, index)).records
    }
    assert writer.failed == 0
    assert writer.values <= found, "acknowledged records are lost"


def test_a_slow_disk_leaves_and_returns_once_and_writes_are_fast_meanwhile(tmp_path: Path) -> None:
    cluster, disks = cluster_with_disks(tmp_path, after_ms=2_000, return_ms=3_000)
    with cluster:
        cluster.create_topic(TOPIC, [[0, 1, 2], [1, 2, 0], [2, 0, 1]], min_insync_replicas="2")
        cluster.wait_in_sync()
        with PacedWriter(cluster.bootstrap, TOPIC, 3) as writer:
            disks.set(0, SLOW_MS)
            cluster.wait_until(moved_off(0))
            p99_ms = wait_until_fast(writer, 20)
            assert p99_ms < FAST_P99_MS, "the slow disk is still felt"
            named = poll(lambda: slow_nodes_shown(cluster), lambda nodes: nodes == {0}, timeout_s=10)
            assert named == {0}, "the status of the cluster names it"
            disks.set(0, 0)
            cluster.wait_until(back_in_sync(0))
        check_all_is_there(cluster, writer)
        logs = [(cluster.folder.node(node) / "serve.log").read_text() for node in cluster.node_ids]
        phrases = (
            "this node's disk is slow: it takes",
            "node 0 is slow: it takes",
            "node 0 is slow: it takes",
        )
        found = [log.count(phrase) for log, phrase in zip(logs, phrases, strict=True)]
        assert sum(found) >= 1, "those that measured it say so"
        assert max(found) == 1, "nobody found it slow twice"
        assert any("node 0 is slow, as found by" in log for log in logs), "the controller says why"


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_soak_slow_nodes_each_in_turn_move_once(tmp_path: Path) -> None:
    """At the defaults; each node is slow for a minute, and everything stays where it is for a while after."""
    started, figures = time.monotonic(), {}
    cluster, disks = cluster_with_disks(tmp_path, after_ms=5_000, return_ms=30_000)
    with cluster:
        cluster.create_topic(TOPIC, [[0, 1, 2], [1, 2, 0], [2, 0, 1]], min_insync_replicas="2")
        cluster.wait_in_sync()
        with PacedWriter(cluster.bootstrap, TOPIC, 3) as writer:
            for victim in cluster.node_ids:
                slow_since = time.monotonic()
                disks.set(victim, SLOW_MS)
                cluster.wait_until(moved_off(victim))
                acted_s = time.monotonic() - slow_since
                assert wait_until_fast(writer, 30) < FAST_P99_MS
                settled = time.monotonic()
                check_stays(
                    lambda victim=victim: moved_off(victim)(cluster.metadata() or ClusterMetadata()),
                    "it came back while its disk was slow",
                    seconds=60,
                    poll_s=0.5,
                )
                p99_ms = percentile_ms(writer.latencies_ms(settled), 99)
                disks.set(victim, 0)
                back_s = cluster.wait_until(back_in_sync(victim), timeout_s=150)
                check_stays(
                    lambda victim=victim: back_in_sync(victim)(cluster.metadata() or ClusterMetadata()),
                    "it left again although its disk was fast",
                    seconds=20,
                    poll_s=0.5,
                )
                figures[f"node_{victim}"] = {"acted_s": acted_s, "p99_ms": p99_ms, "back_s": back_s}
        check_all_is_there(cluster, writer)
    soak.write_report("slow-nodes", started, figures)
