# SPDX-License-Identifier: Apache-2.0
"""Karapace, a schema registry that elects its master by a group of its own kind: Avro goes round through it.

HEADRACE_KARAPACE is the command of an installed one; else it is installed from the package index.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.cluster.engines.engine import command_environment, free_ports
from tests.harness.left_out import leave_out
from tests.harness.live.raw_client import RawClient
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.compat_jvm, pytest.mark.row("D17")]

ROUND_TRIP = Path(__file__).parent / "avro" / "round_trip.py"
INSTALL_TIMEOUT_S = 240
READY_S = 60


def make_environment(folder: Path, *packages: str) -> Path:
    """The bin folder of a virtual environment with these packages; skips when they are not to be had."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=INSTALL_TIMEOUT_S)
    command = [str(folder / "bin" / "pip"), "install", "--quiet", *packages]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        leave_out("Karapace", f"{' '.join(packages)} could not be installed in time")
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
        leave_out("Karapace", f"{' '.join(packages)} is not to be had from the package index: {reason}")
    return folder / "bin"


@pytest.fixture(scope="module")
def karapace_command(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    if given := os.environ.get("HEADRACE_KARAPACE"):
        return shlex.split(given)
    folder = tmp_path_factory.mktemp("karapace") / "environment"
    return [str(make_environment(folder, "karapace") / "karapace")]


@pytest.fixture
def registry(karapace_command: list[str], bootstrap: str, tmp_path: Path) -> Iterator[str]:
    """The address of a running schema registry."""
    (port,) = free_ports(1)
    settings = {
        "BOOTSTRAP_URI": bootstrap,
        "HOST": "127.0.0.1",
        "PORT": str(port),
        "ADVERTISED_HOSTNAME": "127.0.0.1",
        "REPLICATION_FACTOR": "1",
        "KARAPACE_REGISTRY": "true",
        "KARAPACE_REST": "false",
        "GROUP_ID": "schema-registry",
        "TOPIC_NAME": "_schemas",
    }
    environment = command_environment({f"KARAPACE_{name}": value for name, value in settings.items()})
    url = f"http://127.0.0.1:{port}"
    log = tmp_path / "karapace.log"
    with log.open("wb") as output:
        process = subprocess.Popen(karapace_command, env=environment, stdout=output, stderr=subprocess.STDOUT)
    try:
        wait_until_ready(url, process, log)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    def shown() -> str:
        return log.read_text(errors="replace")[-3000:]

    def answers() -> bool:
        try:
            with urllib.request.urlopen(f"{url}/subjects", timeout=10) as answer:
                assert json.load(answer) == []
        except OSError:
            assert process.poll() is None, shown()
            return False
        return True

    wait_until(answers, shown, timeout_s=READY_S, poll_s=0.2)


@pytest.mark.timeout(900)
def test_avro_goes_round_through_karapace(registry: str, bootstrap: str, topic: str, tmp_path: Path) -> None:
    client = make_environment(tmp_path / "client", "confluent-kafka[avro]")
    with RawClient(bootstrap) as admin:
        admin.create_topic(topic)
    done = subprocess.run(
        [str(client / "python"), str(ROUND_TRIP), bootstrap, registry, topic],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"same": True, "subjects": [f"{topic}-value"]}
