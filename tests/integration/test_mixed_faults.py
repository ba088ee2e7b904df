# SPDX-License-Identifier: Apache-2.0
"""T20: kills, hangs, cut networks, moves and restarts mixed, with a Spark job that takes all into a table.

`make soak PART=T20`; HEADRACE_SOAK_MINUTES says for how long (20). The table must hold each record of the
topic once. Networks are cut in namespaces of their own, or by proxies where these cannot be had.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.client.errors import ClientError
from headrace.java import find_java
from headrace.types import TopicPartition
from tests.harness import soak
from tests.harness.history import Anomaly
from tests.harness.left_out import leave_out
from tests.harness.live import network_cuts
from tests.harness.live.cluster import LiveCluster, OnALan, host_name
from tests.harness.live.kill_loop import (
    PARTITIONS,
    TOPIC,
    ConfluentLoad,
    Fault,
    Report,
    in_turn,
    kill_all_and_start,
    kill_and_start,
    move_away,
    pause_for,
    stop_and_start,
    strike_under_load,
)
from tests.harness.live.lan import Lan, why_lans_are_missing
from tests.harness.live.load import read_all
from tests.harness.live.proxied_links import ProxiedLinks
from tests.harness.waiting import wait_until

PROGRAM = Path(__file__).with_name("mixed_program.py")
NODES = 4
SESSION_S = 2.0
SETTINGS = {
    "broker.session.timeout.ms": str(int(SESSION_S * 1000)),
    "replica.lag.time.max.ms": "2000",
    "group.initial.rebalance.delay.ms": "0",
}
START_S, END_S = 120, 300
MIB = 1 << 20
MOST_RSS_BYTES = 512 * MIB
MORE_DESCRIPTORS = 100
"""What a node may have open in the end beyond what it had at the beginning: segments, clients."""


class SparkBeside:
    """The usual clients, and a Spark job in a process of its own that reads what they write."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._clients = ConfluentLoad(bootstrap, pause_s=0.05)
        self._bootstrap = bootstrap
        self._folder = folder
        self._log = folder / "spark.log"

    def __enter__(self) -> SparkBeside:
        self._clients.__enter__()
        asked = {"bootstrap": self._bootstrap, "topic": TOPIC, "folder": str(self._folder)}
        with self._log.open("wb") as log:
            command = [sys.executable, str(PROGRAM), json.dumps(asked)]
            self._job = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        return self

    def wait_started(self) -> None:
        self._clients.wait_started()
        wait_until(self._has_committed, self._tail, timeout_s=START_S, poll_s=0.5)

    def _has_committed(self) -> bool:
        assert self._job.poll() is None, self._tail()
        return any((self._folder / "checkpoint/commits").glob("[0-9]*"))

    def wait_progress(self) -> None:
        self._clients.wait_progress()
        assert self._job.poll() is None, self._tail()

    def __exit__(self, *_: object) -> None:
        try:
            self._clients.__exit__()
            (self._folder / "stop").touch()
            assert self._job.wait(END_S) == 0, self._tail()
        finally:
            if self._job.poll() is None:
                self._job.kill()
                self._job.wait()

    def judge(self, report: Report) -> None:
        self._clients.judge(report)
        rows = json.loads((self._folder / "rows.json").read_text())
        times = Counter((int(partition), int(offset), str(value)) for partition, offset, value in rows)
        for index in range(PARTITIONS):
            partition = TopicPartition(TOPIC, index)
            records = read_all(self._bootstrap, partition).records
            stored = {(index, offset, value.decode()) for offset, value in records}
            found = {row for row in times if row[0] == index}
            doubled = {row for row in found if times[row] > 1}
            for kind, wrong in (
                ("spark-lost", stored - found),
                ("spark-invented", found - stored),
                ("spark-doubled", doubled),
            ):
                if wrong:
                    detail = f"{len(wrong)} rows, the first {min(wrong)}"
                    report.anomalies.append(Anomaly(kind=kind, partition=partition, detail=detail))

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]


@contextmanager
def _cluster(folder: Path) -> Iterator[tuple[LiveCluster, network_cuts.Links]]:
    hosts = [host_name(node_id) for node_id in range(NODES)]
    links = ProxiedLinks(hosts) if why_lans_are_missing() else Lan(hosts)
    with (
        links,
        LiveCluster(
            folder / "cluster",
            nodes=NODES,
            settings=SETTINGS,
            network=OnALan(links) if isinstance(links, Lan) else links,
        ) as cluster,
    ):
        yield cluster, links


def _mix(links: network_cuts.Links) -> dict[str, Fault]:
    return {
        "kill": kill_and_start,
        "pause": pause_for(1.5 * SESSION_S),
        "restart": stop_and_start,
        "move": move_away,
        "kill all": kill_all_and_start,
        "cut": network_cuts.cut_for(links, network_cuts.ON_ONE_HOST, 2 * SESSION_S),
    }


def _open_files(cluster: LiveCluster) -> dict[int, int]:
    pids = {node_id: cluster.pid(node_id) for node_id in cluster.node_ids}
    return {node_id: len(os.listdir(f"/proc/{pid}/fd")) for node_id, pid in pids.items() if pid is not None}


def _rss_bytes(cluster: LiveCluster) -> int:
    pids = [pid for pid in map(cluster.pid, cluster.node_ids) if pid is not None]
    pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids]
    return max(pages) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.soak
@pytest.mark.timeout(10 * 3600)
def test_soak_t20_everything_mixed_with_a_streaming_job(tmp_path: Path) -> None:
    try:
        find_java()
    except ClientError as error:
        leave_out("Spark", str(error))
    minutes = soak.minutes(20)
    started = time.monotonic()
    with _cluster(tmp_path) as (cluster, links):
        mix, before = _mix(links), _open_files(cluster)
        report = strike_under_load(
            cluster,
            seed=soak.first_seed(),
            fault=in_turn(*mix.values()),
            at_most_s=60 * minutes,
            load=SparkBeside(cluster.bootstrap, tmp_path),
        )
        after, most_rss = _open_files(cluster), _rss_bytes(cluster)
    figures = {
        **report.figures(),
        "mix": list(mix),
        "open_files": {"before": before, "after": after},
        "most_rss_mib": most_rss // MIB,
    }
    soak.write_report("T20", started, figures)
    report.check()
    assert report.faults >= minutes, figures
    assert most_rss <= MOST_RSS_BYTES, figures
    assert all(after[node] <= before[node] + MORE_DESCRIPTORS for node in before), figures
