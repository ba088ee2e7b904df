"""Arrow batches of the client as Spark takes them: exactly its types, no copy of keys and values.

Read next: task.py.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pyarrow as pa

from pyspark_headrace.columns import Projection

_ARROW = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(
        pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
    ),
}


class ArrowColumns:
    """Makes the columns of one projection."""

    def __init__(self, projection: Projection) -> None:
        self._names = projection.names
        self._text = projection.text
        self.wanted = ["timestamp_type" if name == "timestampType" else name for name in self._names]
        """What the client is asked for."""
        self._schema = pa.schema(
            [(name, pa.string() if name in self._text else _ARROW[name]) for name in self._names]
        )

    def format_of(self, name: str) -> Literal["raw", "string"]:
        return "string" if name in self._text else "raw"

    def to_spark(self, batch: Any) -> Any:
        arrays = [
            self._column(name, batch.column(client))
            for name, client in zip(self._names, self.wanted, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, name: str, column: Any) -> Any:
        if name == "headers":
            return _headers(column)
        if name == "topic":
            return column.dictionary_decode()
        return column if name in self._text else column.cast(_ARROW[name])


def _headers(column: Any) -> Any:
    """Null where a record has none, as the official connector gives it."""
    offsets = column.offsets.to_numpy().copy()  # of a slice, Arrow takes no nulls beside them
    none = pa.array(np.diff(offsets) == 0)
    pairs = column.values.cast(_ARROW["headers"].value_type)
    return pa.ListArray.from_arrays(pa.array(offsets), pairs, type=_ARROW["headers"], mask=none)
