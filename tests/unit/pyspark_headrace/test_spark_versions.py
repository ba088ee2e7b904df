# SPDX-License-Identifier: Apache-2.0
"""Older versions of PySpark: batches work, streams are refused with a message (docs/decisions/0031)."""

from __future__ import annotations

import pyspark
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from headrace.client.errors import ClientError
from pyspark_headrace.source import HeadraceSource

OPTIONS = {"bootstrap": "127.0.0.1:1", "subscribe": "orders"}
SCHEMA = StructType([StructField("value", BinaryType())])
REFUSAL = r"as a stream needs PySpark 4\.2 or later, and this is 4\.1\.1; pip install -U pyspark"


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> HeadraceSource:
    monkeypatch.setattr(pyspark, "__version__", "4.1.1")
    return HeadraceSource(OPTIONS)


def test_streams_are_refused(source: HeadraceSource) -> None:
    with pytest.raises(ClientError, match=f"^reading {REFUSAL}"):
        source.streamReader(SCHEMA).initialOffset()
    with pytest.raises(ClientError, match=f"^writing {REFUSAL}"):
        source.streamWriter(SCHEMA, overwrite=False)


def test_a_topic_without_records_has_no_partitions_to_read(source: HeadraceSource) -> None:
    """Spark 4.0 and 4.1 then pass None."""
    assert list(source.reader(SCHEMA).read(None)) == []
