# SPDX-License-Identifier: Apache-2.0
"""Spark starts a process for every step of planning: what it imports there is part of every cold start."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import sys
from pyspark_headrace import DefaultSource

DefaultSource({"bootstrap": "127.0.0.1:9092", "subscribe": "orders"}).schema()
print(*sorted({"pyarrow", "numpy", "uvloop", "confluent_kafka"} & set(sys.modules)))
"""


def test_planning_loads_neither_arrow_nor_the_client() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.split() == []


NEEDED_BY_NOBODY = """
import sys

import pytest
import {module}

print(*sorted({unwanted!r} & set(sys.modules)))
"""


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        (
            "pyspark_headrace.reading.stream_reader",
            {"pyspark_headrace.reading.task", "pyspark_headrace.reading.planner", "headrace.config"},
        ),
        (
            "pyspark_headrace.reading.batch_reader",
            {"pyspark_headrace.reading.task", "headrace.client.arrow.read.prefetch"},
        ),
        (
            "pyspark_headrace.reading.task",
            {"headrace.client.arrow.write.writer", "pyspark_headrace.avro_types", "numpy.typing"},
        ),
        ("pyspark_headrace.writing.stream_writer", {"pyarrow", "numpy"}),
        ("pyspark_headrace.writing.batch_writer", {"pyarrow", "numpy"}),
        ("pyspark_headrace.writing.task", {"numpy.typing"}),
    ],
)
def test_planning_does_not_load_what_decodes_nor_reading_what_writes(module: str, unwanted: set[str]) -> None:
    program = NEEDED_BY_NOBODY.format(module=module, unwanted=unwanted)
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.split() == []
