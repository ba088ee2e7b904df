# SPDX-License-Identifier: Apache-2.0
"""`headrace cluster` on real nodes: what it starts serves, what is killed stays dead, what dies returns."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from headrace.cli import main
from headrace.cluster.folder import ClusterFolder
from headrace.cluster.status import read_status
from headrace.cluster.supervisor import Supervisor
from headrace.types import TopicPartition
from tests.harness.live.load import read_all
from tests.harness.waiting import wait_until

COMMAND = [sys.executable, "-m", "headrace.cli.main"]


Run = Callable[..., str]


@pytest.fixture
def headrace(capsys: pytest.CaptureFixture[str]) -> Run:
    """One command of the tool, in this process; its output, or its error where it shall fail."""

    def run(*words: str, ok: bool = True) -> str:
        capsys.readouterr()
        code = main.run(list(words))
        out, err = capsys.readouterr()
        assert (code == 0) is ok, err
        return out if ok else err

    return run


@pytest.fixture
def cluster(headrace: Run, folder: Path) -> Run:
    def run(*words: str, ok: bool = True) -> str:
        return headrace("cluster", *words, "--dir", str(folder), ok=ok)

    return run


def status(folder: Path) -> dict[str, Any]:
    return read_status(ClusterFolder(folder)).document()


def wait_for(folder: Path, node: int, state: str, *, timeout_s: float = 30) -> dict[str, Any]:
    def found() -> dict[str, Any]:
        return next(each for each in status(folder)["nodes"] if each["id"] == node)

    wait_until(lambda: found()["state"] == state, found, timeout_s=timeout_s)
    return found()


def wait_until_in_sync(folder: Path, *, timeout_s: float = 30) -> None:
    def is_in_sync() -> bool:
        seen = status(folder)
        return bool(seen["answers"] and not seen["under_replicated"])

    wait_until(is_in_sync, lambda: status(folder), timeout_s=timeout_s)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "cluster"
    yield path
    if ClusterFolder(path).exists:
        Supervisor(ClusterFolder(path)).stop_all()


@pytest.fixture
def up(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Three nodes and their supervisor, in a process of its own."""
    command = [*COMMAND, "cluster", "up", "--nodes", "3", "--dir", str(folder), "--port", "0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    yield process
    if process.poll() is None:
        process.terminate()
    process.communicate(timeout=60)


def test_three_nodes_killed_crashed_stopped_and_looked_at(
    folder: Path, up: subprocess.Popen[str], headrace: Run, cluster: Run
) -> None:
    assert up.stdout is not None
    ready = json.loads(up.stdout.readline())
    assert ready["ready"]
    assert ready["nodes"] == [0, 1, 2]
    bootstrap = ready["bootstrap"]

    seen = json.loads(cluster("status", "--json"))
    assert {"nodes", "controller", "under_replicated"} <= seen.keys()
    assert [(node["id"], node["state"]) for node in seen["nodes"]] == [(n, "running") for n in range(3)]
    assert all(node["pid"] and node["address"] in bootstrap for node in seen["nodes"])
    assert seen["controller"] in (0, 1, 2)
    assert seen["supervised"]
    assert "is running already" in cluster("up", ok=False)

    headrace("topics", "create", "t", "--partitions", "3", "--replication-factor", "3", "-b", bootstrap)
    cluster("kill", "1")
    assert "node 1 is not running" in cluster("kill", "1", ok=False)
    crashed = next(node for node in status(folder)["nodes"] if node["id"] == 2)
    os.kill(crashed["pid"], signal.SIGKILL)
    returned = wait_for(folder, 2, "running")
    assert returned["pid"] != crashed["pid"], "who died by itself is started again"
    seen = status(folder)
    assert seen["nodes"][1]["state"] == "killed", "who was killed on purpose is not"
    assert seen["under_replicated"] > 0
    assert {"t-0", "t-1", "t-2"} <= set(seen["under_replicated_partitions"])

    cluster("start", "1")
    wait_until_in_sync(folder)
    assert "are led by their preferred leader again" in cluster("elect", "t")
    cluster("elect")  # internal topics, which `status` may have created while a node was down
    assert json.loads(cluster("elect", "--json")) == {"changed": []}
    assert "topic 'nowhere' does not exist" in cluster("elect", "nowhere", ok=False)
    table = cluster("status")
    assert "NODE\tSTATE\tADDRESS\tPID" in table
    assert "All nodes share one host" in table
    cluster("stop")
    assert up.wait(30) == 0, "the supervisor ends when all were told to stop"
    assert {node["state"] for node in status(folder)["nodes"]} == {"stopped"}


def test_errors_are_one_line_with_the_next_step(folder: Path, cluster: Run) -> None:
    assert "headrace cluster up --nodes 3" in cluster("status", ok=False)
    wrong = ("up", "--engine", "kafka", "--coordination", "sqlite:/x")
    assert "leave out --coordination" in cluster(*wrong, ok=False)
    assert "must be sqlite" in cluster("up", "--coordination", "etcd://x", ok=False)
    cluster("up", "--nodes", "1", "--port", "0", "--detach")
    cluster("stop")
    assert "use `headrace cluster add`" in cluster("up", "--nodes", "2", ok=False)
    assert "its nodes are 0" in cluster("start", "7", ok=False)
    (folder / "cluster.json").write_text("[]")
    assert "is not a cluster plan" in cluster("status", ok=False)
    (folder / "cluster.json").unlink()


def test_from_one_node_to_three_and_off_the_first(folder: Path, headrace: Run, cluster: Run) -> None:
    """Records that were there before are on the new nodes, and stay when the old one goes."""
    cluster("up", "--nodes", "1", "--port", "0", "--detach")
    first = status(folder)["nodes"][0]["address"]
    headrace("topics", "create", "t", "--partitions", "2", "-b", first)
    producer = Producer({"bootstrap.servers": first})
    for number in range(100):
        producer.produce("t", str(number))
    assert producer.flush(20) == 0
    cluster("add")
    cluster("add")
    done = json.loads(headrace("topics", "alter", "t", "--replication-factor", "3", "-b", first, "--json"))
    assert done["replication_factor"] == 3
    assert status(folder)["under_replicated"] == 0
    refusal = cluster("remove", "0", "--yes", ok=False)
    assert "3 replicas, and without node 0 there are 2 nodes" in refusal
    cluster("add")
    assert json.loads(cluster("remove", "0", "--yes", "--json"))["removed"] == 0
    seen = status(folder)
    assert [node["id"] for node in seen["nodes"]] == [1, 2, 3]
    assert seen["under_replicated"] == 0
    rest = seen["nodes"][0]["address"]
    read = [read_all(rest, TopicPartition("t", index)).records for index in range(2)]
    assert sorted(int(value) for records in read for _, value in records) == list(range(100))
