# SPDX-License-Identifier: Apache-2.0
"""A Spark Connect server in a process of its own, from the PySpark that pip installed, and who needs one.

Its Python is this one, so that it has our formats. Read next: spark_cluster.py (a standalone cluster).
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pyspark

from headrace.cluster.engines.engine import free_ports
from tests.harness.left_out import leave_out
from tests.harness.waiting import wait_until
from tests.spark.spark_cluster import SHORT_LIVED

HOST = "127.0.0.1"
_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_START_S = 120


def need_connect() -> None:
    """Leaves the test out where Spark Connect's client cannot be imported."""
    if find_spec("grpc_status") is None:
        leave_out("Spark Connect", "no gRPC: pip install headrace[declarative]")


@contextmanager
def connect_server(folder: Path, java_home: Path) -> Iterator[str]:
    """Its address, once it answers. What it says is in `connect.log` in the folder."""
    (port,) = free_ports(1)
    settings = {
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    home = Path(pyspark.__file__).parent
    command = [str(home / "bin/spark-submit"), "--class", _CLASS, "--master", "local[2]"]
    command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    environment = {
        **os.environ,
        **SHORT_LIVED,
        "JAVA_HOME": str(java_home),
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
    }
    log = folder / "connect.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=folder
        )
    try:
        wait_until(
            lambda: _answers(port) or process.poll() is not None,
            lambda: f"a Connect server at {port}:\n{log.read_text()[-2000:]}",
            timeout_s=_START_S,
        )
        assert process.poll() is None, log.read_text()[-2000:]
        yield f"sc://{HOST}:{port}"
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex((HOST, port)) == 0
