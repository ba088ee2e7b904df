# SPDX-License-Identifier: Apache-2.0
"""Options and columns of the Delta sink: what is taken, and how what is not is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.client.errors import ClientError
from pyspark_headrace_delta.options import table_settings
from pyspark_headrace_delta.schema import new_columns, required_columns, table_schema


def schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind, nullable=False) for name, kind in columns.items()])


def test_options_are_parsed() -> None:
    settings = table_settings(
        {
            "path": "file:///data/orders",
            "partitionby": "day, country",
            "mergeschema": "TRUE",
            "targetfilesize": "64 MiB",
            "txnappid": "orders",
            "checkpointlocation": "/elsewhere",
        },
        streaming=True,
    )
    assert settings.path == Path("/data/orders")
    assert settings.partition_by == ("day", "country")
    assert settings.merge_schema
    assert settings.target_file_size == 64 << 20
    assert settings.txn_app_id == "orders"


@pytest.mark.parametrize(
    ("streaming", "options", "said"),
    [
        (True, {"txnVersion": "1"}, "'txnVersion' has no meaning in a stream"),
        (False, {"txnVersion": "1"}, "only work together in a batch write; set both"),
        (False, {"txnAppId": "x", "txnVersion": "-1"}, "'txnVersion' cannot be '-1'"),
        (True, {"txnAppId": " "}, "'txnAppId' cannot be ' '; set a name"),
        (True, {"partitionBy": " , "}, "'partitionBy' cannot be ' , '; name at least one"),
        (True, {"targetFileSize": "0"}, "'targetFileSize' cannot be '0'; write it like 128m"),
        (True, {"mergeSchema": "yes"}, "'mergeSchema' cannot be 'yes'; use true or false"),
        (True, {"compression": "zstd"}, "there is no option 'compression'"),
        (True, {"path": " "}, "no table is set"),
    ],
)
def test_options_that_cannot_be(streaming: bool, options: dict[str, str], said: str) -> None:
    with pytest.raises(ClientError, match=said):
        table_settings({"path": "/data", **options}, streaming=streaming)


def test_tables_allow_nulls_everywhere_and_note_nothing() -> None:
    inner = StructType([StructField("x", LongType(), nullable=False, metadata={"comment": "no"})])
    rows = schema(a=ArrayType(inner, containsNull=False), m=MapType(StringType(), DecimalType(5, 2), False))
    document = table_schema(rows, [])
    fields = document["fields"]
    assert fields[0]["nullable"]
    assert fields[0]["type"]["containsNull"]
    assert fields[0]["type"]["elementType"]["fields"][0] == {
        "name": "x",
        "type": "long",
        "nullable": True,
        "metadata": {},
    }
    assert fields[1]["type"]["valueContainsNull"]
    assert required_columns(document) == []


@pytest.mark.parametrize(
    ("columns", "partition_by", "said"),
    [
        ({"a": LongType(), "A": LongType()}, (), "there are two columns 'a'"),
        ({"a": DayTimeIntervalType()}, (), "'a' is interval day to second, which Delta does not support"),
        ({"a": schema(b=schema(c=DayTimeIntervalType()))}, (), r"column 'a\.b\.c' is interval"),
        ({"a": schema(**{"b c": LongType()})}, (), r"cannot be named 'a\.b c'"),
        ({"a": LongType()}, ("b",), "no column 'b' to partition by, only a"),
        ({"a": TimestampType(), "b": LongType()}, ("a",), r"by 'a', which is timestamp; .*CAST"),
        ({"a": ArrayType(LongType()), "b": LongType()}, ("a",), "by 'a', which is array<long>"),
        ({"a": LongType()}, ("a",), "partitioned by all of its columns"),
    ],
)
def test_columns_that_no_table_holds(
    columns: dict[str, Any], partition_by: tuple[str, ...], said: str
) -> None:
    with pytest.raises(ClientError, match=said):
        table_schema(schema(**columns), partition_by)


def test_a_field_that_is_new_within_a_column_is_another_type() -> None:
    table = table_schema(schema(a=schema(x=LongType())), [])
    rows = table_schema(schema(a=schema(x=LongType(), y=StringType())), [])
    with pytest.raises(ClientError, match=r"'a' is struct<x:long,y:string>, but struct<x:long> in the table"):
        new_columns(table, rows)
