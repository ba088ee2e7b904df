# SPDX-License-Identifier: Apache-2.0
"""Spark's Python processes under `spark_session`, in drivers of their own: a process has one session."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os
from headrace.spark import spark_session

def where(batches):
    import py4j, pyarrow, pyspark

    list(batches)
    yield pyarrow.RecordBatch.from_pydict({"path": [each.__spec__.cached for each in (pyspark, py4j)]})

spark = spark_session("local[1]")
assert "SPARK_HOME" not in os.environ
for row in spark.range(1).mapInArrow(where, "path STRING").collect():
    print(row.path, os.path.exists(row.path))
"""


def run(tmp_path: Path, **environment: str) -> list[str]:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path), **environment},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def test_workers_of_a_local_session_use_bytecode(java_home: Path, tmp_path: Path) -> None:
    found = run(tmp_path, JAVA_HOME=str(java_home))
    assert len(found) == 2
    for line in found:
        assert line.startswith(str(tmp_path / "headrace" / "spark-home-")), line
        assert line.endswith(" True"), line


def test_without_a_cache_they_run_as_spark_starts_them(java_home: Path, tmp_path: Path) -> None:
    (tmp_path / "headrace").touch()  # no folder can be made there
    found = run(tmp_path, JAVA_HOME=str(java_home))
    assert [line.endswith(" False") for line in found] == [True, True]
