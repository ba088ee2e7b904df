# SPDX-License-Identifier: Apache-2.0
"""Derives an Avro schema from Arrow columns: nullable columns are unions with null.

Read next: schema.py, sources.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from headrace.client.errors import ClientError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_UNITS = {"s": "millis", "ms": "millis", "us": "micros", "ns": "nanos"}


def derived_schema(kind: Any, name: str) -> Any:
    """Of a column of this type; records within it are named after their place."""
    return _schema(kind, name, name)


def _schema(kind: Any, name: str, place: str) -> Any:
    if pa.types.is_dictionary(kind):
        return _schema(kind.value_type, name, place)
    if pa.types.is_struct(kind):
        return {"type": "record", "name": name, "fields": [_field(field, name, place) for field in kind]}
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        return {"type": "map", "values": _nullable(kind.item_field, f"{name}_value", place)}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return {"type": "array", "items": _nullable(kind.value_field, f"{name}_item", place)}
    if pa.types.is_fixed_size_binary(kind):
        return {"type": "fixed", "name": name, "size": kind.byte_width}
    if pa.types.is_decimal128(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pa.types.is_timestamp(kind):
        local = "local-" if kind.tz is None else ""
        return {"type": "long", "logicalType": f"{local}timestamp-{_UNITS[kind.unit]}"}
    for fits, schema in _LEAVES:
        if fits(kind):
            return schema
    raise ClientError(
        f"{place!r} of type {kind} cannot be written as Avro", next_step="cast it before writing"
    )


def _field(field: Any, name: str, place: str) -> dict[str, Any]:
    if not _NAME.fullmatch(field.name):
        raise ClientError(
            f"{field.name!r} is no name for an Avro field",
            next_step="rename it: letters, digits, _ are allowed",
        )
    schema = _nullable(field, f"{name}_{field.name}", f"{place}.{field.name}")
    default = {"default": None} if isinstance(schema, list) else {}
    return {"name": field.name, "type": schema, **default}


def _nullable(field: Any, name: str, place: str) -> Any:
    schema = _schema(field.type, name, place)
    return ["null", schema] if field.nullable and schema != "null" else schema


_LEAVES: tuple[tuple[Callable[[Any], bool], Any], ...] = (
    (pa.types.is_null, "null"),
    (pa.types.is_boolean, "boolean"),
    (lambda kind: pa.types.is_integer(kind) and (kind.bit_width < 32 or kind == pa.int32()), "int"),
    (lambda kind: pa.types.is_integer(kind) and kind != pa.uint64(), "long"),
    (lambda kind: pa.types.is_float32(kind) or pa.types.is_float16(kind), "float"),
    (pa.types.is_float64, "double"),
    (
        lambda kind: (
            pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
        ),
        "string",
    ),
    (
        lambda kind: (
            pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
        ),
        "bytes",
    ),
    (pa.types.is_date32, {"type": "int", "logicalType": "date"}),
    (lambda kind: kind == pa.time32("ms"), {"type": "int", "logicalType": "time-millis"}),
    (lambda kind: kind == pa.time64("us"), {"type": "long", "logicalType": "time-micros"}),
)
