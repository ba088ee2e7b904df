# SPDX-License-Identifier: Apache-2.0
"""Converts the client's Arrow batches to Spark's exact types, without copying raw keys and values.

Read next: task.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headrace.client.arrow.values.formats import Format, Json
from pyspark_headrace.columns import Projection


class ArrowColumns:
    """Builds the columns of one projection."""

    def __init__(self, projection: Projection) -> None:
        self._formats = projection.formats
        self._schema = arrow_schema(projection.schema)
        self._wanted = {
            "timestamp_type" if field.name == "timestampType" else field.name: field.type
            for field in self._schema
        }

    @property
    def wanted(self) -> list[str]:
        """The columns to request from the client."""
        return list(self._wanted)

    def format_of(self, name: str) -> Format:
        """The format in which the client decodes a key or a value."""
        column_format = self._formats.get(name)
        if column_format is None:
            return "raw"
        if column_format.name == "json":
            return Json(schema=pa.schema(list(self._wanted[name])))
        if column_format.name == "avro":
            from pyspark_headrace.avro_types import avro_of  # heavy; only Avro needs it

            return avro_of(name, column_format.schema, column_format.registry)
        word: Any = column_format.name
        return word  # type: ignore[no-any-return]

    def to_spark(self, batch: Any) -> Any:
        arrays = [_column(batch.column(name), name, kind) for name, kind in self._wanted.items()]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def arrow_schema(schema: StructType) -> Any:
    """The schema that Spark compares with. Before 4.2 there is no time zone argument: always UTC."""
    try:
        return to_arrow_schema(schema, timezone="UTC")
    except TypeError:
        return to_arrow_schema(schema)


def _column(column: Any, name: str, kind: Any) -> Any:
    if name == "headers":
        return _headers(column, kind)
    if name == "topic":
        return column.dictionary_decode()
    return column if column.type == kind else column.cast(kind)


def _headers(column: Any, kind: Any) -> Any:
    """Null for records without headers, as in Spark's Kafka connector."""
    offsets = column.offsets.to_numpy().copy()  # Arrow does not accept a null mask for a slice
    none = pa.array(np.diff(offsets) == 0)
    pairs = column.values.cast(kind.value_type)
    return pa.ListArray.from_arrays(pa.array(offsets), pairs, type=kind, mask=none)
