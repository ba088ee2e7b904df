"""Which columns of an Arrow batch are written as what: picks them, checks their types, gives them one form.

Knows no bytes of the protocol. Read next: encode.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.client.arrow.types import HEADERS, TIMESTAMP, RowColumns
from headrace.client.errors import ClientError

_BYTES_LIKE = (
    *(pa.types.is_binary, pa.types.is_string, pa.types.is_large_binary, pa.types.is_large_string),
    *(pa.types.is_binary_view, pa.types.is_string_view, pa.types.is_fixed_size_binary),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteColumns:
    """Names of columns; None: records have no such part. Without `timestamp`, the time of writing counts."""

    key: str | None = None
    value: str | None = "value"
    headers: str | None = None
    timestamp: str | None = None
    partition: str | None = None

    def check(self, schema: Any) -> None:
        """Raises before anything is sent when a column is missing or cannot be written."""
        rules: tuple[tuple[str | None, Callable[[Any], bool], str], ...] = (
            (self.key, _is_bytes_like, "binary or string"),
            (self.value, _is_bytes_like, "binary or string"),
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
                raise ClientError(
                    f"the table has no column {name!r}", next_step=f"it has {', '.join(schema.names)}"
                )
            kind = schema.field(name).type
            if not fits(_plain(kind)):
                raise ClientError(
                    f"column {name!r} is {kind}, but must be {wanted}", next_step="cast it before writing"
                )

    def pick(self, batch: Any, now_ms: int) -> RowColumns:
        return RowColumns(
            rows=batch.num_rows,
            key=_bytes_column(batch, self.key),
            value=_bytes_column(batch, self.value),
            headers=None
            if self.headers is None
            else _headers_column(batch.column(self.headers), self.headers),
            timestamps=None
            if self.timestamp is None
            else _milliseconds(batch.column(self.timestamp), now_ms),
            timestamp=now_ms,
        )


def _plain(kind: Any) -> Any:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_bytes_like(kind: Any) -> bool:
    return pa.types.is_null(kind) or any(test(kind) for test in _BYTES_LIKE)


def _is_headers(kind: Any) -> bool:
    if not pa.types.is_list(kind) or not pa.types.is_struct(kind.value_type):
        return False
    names = [field.name for field in kind.value_type]
    return names == ["key", "value"] and all(_is_bytes_like(field.type) for field in kind.value_type)


def _bytes_column(batch: Any, name: str | None) -> Any:
    if name is None:
        return None
    column = batch.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column if column.type == pa.binary() else column.cast(pa.binary())


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
