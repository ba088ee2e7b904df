# SPDX-License-Identifier: Apache-2.0
"""Every micro-batch is planned in a process of its own, which loads neither Arrow nor Delta."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from headrace.client.errors import ClientError
from pyspark_headrace_delta import source as source_module

SCRIPT = """
import sys
from pyspark.sql.types import LongType, StructField, StructType
from pyspark_headrace_delta import DefaultSource

source = DefaultSource({"path": "/nowhere", "partitionBy": "a"})
schema = StructType([StructField("a", LongType()), StructField("b", LongType())])
source.streamWriter(schema, overwrite=False)
print(*sorted({"pyarrow", "numpy", "deltalake"} & set(sys.modules)))
"""


def test_planning_a_stream_loads_neither_arrow_nor_delta() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.split() == []


def test_a_missing_library_is_an_error_before_the_first_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "find_spec", lambda _: None)
    source = source_module.DeltaSource({"path": "/nowhere"})
    with pytest.raises(ClientError, match=r"deltalake is not installed; pip install headrace\[spark\]"):
        source.streamWriter(StructType([StructField("a", LongType())]), overwrite=False)
