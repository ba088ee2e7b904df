# SPDX-License-Identifier: Apache-2.0
"""What `write` takes: every kind of frame becomes the same rows, and what is no table is refused in words."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from headrace.client.arrow.keywords import keywords_of
from headrace.client.arrow.write.columns import BY_NAME, WriteColumns, columns_by_name
from headrace.client.arrow.write.frames import check_order, rows_of
from headrace.client.arrow.write.write_request import WriteOptions, WriteRequest
from headrace.client.arrow.write.writer import write
from headrace.client.errors import ClientError
from headrace.client.topic_creation import check_create

ROWS = [{"id": 1, "name": "fig", "tags": ["a", "b"]}, {"id": 2, "name": None, "tags": []}]
TABLE = pa.Table.from_pylist(ROWS)

KINDS: dict[str, Callable[[], Any]] = {
    "table": lambda: TABLE,
    "batch": lambda: TABLE.to_batches()[0],
    "reader": TABLE.to_reader,
    "batches": lambda: iter(TABLE.to_batches(max_chunksize=1)),
    "tables": lambda: [TABLE.slice(0, 1), TABLE.slice(1, 1)],
    "pandas": lambda: pd.DataFrame(ROWS),
    "pandas of a filter": lambda: pd.DataFrame([{"id": 0}, *ROWS]).query("id > 0"),
    "pandas with an index": lambda: pd.DataFrame(ROWS).set_index("id"),
    "polars": lambda: pl.DataFrame(ROWS),
    "lazy polars": lambda: pl.LazyFrame(ROWS).filter(pl.col("id") > 0),
    "DuckDB": lambda: duckdb.from_arrow(TABLE),
    "dicts": lambda: ROWS,
    "dicts of a generator": lambda: (dict(row) for row in ROWS),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_frame_has_the_same_rows(kind: str) -> None:
    rows = rows_of(KINDS[kind]()).reader.read_all().select(["id", "name", "tags"]).to_pylist()
    assert rows == ROWS


def test_rows_with_different_fields_have_all_of_them() -> None:
    rows = rows_of([{"a": 1}, {"b": {"c": 2}}]).reader.read_all().to_pylist()
    assert rows == [{"a": 1, "b": None}, {"a": None, "b": {"c": 2}}]


@pytest.mark.parametrize("headers", [[("h", b"1"), ("z", None)], [{"key": "h", "value": b"1"}, {"key": "z"}]])
def test_headers_of_dicts_are_pairs_or_objects(headers: Any) -> None:
    (row,) = rows_of([{"headers": headers}]).reader.read_all().to_pylist()
    assert row["headers"] == [{"key": "h", "value": b"1"}, {"key": "z", "value": None}]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("text", "data is of type str, which is not a table; give a pandas, polars or PyArrow table"),
        (7, "data is of type int, which is not a table"),
        (None, "data is of type NoneType, which is not a table"),
        ({"a": 1}, r"data is one dict; give a list of rows: write\(\[row\], topic\)"),
        ([1, 2], "data holds something of type int, not rows"),
        ([{"a": 1}, 2], "row 1 is of type int, not a dict"),
        ([{1: "a"}], "1 is not the name of a column"),
        (
            [{"a": 1}, {"a": "x"}],
            "column 'a': Could not convert 'x' .*; give all values of a col",
        ),
        ([{"a": 1 << 70}], "column 'a': .*too large"),
        (pd.DataFrame({"a": [1, "x"]}), "data: Could not convert 'x' .* column a with type object"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "data: Duplicate column names"),
        (pa.table([[1], [2]], names=["a", "a"]), "data has several columns named 'a'; rename all but one"),
        (pd.Series([1]), r"data is of type pandas.Series, which has no columns; give .*data.to_frame\(\)"),
        (pl.Series([1]), "data is of type polars.Series, which has no columns"),
        ([], "data is empty; give an empty table with columns to write nothing"),
        (pd.DataFrame(), "data has neither columns nor rows"),
    ],
    ids=repr,
)
def test_what_is_no_table_is_refused(data: Any, said: str) -> None:
    with pytest.raises(ClientError, match=said):
        rows_of(data)


def test_tables_of_different_columns_are_not_one_write() -> None:
    with pytest.raises(ClientError, match="table 1 of data has other columns than the first"):
        rows_of([TABLE, pa.table({"a": [1]})]).reader.read_all()


@pytest.mark.parametrize(
    ("data", "topic", "said"),
    [
        ("orders", TABLE, r"the arguments are swapped: the data comes first, .*; write\(data, 'orders'\)"),
        (TABLE, None, "topic=None is not a topic's name"),
        (TABLE, "", "topic='' is not a topic's name"),
        (TABLE, 7, "topic=7 is not a topic's name"),
    ],
)
def test_swapped_and_missing_topics_are_named(data: Any, topic: Any, said: str) -> None:
    with pytest.raises(ClientError, match=said):
        check_order(data, topic)


@pytest.mark.parametrize("create", ["yes", 0, -1, 1.5])
def test_create_is_none_a_truth_or_a_number(create: Any) -> None:
    with pytest.raises(ClientError, match=f"create={create!r} is neither None, True, False nor a number"):
        check_create(create)


def chosen(names: str, **given: Any) -> WriteColumns:
    schema = pa.schema({name: pa.string() for name in names.split()})
    by_name = dict.fromkeys(("key", "value", "headers", "timestamp", "partition"), BY_NAME)
    return columns_by_name(schema, **{**by_name, "key_format": None, "value_format": None, **given})


def test_columns_are_taken_by_name() -> None:
    assert chosen("key value headers timestamp partition topic offset timestamp_type") == WriteColumns(
        key="key", value="value", headers="headers", timestamp="timestamp", partition="partition"
    )
    assert chosen("value") == WriteColumns(value="value")
    assert chosen("key value partition", key=None, partition=None) == WriteColumns(value="value")
    assert chosen("id value note", key="id") == WriteColumns(key="id", value="value")


def test_without_a_value_all_other_columns_become_one() -> None:
    assert chosen("id key price") == WriteColumns(key="key", value=["id", "price"])
    assert chosen("id price", key="id") == WriteColumns(key="id", value=["id", "price"])
    assert chosen("key price", key=None) == WriteColumns(value=["key", "price"])
    assert chosen("key", value=None) == WriteColumns(key="key", value=None)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ("key", "data has no column for the value of records; .* value=None to write tombstones"),
        (
            "sensor value",
            "'value' would be written without 'sensor'; give value=.*, or key='sensor'",
        ),
    ],
)
def test_nothing_is_dropped_unasked(names: str, said: str) -> None:
    with pytest.raises(ClientError, match=said):
        chosen(names)
    with pytest.raises(ClientError, match=said):
        chosen(names, partition=None)


@pytest.mark.parametrize(
    ("data", "options", "said"),
    [
        ([{"at": 1, "timestamp": "noon"}], {}, "'timestamp' is string, but the timestamp .*timestamp=None"),
        (
            [{"a": 1, "partition": 1.5}],
            {},
            "'partition' is double, but the partition of records must be an ",
        ),
        ([{"a": 1, "headers": {"b": 1}}], {}, "'headers' is struct.*headers=None"),
        ([{"a": 1}], {"key": "b"}, "the table has no column 'b'; it has a"),
        ([{"a": b"1"}], {}, "field 'a' of type binary cannot be written as JSON"),
        ([{"a": 1, "key": True}], {}, "column 'key' is bool, .*key_format="),
    ],
)
def test_columns_that_do_not_fit_are_named(data: Any, options: Any, said: str) -> None:
    with pytest.raises(ClientError, match=said):
        WriteRequest(data, "orders", **options)


def test_an_unknown_option_is_named_with_the_nearest() -> None:
    with pytest.raises(TypeError, match=r"write\(\) has no argument 'kye'; did you mean 'key'\?"):
        write(TABLE, "orders", kye="id")  # type: ignore[call-arg]


def test_the_signature_lists_every_option() -> None:
    @keywords_of(WriteOptions, WriteRequest)
    def call(data: Any, **options: Any) -> None: ...

    shown = str(inspect.signature(call))
    assert shown.startswith("(data: 'Any', *, bootstrap: 'str | None' = None")
    assert all(f"{name}:" in shown for name in WriteOptions.__optional_keys__)


def test_no_frame_library_is_loaded_by_ours() -> None:
    """What pyarrow loads by itself, when it makes an array of Python values, is its own affair."""
    program = """if True:
        import sys, headrace
        for name in headrace.__all__:
            getattr(headrace, name)
        print(*sorted({"pandas", "polars", "duckdb"} & set(sys.modules)))"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr
