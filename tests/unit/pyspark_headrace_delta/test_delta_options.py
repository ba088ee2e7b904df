# SPDX-License-Identifier: Apache-2.0
"""Options and columns of the Delta sink: what is taken, and how what is not is said."""

from __future__ import annotations

import datetime
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
from pyspark_headrace_delta.options import table_settings, table_version
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


def test_a_table_in_an_object_store_keeps_its_options_to_itself() -> None:
    options = {"path": "s3a://lake/orders", "storage.aws_secret_access_key": "hush", "partitionBy": "day"}
    settings = table_settings(options, streaming=True)
    assert str(settings.path) == "s3://lake/orders"
    assert "hush" not in repr(settings)


@pytest.mark.parametrize(
    ("options", "version"),
    [
        ({}, None),
        ({"versionasof": "3"}, 3),
        ({"timestampasof": "2026-11-18"}, datetime.datetime(2026, 11, 18, tzinfo=datetime.UTC)),
        ({"timestampAsOf": "2026-11-18T12:00:00Z"}, datetime.datetime(2026, 11, 18, 12, tzinfo=datetime.UTC)),
    ],
)
def test_the_version_of_a_read(options: dict[str, str], version: int | datetime.datetime | None) -> None:
    assert table_version({"path": "/data", **options}).version == version


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"versionAsOf": "1", "timestampAsOf": "2026-11-18"},
            "'versionAsOf' and 'timestampAsOf' are both set",
        ),
        ({"versionAsOf": "-1"}, "'versionAsOf' cannot be '-1'"),
        ({"timestampAsOf": "noon"}, "'timestampAsOf' cannot be 'noon'; write it like"),
        ({"versionOf": "1"}, "there is no option 'versionOf'; did you mean 'versionAsOf'"),
        ({"storageConfg": "x"}, "did you mean 'storageConfig'"),
    ],
)
def test_reads_that_cannot_be(options: dict[str, str], said: str) -> None:
    with pytest.raises(ClientError, match=said):
        table_version({"path": "/data", **options})
