# SPDX-License-Identifier: Apache-2.0
"""Files of one of three nodes are damaged: readers go on, and what is damaged is fetched again (R27, T7)."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from headrace.cli import main
from headrace.cluster.status import ClusterStatus, read_status
from headrace.types import EVENTS_TOPIC, TopicPartition
from tests.harness.live.cluster import LiveCluster
from tests.harness.live.earlier_release import LAST_WITHOUT_REPAIRS, MixedReleases, earlier_sources
from tests.harness.live.load import read_all
from tests.harness.live.mixed_versions import prepare, restart
from tests.harness.waiting import poll

TOPIC = "orders"
RECORDS = 10_000
SEGMENT_BYTES = 1 << 20
HEALED_S = 60
FOUND_BY_READING_S = 10
"""Until the damaged replica is in sync again, from the first read that met the damage."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LiveCluster]:
    """The scrub of a running node comes round every two seconds, in place of five minutes."""
    settings = {"headrace.scrub.interval.ms": "2000"}
    with LiveCluster(tmp_path / "cluster", settings=settings) as cluster:
        yield cluster


@pytest.fixture
def unscrubbed(tmp_path: Path) -> Iterator[LiveCluster]:
    with LiveCluster(tmp_path / "cluster", settings={"headrace.scrub.interval.ms": "-1"}) as cluster:
        yield cluster


def log_of(cluster: LiveCluster, node_id: int) -> Path:
    return cluster.folder.node(node_id) / "data" / f"{TOPIC}-0"


def segments(cluster: LiveCluster, node_id: int) -> list[Path]:
    return sorted(log_of(cluster, node_id).glob("*.log"))


def log_bytes(cluster: LiveCluster, node_id: int) -> bytes:
    return b"".join(path.read_bytes() for path in segments(cluster, node_id))


def send(cluster: LiveCluster, count: int, first: int = 0) -> list[bytes]:
    values = [b"%06d-" % number + b"x" * 300 for number in range(first, first + count)]
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "acks": "all"})
    for value in values:
        producer.produce(TOPIC, value, partition=0)
        producer.poll(0)
    assert producer.flush(60) == 0
    return values


def read_values(cluster: LiveCluster) -> list[bytes]:
    return [value for _, value in read_all(cluster.bootstrap, TopicPartition(TOPIC, 0)).records]


def flip(path: Path, position: int, length: int = 200) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        data = file.read(length)
        file.seek(position)
        file.write(bytes(byte ^ 0xFF for byte in data))


def kept_aside(cluster: LiveCluster, node_id: int) -> list[Path]:
    return sorted(log_of(cluster, node_id).glob("*.log.damaged-*"))


def wait_healed(cluster: LiveCluster, victim: int, damaged: bytes | None) -> float:
    """All hold the same bytes, the log was kept but for the damaged segment, and that one is kept aside."""
    started = time.monotonic()

    def healed() -> bool:
        kept = [path.read_bytes() for path in kept_aside(cluster, victim)]
        same = len({log_bytes(cluster, node_id) for node_id in range(3)}) == 1
        return same and kept == ([] if damaged is None else [damaged])

    poll(healed, bool, timeout_s=HEALED_S, poll_s=0.2)
    cluster.wait_in_sync()
    assert not list(log_of(cluster, victim).parent.glob("*-stray"))
    told = [path.read_text(errors="replace") for path in cluster.folder.node(victim).glob("*.log")]
    assert any("is whole again: " in text for text in told)
    return time.monotonic() - started


def assert_status_creates_no_topic(cluster: LiveCluster) -> None:
    """With a node down it reads the events, which must not make the cluster create a topic of groups."""
    status = poll(lambda: read_status(cluster.folder), lambda found: bool(topics_in(found) & {EVENTS_TOPIC}))
    assert status.document()["under_replicated"]
    topics = topics_in(read_status(cluster.folder))
    assert topics == {TOPIC, EVENTS_TOPIC}


def topics_in(status: ClusterStatus) -> set[str]:
    return {each.topic for each in status.metadata.partitions} if status.metadata else set()


def test_t7_a_segment_damaged_while_its_node_was_down_heals(cluster: LiveCluster) -> None:
    """Three replicas of 10,000 records, bytes of a sealed segment flipped on one of them at rest."""
    cluster.create_topic(TOPIC, [[0, 1, 2]], **{"segment.bytes": str(SEGMENT_BYTES)})
    sent = send(cluster, RECORDS)
    cluster.wait_in_sync()
    cluster.stop(0)
    path = segments(cluster, 0)[1]
    flip(path, SEGMENT_BYTES // 2)
    damaged = path.read_bytes()
    assert_status_creates_no_topic(cluster)
    cluster.start(0)
    sent += send(cluster, 100, RECORDS)
    assert read_values(cluster) == sent
    wait_healed(cluster, 0, damaged)
    data = log_of(cluster, 0).parent
    assert main.run(["log", "clean", str(data), "--yes"]) == 0  # the node runs
    assert kept_aside(cluster, 0) == []
    assert read_values(cluster) == sent
    cluster.stop(0)
    cluster.start(0)
    cluster.wait_in_sync()
    assert log_bytes(cluster, 0) == log_bytes(cluster, 1)


@pytest.mark.parametrize("kind", ["flip", "cut", "remove"])
def test_t7_a_segment_damaged_under_load_heals(cluster: LiveCluster, kind: str) -> None:
    cluster.create_topic(TOPIC, [[0, 1, 2]], **{"segment.bytes": str(SEGMENT_BYTES)})
    sent = send(cluster, RECORDS)
    cluster.wait_in_sync()
    victim = cluster.leader(TOPIC, 0)
    path = segments(cluster, victim)[1]
    if kind == "flip":
        flip(path, SEGMENT_BYTES // 2)
    elif kind == "cut":
        with path.open("r+b") as file:
            file.truncate(SEGMENT_BYTES // 2)
    else:
        path.unlink()
    damaged = path.read_bytes() if path.exists() else None
    sent += send(cluster, RECORDS, RECORDS)
    wait_healed(cluster, victim, damaged)
    assert read_values(cluster) == sent


def test_t7_damage_heals_while_nodes_of_the_earlier_release_lead(tmp_path: Path) -> None:
    """Two of three are upgraded, one after the other, and a segment of each is damaged meanwhile; then one of
    them returns with an empty disk. Leaders and controller are of the earlier release at first."""
    releases = MixedReleases(earlier_sources(LAST_WITHOUT_REPAIRS, tmp_path))
    settings = {"headrace.scrub.interval.ms": "2000", "broker.session.timeout.ms": "2000"}
    with LiveCluster(tmp_path / "cluster", settings=settings, dress=releases) as cluster:
        cluster.create_topic(TOPIC, [[2, 1, 0]], **{"segment.bytes": str(SEGMENT_BYTES)})
        sent = send(cluster, RECORDS)
        cluster.wait_in_sync()
        for victim in (0, 1):
            cluster.stop(victim)
            path = segments(cluster, victim)[1]
            flip(path, SEGMENT_BYTES // 2)
            damaged = path.read_bytes()
            releases.upgraded.add(victim)
            prepare(cluster, victim)
            cluster.start(victim)
            sent += send(cluster, 100, len(sent))
            wait_healed(cluster, victim, damaged)
        cluster.stop(0)
        shutil.rmtree(log_of(cluster, 0).parent)
        cluster.start(0)
        sent += send(cluster, 100, len(sent))
        cluster.wait_in_sync()
        assert log_bytes(cluster, 0) == log_bytes(cluster, 2)
        releases.upgraded.add(2)
        restart(cluster, 2)
        cluster.wait_in_sync()
        assert read_values(cluster) == sent


def test_t7_a_reader_that_meets_damage_is_enough(unscrubbed: LiveCluster) -> None:
    """No scrub runs. The leader checks what a new reader is sent first: another node leads, and it heals."""
    cluster = unscrubbed
    cluster.create_topic(TOPIC, [[0, 1, 2]], **{"segment.bytes": str(SEGMENT_BYTES)})
    sent = send(cluster, RECORDS)
    cluster.wait_in_sync()
    victim = cluster.leader(TOPIC, 0)
    path = segments(cluster, victim)[0]
    flip(path, SEGMENT_BYTES // 4)
    damaged = path.read_bytes()
    started = time.monotonic()
    assert read_values(cluster) == sent
    assert cluster.leader(TOPIC, 0) != victim
    wait_healed(cluster, victim, damaged)
    assert time.monotonic() - started < FOUND_BY_READING_S
