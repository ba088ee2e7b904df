# SPDX-License-Identifier: Apache-2.0
"""A leader whose disk is full, or whose log is damaged: others lead, and nothing is lost (T11).

Needs the right to mount; without it the test skips and says so.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from headrace.cluster.status import read_status
from headrace.types import TopicPartition
from tests.harness.left_out import leave_out
from tests.harness.live.cluster import LiveCluster
from tests.harness.live.load import read_all
from tests.harness.live.raw_client import RawClient
from tests.harness.waiting import poll
from tests.integration.test_disk_full import fill

VICTIM = 0
FILLED, DAMAGED, ALONE = "filled", "damaged", "alone"
SIZE_MIB = 48


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LiveCluster]:
    """Node 0 has a small disk of its own."""
    cluster = LiveCluster(tmp_path / "cluster", settings={"replica.lag.time.max.ms": "3000"})
    disk = data_of(cluster)
    disk.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m", "tmpfs", str(disk)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        leave_out("small disks", f"no right to mount a tmpfs: {done.stderr.strip()}")
    try:
        with cluster:
            yield cluster
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def data_of(cluster: LiveCluster) -> Path:
    return cluster.folder.node(VICTIM) / "data"


class Sender:
    def __init__(self, bootstrap: str) -> None:
        self.sent: dict[str, list[bytes]] = {FILLED: [], DAMAGED: [], ALONE: []}
        settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "enable.idempotence": True}
        self._producer = Producer({**settings, "linger.ms": 0, "message.timeout.ms": 60_000})

    def send(self, topic: str, count: int = 20) -> None:
        """All of them acknowledged, in the client's own time."""
        for _ in range(count):
            value = b"%d-" % len(self.sent[topic]) + b"x" * 5_000
            self._producer.produce(topic, value, partition=0)
            self.sent[topic].append(value)
        assert self._producer.flush(30) == 0


def led_by_another(cluster: LiveCluster, topic: str) -> float:
    return cluster.wait_until(
        lambda metadata: all(
            each.leader not in (VICTIM, -1) for each in metadata.partitions if each.topic == topic
        ),
        timeout_s=15,
    )


def test_t11_others_lead_what_a_full_disk_or_a_damaged_log_cannot(cluster: LiveCluster) -> None:
    sender = Sender(cluster.bootstrap)
    for topic, replicas in {FILLED: [VICTIM, 1, 2], DAMAGED: [VICTIM, 1, 2], ALONE: [VICTIM]}.items():
        cluster.create_topic(topic, [replicas])
        sender.send(topic)
    cluster.wait_in_sync()

    for topic in (DAMAGED, ALONE):
        with (data_of(cluster) / f"{topic}-0" / ("0" * 20 + ".log")).open("r+b") as file:
            file.truncate(100)
    read_all(cluster.bootstrap, TopicPartition(DAMAGED, 0))  # whoever reads it finds it damaged
    led_by_another(cluster, DAMAGED)
    sender.send(DAMAGED)
    cluster.wait_in_sync()  # it was set aside and copied anew
    with (
        RawClient(cluster.folder.read().member(VICTIM).address) as client,
        pytest.raises(AssertionError, match="corrupt_message"),
    ):
        client.fetch(ALONE, 0)  # nobody can take its place, and it cannot be read

    fill(data_of(cluster) / "filler")
    led_by_another(cluster, FILLED)
    sender.send(FILLED)
    assert cluster.pid(VICTIM) is not None
    assert told(cluster, "full_disks") == [{"node": VICTIM, "reason": "its disk has no room for records"}]
    (data_of(cluster) / "filler").unlink()
    cluster.wait_in_sync()
    sender.send(FILLED)

    for topic, values in ((topic, sender.sent[topic]) for topic in (FILLED, DAMAGED)):
        found = read_all(cluster.bootstrap, TopicPartition(topic, 0))
        assert [value for _, value in found.records] == values

    cluster.stop(VICTIM)
    cluster.start(VICTIM)
    (damaged,) = told(cluster, "damaged_logs")  # it cannot be opened either
    assert (damaged["partition"], damaged["node"]) == (f"{ALONE}-0", VICTIM)
    assert "Nothing was cut" in damaged["reason"]


def told(cluster: LiveCluster, what: str) -> list[dict[str, Any]]:
    """As `cluster status --json` tells; nodes write down what happened once a second."""
    return poll(
        lambda: read_status(cluster.folder).document()[what],
        lambda found: found and "see that" not in found[0]["reason"],
        timeout_s=60,
        poll_s=0.2,
    )
