# SPDX-License-Identifier: Apache-2.0
"""JavaScript clients, unmodified: KafkaJS, also through kills of leaders, and @platformatic/kafka.

The programs are in tests/compat/javascript; each answers in JSON: its steps with their errors. A producer of
@platformatic/kafka 1.35 sends to the address of a dead leader until its metadata expire.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.left_out import leave_out
from tests.harness.live.cluster import LiveCluster
from tests.harness.live.secured_node import SecuredNode, set_password

pytestmark = pytest.mark.compat_js

SOURCES = Path(__file__).parent / "javascript"
CLIENTS = ("kafkajs", "platformatic")
RECORDS, KILLED_AT = 300, (60, 160)
TIMEOUT_S = 240

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Start:
    """Starts a program of one client; its packages are installed into a temporary folder."""
    if shutil.which("npm") is None:
        leave_out("JavaScript clients", "no npm: install Node.js and npm")
    folder = tmp_path_factory.mktemp("javascript")
    shutil.copytree(SOURCES, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("node_modules"))
    install = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    installed = subprocess.run(install, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert installed.returncode == 0, installed.stderr

    def start_one(client: str, **settings: Any) -> subprocess.Popen[str]:
        command = ["node", f"{client}.mjs", json.dumps(settings)]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=folder, stdout=pipe, stderr=pipe, text=True)

    return start_one


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    with SecuredNode(tmp_path_factory.mktemp("secured")) as node:
        set_password(node.open, "ann", "secret")
        yield node


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LiveCluster]:
    with LiveCluster(tmp_path / "cluster") as cluster:
        yield cluster


def finish(process: subprocess.Popen[str]) -> None:
    """Waits for the end; every step has to have passed."""
    stdout, stderr = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, stderr
    failed = {name: error for name, error in json.loads(stdout).items() if error is not None}
    assert not failed, "\n".join(f"{name}: {error}" for name, error in failed.items())


def test_every_step_passes_on_a_node(start: Start, client: str, bootstrap: str, topic: str) -> None:
    finish(start(client, bootstrap=bootstrap, topic=topic, mode="steps"))


def test_every_step_passes_after_a_login(start: Start, client: str, secured: SecuredNode, topic: str) -> None:
    sasl = {"mechanism": "scram-sha-512", "username": "ann", "password": "secret"}
    finish(start(client, bootstrap=secured.secure, topic=topic, sasl=sasl, mode="steps"))


def test_every_record_arrives_once_and_in_order_though_two_leaders_are_killed(
    start: Start, cluster: LiveCluster, topic: str
) -> None:
    process = start("kafkajs", bootstrap=cluster.bootstrap, topic=topic, mode="load", count=RECORDS)
    killer = threading.Thread(target=kill_leaders, args=(cluster, topic, process))
    killer.start()
    killer.join(TIMEOUT_S)
    finish(process)


def kill_leaders(cluster: LiveCluster, topic: str, process: subprocess.Popen[str]) -> None:
    """When so many records were acknowledged; a killed node is back before the next is killed."""
    assert process.stderr is not None
    due, killed = list(KILLED_AT), None
    for line in process.stderr:
        if not due or line.strip() != f"progress {due[0]}":
            continue
        due.pop(0)
        if killed is not None:
            cluster.start(killed)
            cluster.wait_in_sync()
        killed = cluster.leader(topic, 0)
        cluster.kill(killed)
        if not due:
            return
