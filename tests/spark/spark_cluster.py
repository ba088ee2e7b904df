"""A standalone Spark cluster on this machine from the PySpark that pip installed: a master and two workers.

The workers see a bare Python, so that what runs on them finds only what was shipped.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from headrace.cluster.engines.engine import free_ports

_START_S = 60
_WORKERS = 2
_PACKAGE = "org.apache.spark.deploy"


def bare_python(folder: Path) -> Path:
    """A Python of this version with no package at all."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=60)
    return folder / "bin/python"


@contextmanager
def standalone_cluster(folder: Path, java_home: Path) -> Iterator[str]:
    """Its address, once both workers have registered."""
    host, (port, *_) = "127.0.0.1", free_ports(1)
    address = f"spark://{host}:{port}"
    with ExitStack() as stack:
        master = ["master.Master", "--host", host, "--port", str(port), "--webui-port", "0"]
        log = stack.enter_context(_process(folder, "master", java_home, master))
        _wait_for(log, r"Starting Spark master at")
        for number in range(_WORKERS):
            name = f"worker-{number}"
            worker = ["worker.Worker", address, "--host", host, "--cores", "1", "--memory", "512m"]
            worker += ["--webui-port", "0", "--work-dir", str(folder / name)]
            stack.enter_context(_process(folder, name, java_home, worker))
        _wait_for(log, f"(?s)(Registering worker.*){{{_WORKERS}}}")
        yield address


@contextmanager
def _process(folder: Path, name: str, java_home: Path, arguments: list[str]) -> Iterator[Path]:
    home = Path(pyspark.__file__).parent
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYSPARK"))}
    environment = {
        **clean,
        "JAVA_HOME": str(java_home),
        "SPARK_HOME": str(home),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    log = folder / f"{name}.log"
    command = [str(home / "bin/spark-class"), f"{_PACKAGE}.{arguments[0]}", *arguments[1:]]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
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
    deadline = time.monotonic() + _START_S
    while re.search(pattern, log.read_text()) is None:
        assert time.monotonic() < deadline, f"{pattern} is not in {log}:\n{log.read_text()[-2000:]}"
        time.sleep(0.1)
