"""The columns of a topic as Spark sees them: names and types of Spark's own Kafka connector.

Knows no Arrow, so that planning loads none. Read next: arrow_columns.py.
"""

from __future__ import annotations

from collections.abc import Sequence
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
_AS_TEXT = ("key", "value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """The columns of one read, in Spark's order; `text` are those that are read as strings."""

    names: tuple[str, ...]
    text: frozenset[str] = frozenset()


def default_schema(columns: Sequence[str] | None, *, include_headers: bool) -> StructType:
    """As the official connector's: without headers unless they are asked for."""
    names = list(columns) if columns is not None else [name for name in COLUMNS if name != "headers"]
    if include_headers and "headers" not in names:
        names.append("headers")
    return StructType([StructField(name, COLUMNS[_proper(name)]) for name in names])


def projection(schema: StructType) -> Projection:
    """Of a schema that the user gave, or ours. ClientError names the column that a topic cannot give."""
    for wanted in schema.fields:
        proper = COLUMNS[_proper(wanted.name)]
        as_text = wanted.name in _AS_TEXT and isinstance(wanted.dataType, StringType)
        if not as_text and not _same(wanted.dataType, proper):
            also = " or string" if wanted.name in _AS_TEXT else ""
            raise ClientError(
                f"column {wanted.name!r} of the schema is {wanted.dataType.simpleString()}, "
                f"but a topic's is {proper.simpleString()}{also}",
                next_step="leave the schema out, or cast after reading",
            )
    names = tuple(schema.fieldNames())
    if len(set(names)) < len(names):
        raise ClientError(f"a column is named twice: {', '.join(names)}")
    text = {
        each.name for each in schema.fields if each.name in _AS_TEXT and isinstance(each.dataType, StringType)
    }
    return Projection(names=names, text=frozenset(text))


def _proper(name: str) -> str:
    if name not in COLUMNS:
        raise ClientError(f"a topic has no column {name!r}", next_step=f"choose from {', '.join(COLUMNS)}")
    return name


def _same(given: DataType, proper: DataType) -> bool:
    """Whether a column may be null does not matter."""
    return given.simpleString() == proper.simpleString()
