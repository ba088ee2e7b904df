# SPDX-License-Identifier: Apache-2.0
"""A plain Spark session in a virtual environment that is not activated: `import headrace.spark` is enough."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from headrace.java import find_java
from tests.spark.spark_lab import TIMEOUT_S, Broker

PROGRAM = """
import sys

import headrace.spark
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.read.format("headrace").options(bootstrap=sys.argv[1], subscribe=sys.argv[2]).load()
print("rows:", rows.count())
"""


def test_workers_find_the_format(broker: Broker, new_topic: Callable[..., str], tmp_path: Path) -> None:
    topic = new_topic(1)
    broker.fill(topic, 0, 20)
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    ran = subprocess.run(
        [sys.executable, str(script), broker.bootstrap, topic],
        env={"PATH": os.defpath, "JAVA_HOME": str(find_java()), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert "rows: 20" in ran.stdout, ran.stderr[-3000:]
