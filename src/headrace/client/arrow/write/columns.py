"""Selects the columns of an Arrow batch for the parts of a record, and checks their types.

Read next: ../values/serializers.py, encode.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.client.arrow.kernels.types import HEADERS, TIMESTAMP, RowColumns
from headrace.client.arrow.values.formats import Format
from headrace.client.arrow.values.serializers import (
    ColumnChoice,
    Write,
    bytes_writer,
    is_bytes_like,
    no_such_column,
)
from headrace.client.errors import ClientError


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteColumns:
    """Names of columns; None: records have no such part. Without `timestamp`, the time of writing counts."""

    key: ColumnChoice = None
    value: ColumnChoice = "value"
    key_format: Format | None = None
    value_format: Format | None = None
    headers: str | None = None
    timestamp: str | None = None
    partition: str | None = None

    def bound(self, schema: Any, topic: str) -> BoundColumns:
        """For rows of this schema. Raises before anything is sent when a column cannot be written."""
        self._check(schema)
        return BoundColumns(
            key=bytes_writer("key", self.key, self.key_format, schema, topic),
            value=bytes_writer("value", self.value, self.value_format, schema, topic),
            headers=self.headers,
            timestamp=self.timestamp,
        )

    def _check(self, schema: Any) -> None:
        rules: tuple[tuple[str | None, Callable[[Any], bool], str], ...] = (
            (self.headers, _is_headers, "list<struct<key: string, value: binary>>"),
            (
                self.timestamp,
                lambda kind: pa.types.is_timestamp(kind) or kind == pa.int64(),
                "timestamp or int64",
            ),
            (self.partition, pa.types.is_integer, "an integer"),
        )
        for name, fits, wanted in rules:
            if name is None:
                continue
            if name not in schema.names:
                raise no_such_column(name, schema)
            kind = schema.field(name).type
            if not fits(kind.value_type if pa.types.is_dictionary(kind) else kind):
                raise ClientError(
                    f"column {name!r} is {kind}, but must be {wanted}", next_step="cast it before writing"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundColumns:
    """Makes keys and values from the batches of one schema."""

    key: Write | None
    value: Write | None
    headers: str | None
    timestamp: str | None

    def pick(self, batch: Any, now_ms: int) -> RowColumns:
        """RowRefused names a row that cannot be written."""
        return RowColumns(
            rows=batch.num_rows,
            key=None if self.key is None else self.key(batch),
            value=None if self.value is None else self.value(batch),
            headers=None
            if self.headers is None
            else _headers_column(batch.column(self.headers), self.headers),
            timestamps=None
            if self.timestamp is None
            else _milliseconds(batch.column(self.timestamp), now_ms),
            timestamp=now_ms,
        )


def _is_headers(kind: Any) -> bool:
    if not pa.types.is_list(kind) or not pa.types.is_struct(kind.value_type):
        return False
    names = [field.name for field in kind.value_type]
    return names == ["key", "value"] and all(is_bytes_like(field.type) for field in kind.value_type)


def _headers_column(column: Any, name: str) -> Any:
    if column.null_count:
        column = pa.array([headers or [] for headers in column.to_pylist()], column.type)
    structs = column.flatten()
    if structs.null_count or structs.field("key").null_count:
        raise ClientError(f"a header in column {name!r} is null or has no key")
    return column.cast(HEADERS)


def _milliseconds(column: Any, now_ms: int) -> Any:
    if pa.types.is_timestamp(column.type):
        unit = pa.timestamp("ms", tz=column.type.tz)
        column = (column if column.type == TIMESTAMP else column.cast(unit, safe=False)).cast(pa.int64())
    if column.null_count:
        column = pc.fill_null(column, now_ms)
    return np.ascontiguousarray(column.to_numpy(zero_copy_only=False), np.int64)
