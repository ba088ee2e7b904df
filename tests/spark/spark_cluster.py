# SPDX-License-Identifier: Apache-2.0
"""A standalone Spark cluster on this machine from the PySpark that pip installed: a master and workers.

Workers see this process's environment; `bare_environment` takes away what would let them find our packages.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from headrace.cluster.engines.engine import free_ports
from tests.harness.waiting import wait_until

MASTER_HOST = "127.0.0.1"
SHORT_LIVED = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"}
"""For JVMs that end within a minute: most of their time goes into compiling what they run a few times."""
_START_S = 60
_PACKAGE = "org.apache.spark.deploy"


def bare_python(folder: Path) -> Path:
    """A Python of this version with no package at all."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=60)
    return folder / "bin/python"


def bare_environment() -> dict[str, str]:
    """This process's, with nothing that says where Python's packages are."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYSPARK"))}


@contextmanager
def standalone_cluster(
    folder: Path, java_home: Path, *, hosts: Sequence[str], environment: Mapping[str, str]
) -> Iterator[str]:
    """Its address, once a worker on each of the hosts has registered. A host named twice has two."""
    (port,) = free_ports(1)
    address = f"spark://{MASTER_HOST}:{port}"
    java = {**environment, "JAVA_HOME": str(java_home), "SPARK_DAEMON_MEMORY": "256m"}
    with ExitStack() as stack:
        master = ["master.Master", "--host", MASTER_HOST, "--port", str(port), "--webui-port", "0"]
        log = stack.enter_context(_process(folder / "master", java, MASTER_HOST, master))
        _wait_for(log, r"Starting Spark master at")
        for number, host in enumerate(hosts):
            place = folder / f"worker-{number}"
            worker = ["worker.Worker", address, "--host", host, "--cores", "1", "--memory", "512m"]
            worker += ["--webui-port", "0", "--work-dir", str(place)]
            stack.enter_context(_process(place, java, host, worker))
        _wait_for(log, f"(?s)(Registering worker.*){{{len(hosts)}}}")
        yield address


@contextmanager
def _process(place: Path, environment: Mapping[str, str], host: str, arguments: list[str]) -> Iterator[Path]:
    """What it says is in a file beside its place."""
    home = Path(pyspark.__file__).parent
    known = {**environment, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": host}
    log = place.with_suffix(".log")
    command = [str(home / "bin/spark-class"), f"{_PACKAGE}.{arguments[0]}", *arguments[1:]]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=known)
    try:
        yield log
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(log: Path, pattern: str) -> None:
    wait_until(
        lambda: re.search(pattern, log.read_text()),
        lambda: f"{pattern} in {log}:\n{log.read_text()[-2000:]}",
        timeout_s=_START_S,
    )
