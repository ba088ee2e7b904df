# SPDX-License-Identifier: Apache-2.0
"""Columns for Spark: exactly its Arrow types, and a clear word for a schema that a topic cannot give."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from headrace.client.arrow.kernels.types import FIELDS
from headrace.client.errors import ClientError
from pyspark_headrace.columns import COLUMNS, HEADERS, ColumnFormat, default_schema, projection
from pyspark_headrace.reading.arrow_columns import ArrowColumns
from pyspark_headrace.writing.columns import SinkColumns

ALL = StructType([StructField(name, kind) for name, kind in COLUMNS.items()])
ROWS = [
    {
        "key": b"k",
        "value": None,
        "headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
        "topic": "orders",
        "partition": 1,
        "offset": 7,
        "timestamp": 1_700_000_000_123,
        "timestamp_type": 1,
    },
    {
        "key": None,
        "value": b"v",
        "headers": [],
        "topic": "orders",
        "partition": 1,
        "offset": 8,
        "timestamp": None,
        "timestamp_type": 0,
    },
]


def batch_of(columns: list[str]) -> pa.RecordBatch:
    schema = pa.schema([field for name, field in FIELDS.items() if name in columns])
    return pa.RecordBatch.from_pylist([{name: row[name] for name in columns} for row in ROWS], schema)


@pytest.mark.parametrize("names", [list(COLUMNS), ["headers"], ["timestampType", "value"]])
def test_batches_are_of_the_types_that_spark_wants(names: list[str]) -> None:
    schema = StructType([StructField(name, COLUMNS[name]) for name in names])
    chosen = ArrowColumns(projection(schema))
    made = chosen.to_spark(batch_of(chosen.wanted))
    made.validate(full=True)
    assert made.schema.equals(to_arrow_schema(schema, timezone="UTC"))


def test_values_stay_what_they_are() -> None:
    chosen = ArrowColumns(projection(ALL))
    first, second = chosen.to_spark(batch_of(chosen.wanted)).to_pylist()
    assert first["headers"] == [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]
    assert second["headers"] is None
    assert (first["topic"], first["partition"], first["offset"], first["timestampType"]) == (
        "orders",
        1,
        7,
        1,
    )
    assert first["timestamp"].timestamp() == 1_700_000_000.123
    assert second["timestamp"] is None


def test_a_slice_keeps_its_own_headers() -> None:
    chosen = ArrowColumns(projection(StructType([StructField("headers", HEADERS)])))
    doubled = pa.Table.from_batches([batch_of(["headers"])] * 2).combine_chunks().to_batches()[0]
    assert chosen.to_spark(doubled.slice(1, 2)).to_pylist()[1]["headers"][0]["key"] == "a"


def test_headers_are_left_out_unless_asked_for() -> None:
    assert "headers" not in default_schema(None, include_headers=False)
    assert default_schema(["value"], include_headers=True) == (
        "value binary, headers array<struct<key:string,value:binary>>"
    )


def test_a_schema_may_ask_for_text() -> None:
    schema = StructType([StructField("value", StringType()), StructField("offset", LongType())])
    chosen = ArrowColumns(projection(schema))
    assert (chosen.format_of("value"), chosen.format_of("key")) == ("string", "raw")


def test_values_get_the_types_that_their_form_gives() -> None:
    avro = '{"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]}'
    formats = {
        "key": ColumnFormat(name="int64"),
        "value": ColumnFormat(name="json", schema="id BIGINT, tags ARRAY<STRING>"),
    }
    assert default_schema(["key", "value"], include_headers=False, formats=formats) == (
        "key bigint, value struct<id BIGINT, tags ARRAY<STRING>>"
    )
    formats = {"value": ColumnFormat(name="avro", schema=avro)}
    assert default_schema(["value"], include_headers=False, formats=formats) == "value struct<id:bigint>"


@pytest.mark.parametrize("word", ["json", "avro"])
def test_structured_values_need_their_fields(word: str) -> None:
    with pytest.raises(ClientError, match=r"(is|are) not set"):
        default_schema(["value"], include_headers=False, formats={"value": ColumnFormat(name=word)})
    value = StructType([StructField("value", StringType())])
    if word == "json":
        with pytest.raises(ClientError, match="read as JSON, so its type must be a struct"):
            projection(value, {"value": ColumnFormat(name=word)})


@pytest.mark.parametrize(
    ("field", "said"),
    [
        (StructField("price", LongType()), "no column 'price'; choose from key, value"),
        (
            StructField("offset", IntegerType()),
            "column 'offset' of the schema is int, but a topic's is bigint",
        ),
        (StructField("value", LongType()), "is bigint, but a topic's is binary or string"),
    ],
)
def test_a_schema_that_a_topic_cannot_give(field: StructField, said: str) -> None:
    with pytest.raises(ClientError, match=said):
        projection(StructType([field]))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ([("id", StringType())], "no column 'value' to write, only id"),
        ([("value", LongType())], r"column 'value' is bigint, but must be binary or string; .*CAST\(value"),
        (
            [("value", StringType()), ("partition", LongType())],
            "column 'partition' is bigint, but must be int",
        ),
        (
            [("value", StringType()), ("headers", StringType())],
            "column 'headers' is string, but must be array",
        ),
    ],
)
def test_rows_that_cannot_be_written_are_refused_at_planning(fields: list[object], said: str) -> None:
    schema = StructType([StructField(*field) for field in fields])  # type: ignore[misc]
    with pytest.raises(ClientError, match=said):
        SinkColumns.of(schema, topic_given=True)


def test_a_topic_is_named_by_option_or_column() -> None:
    value = StructField("value", StringType())
    with pytest.raises(ClientError, match="no topic is set"):
        SinkColumns.of(StructType([value]), topic_given=False)
    both = SinkColumns.of(StructType([value, StructField("topic", StringType())]), topic_given=False)
    assert both.names == {"value", "topic"}
