# SPDX-License-Identifier: Apache-2.0
"""Pipelines on a standalone cluster whose Python has none of our packages: the pack brings them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from headrace.pipelines.pack import write_pack
from tests.spark.spark_cluster import MASTER_HOST, bare_environment, bare_python, standalone_cluster
from tests.spark.spark_lab import Broker

PROGRAM = Path(__file__).with_name("cluster_program.py")
TIMEOUT_S = 200


@pytest.mark.soak
def test_a_pack_brings_source_and_sinks_to_a_cluster(broker: Broker, java_home: Path, tmp_path: Path) -> None:
    """The driver's path has a package that cannot be imported: Spark then gives up looking for formats."""
    for name in ("orders", "copies"):
        broker.admin.create_topics([NewTopic(name, 2, 1)])[name].result(20)
    values = broker.fill("orders", 0, 100)
    broken = tmp_path / "broken/pyspark_broken"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise RuntimeError('not for use')\n")
    pack = write_pack(tmp_path / "pack.zip", level=0)
    python = bare_python(tmp_path / "bare")
    with standalone_cluster(
        tmp_path, java_home, hosts=[MASTER_HOST] * 2, environment=bare_environment()
    ) as master:
        asked = {
            "master": master,
            "pack": str(pack.path),
            "python": str(python),
            "bootstrap": broker.bootstrap,
            "folder": str(tmp_path),
        }
        environment = {**os.environ, "JAVA_HOME": str(java_home), "PYTHONPATH": str(broken.parent)}
        environment.pop("PYSPARK_PYTHON", None)
        ran = subprocess.run(
            [sys.executable, PROGRAM, json.dumps(asked)],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env=environment,
            check=False,
        )
    pack.path.unlink()  # pytest keeps folders of several runs, and these hold the pack three times
    for unpacked in tmp_path.glob("worker-*"):
        shutil.rmtree(unpacked, ignore_errors=True)
    assert ran.returncode == 0, ran.stderr[-4000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert len(found["headrace"]) == 2, "both workers ran some of it"
    assert all("/headrace_packages/headrace/__init__.py" in path for path in found["headrace"])
    assert (found["rows"], found["values"]) == (100, sorted(values))
    assert found["rows_of_tasks"] == 100, "figures come from both workers"
