# SPDX-License-Identifier: Apache-2.0
"""Pipelines on a standalone cluster of two workers: with this environment, and with a Python without any.

The second needs a pack, which takes a minute to make and to unpack: `make soak PART=spark_cluster`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from headrace.pipelines.spark_session.pack import write_pack
from tests.spark.spark_cluster import (
    MASTER_HOST,
    SHORT_LIVED,
    bare_environment,
    bare_python,
    standalone_cluster,
)
from tests.spark.spark_lab import Broker

PROGRAM = Path(__file__).with_name("cluster_program.py")
TIMEOUT_S = 200


NewTopicOf = Callable[..., str]


def test_two_workers_share_source_and_sinks(
    broker: Broker, new_topic: NewTopicOf, java_home: Path, tmp_path: Path
) -> None:
    topics = [new_topic(2), new_topic(2, "-copies")]
    values = broker.fill(topics[0], 0, 100)
    environment = {**os.environ, **SHORT_LIVED, "PYSPARK_PYTHON": sys.executable}
    hosts = [MASTER_HOST] * 2
    with standalone_cluster(tmp_path, java_home, hosts=hosts, environment=environment) as master:
        asked = {
            "master": master,
            "python": sys.executable,
            "bootstrap": broker.bootstrap,
            "topics": topics,
            "folder": str(tmp_path),
        }
        found = drive(asked, {**environment, "JAVA_HOME": str(java_home)})
    workers = {Path(folder).relative_to(tmp_path).parts[0] for folder, _ in found["executors"]}
    assert workers == {"worker-0", "worker-1"}, "both ran some of it"
    assert (found["rows"], found["values"]) == (100, sorted(values))
    assert found["rows_of_tasks"] == 100, "figures come from both workers"


@pytest.mark.soak
def test_a_pack_brings_source_and_sinks_to_a_cluster(
    broker: Broker, new_topic: NewTopicOf, java_home: Path, tmp_path: Path
) -> None:
    """The driver's path has a package that cannot be imported: Spark then gives up looking for formats."""
    topics = [new_topic(2), new_topic(2, "-copies")]
    values = broker.fill(topics[0], 0, 100)
    broken = tmp_path / "broken/pyspark_broken"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise RuntimeError('not for use')\n")
    pack = write_pack(tmp_path / "pack.zip", level=0)
    python = bare_python(tmp_path / "bare")
    asked = {
        "pack": str(pack.path),
        "python": str(python),
        "bootstrap": broker.bootstrap,
        "topics": topics,
        "folder": str(tmp_path),
    }
    environment = {**os.environ, "JAVA_HOME": str(java_home), "PYTHONPATH": str(broken.parent)}
    environment.pop("PYSPARK_PYTHON", None)
    hosts = [MASTER_HOST] * 2
    try:
        with standalone_cluster(tmp_path, java_home, hosts=hosts, environment=bare_environment()) as master:
            found = drive({**asked, "master": master}, environment)
    finally:
        pack.path.unlink()  # pytest keeps folders of several runs, and these hold the pack three times
        for unpacked in tmp_path.glob("worker-*"):
            shutil.rmtree(unpacked, ignore_errors=True)
    assert len(found["executors"]) == 2, "both workers ran some of it"
    assert all("/headrace_packages/headrace/__init__.py" in path for _, path in found["executors"])
    assert (found["rows"], found["values"]) == (100, sorted(values))
    assert found["rows_of_tasks"] == 100, "figures come from both workers"


def drive(asked: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """What the driver's program found."""
    ran = subprocess.run(
        [sys.executable, PROGRAM, json.dumps(asked)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=environment,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found
