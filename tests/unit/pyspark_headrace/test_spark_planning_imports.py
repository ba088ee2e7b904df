"""Spark starts a process for every step of planning: what it imports there is part of every cold start."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
from pyspark_headrace import DefaultSource

DefaultSource({"subscribe": "orders"}).schema()
print(*sorted({"pyarrow", "numpy", "uvloop", "confluent_kafka"} & set(sys.modules)))
"""


def test_planning_loads_neither_arrow_nor_the_client() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.split() == []
