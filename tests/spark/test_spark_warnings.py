# SPDX-License-Identifier: Apache-2.0
"""PySpark and pandas as the extra [spark] has them: no warning, neither in the driver nor in its workers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.spark.spark_lab import TIMEOUT_S, Broker

SHOWN_BY_DEFAULT = "error,ignore::ResourceWarning"
"""PySpark leaves sockets to the garbage collector, of which Python says nothing by default."""

PROGRAM = """
import sys

import pandas

from headrace.spark import spark_session

spark = spark_session("local[1]", settings={"spark.log.level": "WARN"})
bootstrap, topic = sys.argv[1:]
frame = spark.createDataFrame(pandas.DataFrame({"key": ["a"], "value": ["1"]}))
frame.write.format("headrace").options(bootstrap=bootstrap, topic=topic).mode("append").save()
rows = spark.read.format("headrace").options(bootstrap=bootstrap, subscribe=topic).load()
print("rows:", rows.count(), len(rows.toPandas()), rows.toArrow().num_rows)


def double(frames):
    for each in frames:
        yield pandas.concat([each, each])


print("doubled:", rows.select("value").mapInPandas(double, "value BINARY").count())
spark.stop()
"""


def test_a_session_a_read_and_frames_of_pandas(
    broker: Broker, java_home: Path, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(1)
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    ran = subprocess.run(
        [sys.executable, str(script), broker.bootstrap, topic],
        env={"PATH": os.defpath, "JAVA_HOME": str(java_home), "PYTHONWARNINGS": SHOWN_BY_DEFAULT},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ran.stdout.split("\n")[:2] == ["rows: 1 1 1", "doubled: 2"], ran.stderr[-3000:]
    assert "Warning:" not in ran.stderr
