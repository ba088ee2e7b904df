"""The columns of a topic as Spark sees them: names and types of Spark's own Kafka connector.

Knows no Arrow, so that planning loads none. Read next: arrow_columns.py.
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
"""Columns that may be read as something else than bytes."""
_WORDS = {
    "raw": "binary",
    "string": "string",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "float32": "float",
    "float64": "double",
}
FORMATS = (*_WORDS, "json", "avro")


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How a key or a value is read. `schema`: fields as in `id BIGINT, name STRING` of JSON, or Avro's."""

    word: str | None = None
    """None: bytes, or text where the schema of the read says so."""
    schema: str | None = None
    registry: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """The columns of one read, in Spark's order, and how keys and values are read."""

    schema: StructType
    forms: Mapping[str, Form]


def default_schema(
    columns: Sequence[str] | None, *, include_headers: bool, forms: Mapping[str, Form] | None = None
) -> str:
    """In Spark's own words. As the official connector's: without headers unless they are asked for."""
    names = list(columns) if columns is not None else [name for name in COLUMNS if name != "headers"]
    if include_headers and "headers" not in names:
        names.append("headers")
    return ", ".join(f"{name} {_type_in_words(_proper(name), (forms or {}).get(name))}" for name in names)


def projection(schema: StructType, forms: Mapping[str, Form] | None = None) -> Projection:
    """Of a schema that the user gave, or ours. ClientError names the column that a topic cannot give."""
    settled = {}
    for wanted in schema.fields:
        form = (forms or {}).get(wanted.name, Form())
        if _proper(wanted.name) in TYPED:
            settled[wanted.name] = _settled(wanted, form)
        else:
            _check_type(wanted, COLUMNS[wanted.name].simpleString())
    names = schema.fieldNames()
    if len(set(names)) < len(names):
        raise ClientError(f"a column is named twice: {', '.join(names)}")
    return Projection(schema=schema, forms=settled)


def _type_in_words(name: str, form: Form | None) -> str:
    if form is None or form.word is None:
        return COLUMNS[name].simpleString()
    if form.word == "json":
        if form.schema is None:
            raise ClientError(
                f"{name!r} is read as JSON, but its fields are not given",
                next_step=f'add .option("{name}Schema", "id BIGINT, name STRING"), or a schema to the read',
            )
        return f"struct<{form.schema}>"
    if form.word == "avro":
        from pyspark_headrace.avro_types import spark_type

        return spark_type(name, form)
    return _WORDS[form.word]


def _settled(wanted: StructField, form: Form) -> Form:
    """With a word, whatever decided on it."""
    if form.word is None:
        word = "string" if isinstance(wanted.dataType, StringType) else "raw"
        _check_type(wanted, _WORDS[word], " or string")
        return Form(word=word)
    if form.word == "json":
        if not isinstance(wanted.dataType, StructType):
            raise ClientError(f"column {wanted.name!r} is read as JSON, so its type must be a struct")
    else:
        _check_type(wanted, _type_in_words(wanted.name, form))
    return form


def _proper(name: str) -> str:
    if name not in COLUMNS:
        raise ClientError(f"a topic has no column {name!r}", next_step=f"choose from {', '.join(COLUMNS)}")
    return name


def _check_type(wanted: StructField, proper: str, also: str = "") -> None:
    """Whether a column may be null does not matter."""
    if wanted.dataType.simpleString() != proper:
        raise ClientError(
            f"column {wanted.name!r} of the schema is {wanted.dataType.simpleString()}, "
            f"but a topic's is {proper}{also}",
            next_step="leave the schema out, or cast after reading",
        )
