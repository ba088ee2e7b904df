"""Arrow batches of the client as Spark takes them: exactly its types, no copy of raw keys and values.

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
    """Makes the columns of one projection."""

    def __init__(self, projection: Projection) -> None:
        self._forms = projection.forms
        self._schema = arrow_schema(projection.schema)
        self._wanted = {
            "timestamp_type" if field.name == "timestampType" else field.name: field.type
            for field in self._schema
        }

    @property
    def wanted(self) -> list[str]:
        """What the client is asked for."""
        return list(self._wanted)

    def format_of(self, name: str) -> Format:
        """How the client is to read a key or a value."""
        form = self._forms.get(name)
        if form is None:
            return "raw"
        if form.word == "json":
            return Json(schema=pa.schema(list(self._wanted[name])))
        if form.word == "avro":
            from pyspark_headrace.avro_types import avro_of  # loads much that only Avro needs

            return avro_of(name, form)
        word: Any = form.word
        return word  # type: ignore[no-any-return]

    def to_spark(self, batch: Any) -> Any:
        arrays = [_column(batch.column(name), name, kind) for name, kind in self._wanted.items()]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def arrow_schema(schema: StructType) -> Any:
    """As Spark itself makes it: it compares. Before 4.2 the time zone was always UTC, and not asked for."""
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
    """Null where a record has none, as the official connector gives it."""
    offsets = column.offsets.to_numpy().copy()  # of a slice, Arrow takes no nulls beside them
    none = pa.array(np.diff(offsets) == 0)
    pairs = column.values.cast(kind.value_type)
    return pa.ListArray.from_arrays(pa.array(offsets), pairs, type=kind, mask=none)
