"""`headrace serve --from-env`: what the container's entry point does, as a plain process."""

from __future__ import annotations

import os
import re
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
    }
    return {**{name: value.strip('"') for name, value in pairs}, **addresses}


class FromEnv:
    """A node started from variables, with its output."""

    def __init__(self, directory: Path) -> None:
        self.inner, self.outer, self.metrics = free_ports(3)
        self.log = directory / "serve.log"
        variables = _drawn_environment(directory / "data", self.inner, self.outer, self.metrics)
        variables["KAFKA_COLOUR"] = "blue"
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
        for _ in range(READY_S * 20):
            if self.http_status("/readyz") == 200:
                return
            if self.process.poll() is not None:
                break
            try:
                self.process.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
        pytest.fail(f"the node was not ready:\n{self.log.read_text()}")

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
def test_each_listener_of_the_drawn_file_tells_its_own_address(node):
    assert node.told_by("127.0.0.1", node.inner) == [("127.0.0.1", node.inner)]
    assert node.told_by("localhost", node.outer) == [("localhost", node.outer)]


def test_what_the_health_check_asks_is_answered(node):
    assert node.http_status("/readyz") == 200
    assert node.http_status("/healthz") == 200
    assert node.http_status("/metrics") == 200


def test_what_is_ignored_is_said_once(node):
    output = node.log.read_text()
    assert output.count("KAFKA_ZOOKEEPER_CONNECT") == 1
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


def test_a_reachable_listener_is_refused_in_one_line_that_says_what_to_do(tmp_path):
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
