# SPDX-License-Identifier: Apache-2.0
"""`headrace serve --from-env`: what the container's entry point does, as a plain process."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from headrace.cluster.engines.engine import free_ports
from headrace.kernels.library import load_library
from tests.harness.left_out import leave_out
from tests.harness.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
DRAWN_COMPOSE = ROOT / "tests" / "unit" / "config" / "drawn-compose.yaml"
SERVE = [sys.executable, "-m", "headrace.cli.main", "serve", "--from-env"]
READY_S = 20


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("KAFKA_", "HEADRACE_"))}
    return {**inherited, **variables}


def _drawn_environment(data: Path, inner: int, outer: int, metrics: int) -> dict[str, str]:
    """The drawn compose file's variables, with loopback in place of a container's addresses."""
    pairs = re.findall(r"^ +(KAFKA_[A-Z_]+): (.+)$", DRAWN_COMPOSE.read_text(), flags=re.MULTILINE)
    addresses = {
        "KAFKA_LISTENERS": f"PLAINTEXT://127.0.0.1:{inner},PLAINTEXT_HOST://127.0.0.1:{outer}",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://127.0.0.1:{inner},PLAINTEXT_HOST://localhost:{outer}",
        "KAFKA_LOG_DIRS": str(data),
        "HEADRACE_METRICS_PORT": str(metrics),
        "HEADRACE_COORDINATION": "sqlite",  # with ZooKeeper: test_drawn_containers.py
    }
    return {**{name: value.strip('"') for name, value in pairs}, **addresses}


class FromEnv:
    """A node started from variables, with its output."""

    def __init__(self, directory: Path, **more: str) -> None:
        self.inner, self.outer, self.metrics = free_ports(3)
        self.log = directory / "serve.log"
        variables = _drawn_environment(directory / "data", self.inner, self.outer, self.metrics)
        variables |= {"KAFKA_COLOUR": "blue", **more}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                SERVE, env=_environment(variables), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def http_status(self, path: str) -> int | None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}{path}", timeout=2) as reply:
                return int(reply.status)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code
        except OSError:
            return None

    def wait_ready(self) -> None:
        wait_until(self._is_ready, self.log.read_text, timeout_s=READY_S)

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        return self.http_status("/readyz") == 200

    def told_by(self, host: str, port: int) -> list[tuple[str, int]]:
        metadata = AdminClient({"bootstrap.servers": f"{host}:{port}"}).list_topics(timeout=10)
        return [(broker.host, broker.port) for broker in metadata.brokers.values()]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FromEnv]:
    started = FromEnv(tmp_path_factory.mktemp("from-env"))
    try:
        started.wait_ready()
        yield started
    finally:
        if started.process.poll() is None:
            started.process.terminate()
            started.process.wait(READY_S)


@pytest.mark.row("D20")
def test_each_listener_of_the_compose_file_advertises_its_own_address(node):
    assert node.told_by("127.0.0.1", node.inner) == [("127.0.0.1", node.inner)]
    assert node.told_by("localhost", node.outer) == [("localhost", node.outer)]


def test_health_check_endpoints_answer(node):
    assert node.http_status("/readyz") == 200
    assert node.http_status("/healthz") == 200
    assert node.http_status("/metrics") == 200


def test_ignored_variables_are_reported_once(node):
    output = node.log.read_text()
    assert output.count("KAFKA_HEAP_OPTS") == 1
    assert output.count("ignored, not settings of Headrace: KAFKA_COLOUR") == 1


def test_a_stop_signal_ends_it_cleanly(tmp_path):
    started = FromEnv(tmp_path)
    started.wait_ready()
    started.process.send_signal(signal.SIGTERM)
    assert started.process.wait(READY_S) == 0


def _refused(variables: Mapping[str, str]) -> str:
    ended = subprocess.run(
        SERVE, env=_environment(variables), capture_output=True, text=True, timeout=READY_S, check=False
    )
    assert ended.returncode != 0
    return ended.stderr


def test_a_reachable_listener_is_refused_with_the_next_step(tmp_path):
    complaint = _refused(
        {"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://kafka:9092", "KAFKA_LOG_DIRS": str(tmp_path / "data")}
    )
    assert "--allow-anonymous" in complaint
    assert len(complaint.strip().splitlines()) == 1
    assert not (tmp_path / "data").exists()


def test_a_bad_value_names_its_variable(tmp_path):
    complaint = _refused({"KAFKA_NUM_PARTITIONS": "many", "KAFKA_LOG_DIRS": str(tmp_path / "data")})
    assert "KAFKA_NUM_PARTITIONS" in complaint
    assert "many" in complaint


def test_one_of_three_voters_is_refused_in_one_line_and_leaves_nothing(tmp_path):
    complaint = _refused(
        {
            "KAFKA_NODE_ID": "2",
            "KAFKA_PROCESS_ROLES": "broker,controller",
            "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@kafka-1:9093,2@kafka-2:9093,3@kafka-3:9093",
            "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "KAFKA_LISTENERS": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
            "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9092",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "KAFKA_LOG_DIRS": str(tmp_path / "data"),
        }
    )
    assert "KAFKA_CONTROLLER_QUORUM_VOTERS names 3 nodes" in complaint
    assert "HEADRACE_COORDINATION=zk://" in complaint
    assert len(complaint.strip().splitlines()) == 1
    assert not (tmp_path / "data").exists()


def test_a_node_without_kernels_says_what_is_missing(tmp_path):
    """A container without a compiler lost the validation of records without a word."""
    source = tmp_path / "src"
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    node = FromEnv(tmp_path, PYTHONPATH=str(source))
    try:
        node.wait_ready()
    finally:
        node.process.kill()
        node.process.wait()
    assert node.log.read_text().count("the C kernels are not compiled; compile them: python -m") == 1


def test_a_node_with_kernels_does_not_warn(node):
    if load_library() is None:
        leave_out("compiled kernels", "they are missing or old: python -m headrace.kernels.build")
    assert "kernels" not in node.log.read_text()
