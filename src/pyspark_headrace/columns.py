# SPDX-License-Identifier: Apache-2.0
"""The columns of a topic in Spark: names and types of Spark's own Kafka connector.

Does not import Arrow, so that planning starts fast. Read next: reading/arrow_columns.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.client.errors import ClientError

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
COLUMNS: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS,
}
TYPED = ("key", "value")
"""Columns that can be decoded to other types than bytes."""
_TYPES = {
    "raw": "binary",
    "string": "string",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "float32": "float",
    "float64": "double",
}
FORMATS = (*_TYPES, "json", "avro")


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFormat:
    """How a key or a value is decoded. `schema`: fields of JSON like `id BIGINT, name STRING`, or Avro's."""

    name: str | None = None
    """None: bytes, or a string when the schema of the read has one."""
    schema: str | None = None
    registry: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """The columns of one read, in Spark's order, and the formats of keys and values."""

    schema: StructType
    formats: Mapping[str, ColumnFormat]


def default_schema(
    columns: Sequence[str] | None, *, include_headers: bool, formats: Mapping[str, ColumnFormat] | None = None
) -> str:
    """The schema as Spark DDL; like Spark's Kafka connector, without headers unless requested."""
    names = list(columns) if columns is not None else [name for name in COLUMNS if name != "headers"]
    if include_headers and "headers" not in names:
        names.append("headers")
    return ", ".join(f"{name} {_type_ddl(_known_column(name), (formats or {}).get(name))}" for name in names)


def projection(schema: StructType, formats: Mapping[str, ColumnFormat] | None = None) -> Projection:
    """Check a schema against the columns of a topic; ClientError names the column that does not fit."""
    resolved = {}
    for wanted in schema.fields:
        column_format = (formats or {}).get(wanted.name, ColumnFormat())
        if _known_column(wanted.name) in TYPED:
            resolved[wanted.name] = _resolve_format(wanted, column_format)
        else:
            _check_type(wanted, COLUMNS[wanted.name].simpleString())
    names = schema.fieldNames()
    if len(set(names)) < len(names):
        raise ClientError(f"a column is named twice: {', '.join(names)}")
    return Projection(schema=schema, formats=resolved)


def _type_ddl(name: str, column_format: ColumnFormat | None) -> str:
    if column_format is None or column_format.name is None:
        return COLUMNS[name].simpleString()
    if column_format.name == "json":
        if column_format.schema is None:
            raise ClientError(
                f"{name!r} is read as JSON, but its fields are not set",
                next_step=f'add .option("{name}Schema", "id BIGINT, name STRING"), or a schema to the read',
            )
        return f"struct<{column_format.schema}>"
    if column_format.name == "avro":
        from pyspark_headrace.avro_types import spark_type

        return spark_type(name, column_format.schema, column_format.registry)
    return _TYPES[column_format.name]


def _resolve_format(wanted: StructField, column_format: ColumnFormat) -> ColumnFormat:
    """The format with its name filled in and its type checked."""
    if column_format.name is None:
        name = "string" if isinstance(wanted.dataType, StringType) else "raw"
        _check_type(wanted, _TYPES[name], " or string")
        return ColumnFormat(name=name)
    if column_format.name == "json":
        if not isinstance(wanted.dataType, StructType):
            raise ClientError(f"column {wanted.name!r} is read as JSON, so its type must be a struct")
    else:
        _check_type(wanted, _type_ddl(wanted.name, column_format))
    return column_format


def _known_column(name: str) -> str:
    if name not in COLUMNS:
        raise ClientError(f"a topic has no column {name!r}", next_step=f"choose from {', '.join(COLUMNS)}")
    return name


def _check_type(wanted: StructField, expected: str, also: str = "") -> None:
    """Nullability is not compared."""
    if wanted.dataType.simpleString() != expected:
        raise ClientError(
            f"column {wanted.name!r} of the schema is {wanted.dataType.simpleString()}, "
            f"but a topic's is {expected}{also}",
            next_step="leave the schema out, or cast after reading",
        )
