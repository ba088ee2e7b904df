# SPDX-License-Identifier: Apache-2.0
"""Selects the columns of an Arrow batch for the parts of a record, and checks their types.

Columns named key, value, headers, timestamp and partition are taken by name, as Spark's Kafka sinks do.
Read next: ../values/serializers.py, encode.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
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

_PARTS = ("key", "value", "headers", "timestamp", "partition")
_OTHERS_OF_READ = ("topic", "offset", "timestamp_type")
"""Columns of `read` that a new record cannot have."""


class ByName(Enum):
    """The default of an argument that names a column: the column of that name, if there is one."""

    BY_NAME = "by name"

    def __repr__(self) -> str:
        return "<by name>"


BY_NAME = ByName.BY_NAME


def columns_by_name(
    schema: Any,
    *,
    key: ColumnChoice | ByName,
    value: ColumnChoice | ByName,
    headers: str | ByName | None,
    timestamp: str | ByName | None,
    partition: str | ByName | None,
    key_format: Format | None,
    value_format: Format | None,
) -> WriteColumns:
    """Arguments of `write` as columns of this schema. ClientError when a column would be lost unasked."""

    def named(part: str) -> str | None:
        return part if part in schema.names else None

    found = WriteColumns(
        key=named("key") if key is BY_NAME else key,
        value=None if value is BY_NAME else value,
        headers=named("headers") if headers is BY_NAME else headers,
        timestamp=named("timestamp") if timestamp is BY_NAME else timestamp,
        partition=named("partition") if partition is BY_NAME else partition,
        key_format=key_format,
        value_format=value_format,
    )
    if value is not BY_NAME:
        return found
    if "value" not in schema.names:
        return replace(found, value=_fields_of_value(schema, found))
    if all(each is BY_NAME or each is None for each in (key, headers, timestamp, partition)):
        _check_none_is_lost(schema)
    return replace(found, value="value")


def _fields_of_value(schema: Any, others: WriteColumns) -> list[str]:
    """All columns but those that are parts of the record by their name."""
    parts = {part for part in _PARTS if getattr(others, part) == part}
    fields = [name for name in schema.names if name not in parts]
    if not fields:
        raise ClientError(
            "data has no column for the value of records",
            next_step="name one with value=, or give value=None to write tombstones",
        )
    return fields


def _check_none_is_lost(schema: Any) -> None:
    lost = [name for name in schema.names if name not in (*_PARTS, *_OTHERS_OF_READ)]
    if lost:
        raise ClientError(
            f"the column 'value' would be written without {', '.join(map(repr, lost))}",
            next_step='give value="value" if that is meant, value=[…] to make one object of several columns, '
            f"or key={lost[0]!r}",
        )


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
        rules: tuple[tuple[str, str | None, Callable[[Any], bool], str], ...] = (
            ("headers", self.headers, _is_headers, "list<struct<key: string, value: binary>>"),
            ("timestamp", self.timestamp, _is_time, "timestamp or int64 (milliseconds)"),
            ("partition", self.partition, pa.types.is_integer, "an integer"),
        )
        for part, name, fits, wanted in rules:
            if name is None:
                continue
            if name not in schema.names:
                raise no_such_column(name, schema)
            kind = schema.field(name).type
            if not fits(kind.value_type if pa.types.is_dictionary(kind) else kind):
                raise ClientError(
                    f"column {name!r} is {kind}, but the {part} of records must be {wanted}",
                    next_step=f"cast it before writing, or give {part}=None",
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


def _is_time(kind: Any) -> bool:
    return pa.types.is_timestamp(kind) or pa.types.is_null(kind) or bool(kind == pa.int64())


def _is_headers(kind: Any) -> bool:
    """Also a column without any header, whose type says nothing."""
    if pa.types.is_null(kind):
        return True
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return False
    if pa.types.is_null(kind.value_type):
        return True
    if not pa.types.is_struct(kind.value_type):
        return False
    names = [field.name for field in kind.value_type]
    return names == ["key", "value"] and all(is_bytes_like(field.type) for field in kind.value_type)


def _headers_column(column: Any, name: str) -> Any:
    if pa.types.is_null(column.type) or pa.types.is_null(column.type.value_type):
        return pa.array([[]] * len(column), HEADERS)
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
