# SPDX-License-Identifier: Apache-2.0
"""A coordination store that is damaged, restored, or put back to an older copy under a cluster of real nodes.

Acknowledged records stay: in the copies, the node that is behind is in sync and leads. The store alone:
tests/contract/test_store_put_back.py, tests/contract/test_store_backups.py.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from headrace.cluster.engines.engine import EngineError
from headrace.cluster.engines.zookeeper import ZooKeeperEnsemble
from headrace.coordination.restore.remembered import POSITION_FILE
from tests.harness.live.cluster import LiveCluster
from tests.harness.live.earlier_release import LAST_WITHOUT_STORE_HISTORY, MixedReleases, earlier_sources
from tests.harness.waiting import poll, wait_until

QUICK = {"broker.session.timeout.ms": "2000"}
SETTINGS = {
    **QUICK,
    "headrace.coordination.backup.interval.ms": "1000",
    "headrace.coordination.backups.kept": "3",
}
TOPIC, LATER = "orders", "created-later"


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "headrace.cli.main", "store", *arguments]
    return subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)


def done(*arguments: str) -> Any:
    result = command(*arguments, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def refused(*arguments: str) -> str:
    """The one line of a command that does nothing."""
    result = command(*arguments)
    assert result.returncode == 1, result.stdout
    (line,) = result.stderr.splitlines()
    return line


def write(cluster: LiveCluster, topic: str, values: Iterable[int]) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True})
    for value in values:
        producer.produce(topic, str(value), partition=0, callback=lambda error, _: failures.append(error))
    assert producer.flush(60) == 0
    assert set(failures) == {None}


def read(cluster: LiveCluster, topic: str, count: int) -> list[int]:
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "g", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[int] = []

    def enough() -> bool:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            found.append(int(message.value()))
        return len(found) == count

    poll(enough, timeout_s=60)
    consumer.close()
    return found


def stop_all(cluster: LiveCluster) -> None:
    for node_id in cluster.alive():
        cluster.stop(node_id)


def in_sync(cluster: LiveCluster) -> int:
    """Replicas of the topic's partition, while it has a leader."""
    metadata = cluster.metadata()
    partitions = () if metadata is None else metadata.partitions
    return sum(len(each.isr) for each in partitions if each.topic == TOPIC and each.leader != -1)


def leave_one_behind(cluster: LiveCluster) -> int:
    """The leader dies; what follows is acknowledged by the other two, and it is not in sync any more."""
    wait_until(lambda: in_sync(cluster) == 3, "all replicas are in sync")
    behind = poll(lambda: cluster.leader(TOPIC, 0), lambda node_id: node_id != -1)
    cluster.kill(behind)
    wait_until(lambda: cluster.leader(TOPIC, 0) not in (-1, behind), "another node leads")
    write(cluster, TOPIC, range(100, 200))
    cluster.create_topic(LATER, [[node for node in cluster.node_ids if node != behind]])
    write(cluster, LATER, range(10))
    return behind


def start_with(cluster: LiveCluster, behind: int) -> None:
    """By the copy of the store this node is in sync and leads; alone it must not."""
    cluster.start(behind)
    assert cluster.leader(TOPIC, 0) == -1
    cluster.start(*cluster.node_ids)


def start_refused(cluster: LiveCluster) -> str:
    with pytest.raises(EngineError) as caught:
        cluster.start(*cluster.node_ids)
    cluster.kill_all()
    message = str(caught.value)
    assert "Traceback" not in message
    return message


def check_nothing_is_lost(cluster: LiveCluster) -> None:
    assert read(cluster, TOPIC, 200) == list(range(200))
    write(cluster, TOPIC, range(200, 210))
    assert read(cluster, TOPIC, 210) == list(range(210))
    kept = [
        path for node_id in cluster.node_ids for path in cluster.folder.node(node_id).rglob(f"{LATER}-*-kept")
    ]
    assert len(kept) == 2, "both logs of the topic that the copy does not have"
    assert all(any(path.glob("*.log")) for path in kept)
    stop_all(cluster)
    cluster.start(*cluster.node_ids)
    assert read(cluster, TOPIC, 210) == list(range(210))
    assert all(path.exists() for path in kept)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterable[LiveCluster]:
    with LiveCluster(tmp_path / "cluster", settings=SETTINGS) as cluster:
        cluster.create_topic(TOPIC, [list(cluster.node_ids)])
        write(cluster, TOPIC, range(100))
        yield cluster


def test_a_damaged_store_is_restored_from_a_backup(cluster: LiveCluster, tmp_path: Path) -> None:
    store = cluster.folder.path / "coordination"
    place = ("--coordination", f"sqlite:{store}")
    backup = tmp_path / "backup.db"
    assert done("backup", str(backup), *place)["commits"] > 0
    wait_until(lambda: len(list((store / "backups").glob("*.db"))) == 3, "the controller takes backups")
    assert "stop all nodes" in refused("restore", str(backup), *place, "--yes")
    assert "registered" in refused("accept", *place, "--yes") or "open" in refused("accept", *place, "--yes")
    behind = leave_one_behind(cluster)
    stop_all(cluster)
    database = store / "coordination.db"
    with database.open("r+b") as file:
        file.truncate(database.stat().st_size // 2 // 4096 * 4096)
    damaged = database.read_bytes()

    message = start_refused(cluster)
    newest = max(store.glob("backups/*.db"))
    assert str(database) in message
    assert "damaged" in message or "malformed" in message
    assert f"headrace store restore {newest} --coordination sqlite:{store}" in message
    assert str(newest) in refused("check", *place)

    report = done("restore", str(backup), *place, "--yes")
    assert report["topics"] >= 1
    assert damaged in [Path(path).read_bytes() for path in report["replaced"]], "the replaced file is kept"
    assert done("check", *place)["commits"] == report["commits"]
    start_with(cluster, behind)
    check_nothing_is_lost(cluster)


def test_an_older_copy_is_refused_until_it_is_accepted(cluster: LiveCluster, tmp_path: Path) -> None:
    store = cluster.folder.path / "coordination"
    place = ("--coordination", f"sqlite:{store}")
    copy = tmp_path / "copy.db"
    done("backup", str(copy), *place)
    behind = leave_one_behind(cluster)
    stop_all(cluster)
    newest = {path.name: path.read_bytes() for path in store.glob("coordination.db*")}
    for name in newest:
        (store / name).unlink()
    shutil.copy(copy, store / "coordination.db")

    message = start_refused(cluster)
    assert "put back to an older copy" in message
    assert f"headrace store accept --coordination sqlite:{store}" in message

    done("accept", *place, "--yes")
    start_with(cluster, behind)
    check_nothing_is_lost(cluster)


def test_zookeeper_restored_from_an_old_snapshot_is_refused_until_it_is_accepted(
    tmp_path: Path, zookeeper_servers: Callable[..., ZooKeeperEnsemble]
) -> None:
    with zookeeper_servers() as ensemble:
        (server,) = ensemble.servers
        data, copy = tmp_path / "zookeeper" / "server-1" / "data", tmp_path / "copy"
        place = f"zk://{ensemble.hosts}/headrace"
        with LiveCluster(tmp_path / "cluster", coordination=place, settings=SETTINGS) as cluster:
            cluster.create_topic(TOPIC, [list(cluster.node_ids)])
            write(cluster, TOPIC, range(100))
            server.kill()
            shutil.copytree(data, copy)
            server.start()
            behind = leave_one_behind(cluster)

            server.kill()
            shutil.rmtree(data)
            shutil.copytree(copy, data)
            server.start()
            logs = [next(cluster.folder.node(node_id).glob("*.log")) for node_id in cluster.alive()]
            wait_until(
                lambda: all("it was restored from an older snapshot" in path.read_text() for path in logs),
                "the nodes that run notice it",
                timeout_s=30,
            )
            cluster.kill_all()
            message = start_refused(cluster)
            assert "put back to an older copy" in message
            assert f"headrace store accept --coordination {place}" in message
            arguments = ("accept", "--coordination", place, "--yes")
            wait_until(
                lambda: command(*arguments).returncode == 0, "the sessions of the snapshot end", timeout_s=60
            )
            start_with(cluster, behind)
            check_nothing_is_lost(cluster)


def test_nodes_that_keep_no_history_serve_beside_those_that_do(tmp_path: Path) -> None:
    releases = MixedReleases(earlier_sources(LAST_WITHOUT_STORE_HISTORY, tmp_path))
    with LiveCluster(tmp_path / "cluster", settings=QUICK, dress=releases) as cluster:
        first, second, last = cluster.node_ids
        cluster.create_topic(TOPIC, [list(cluster.node_ids)])
        write(cluster, TOPIC, range(10))

        def restart(node_id: int) -> None:
            cluster.stop(node_id)
            plan = cluster.folder.read()
            cluster.supervisor.prepare(plan, [plan.member(node_id)])
            cluster.start(node_id)

        for node_id in (first, second):
            releases.upgraded.add(node_id)
            restart(node_id)
        assert len(list(cluster.folder.node(first).rglob(POSITION_FILE))) == 1
        assert list(cluster.folder.node(last).rglob(POSITION_FILE)) == []
        write(cluster, TOPIC, range(10, 20))
        releases.upgraded.remove(first)  # a downgrade: the entries and the file of the later release stay
        restart(first)
        restart(last)
        write(cluster, TOPIC, range(20, 30))
        releases.upgraded |= {first, last}
        restart(first)
        restart(last)
        assert read(cluster, TOPIC, 30) == list(range(30))
