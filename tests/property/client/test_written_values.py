# SPDX-License-Identifier: Apache-2.0
"""Columns as JSON, Avro and numbers: other libraries read what was in the table, whichever code wrote it."""

from __future__ import annotations

import io
import json
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.client.arrow.errors import RowRefused
from headrace.client.arrow.values.avro.derive import derived_schema
from headrace.client.arrow.values.avro.schema import parse_schema
from headrace.client.arrow.values.avro.sources import avro_source
from headrace.client.arrow.values.formats import Avro, Json
from headrace.client.arrow.values.json.sources import json_source
from headrace.client.arrow.values.kernel_functions import value_kernel
from headrace.client.arrow.values.nodes import Fault
from headrace.client.arrow.values.serializers import bytes_writer
from headrace.client.arrow.values.sources import RowUnfit, write_rows
from headrace.client.arrow.values.write_row_wise import avro_row, json_row
from headrace.client.errors import ClientError

YEARS = (datetime.fromisoformat("1900-01-01"), datetime.fromisoformat("2200-01-01"))
QUICK = settings(deadline=None, max_examples=100)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
INNER = pa.struct([pa.field("city", pa.string()), pa.field("zip", pa.int32(), nullable=False)])
ORDER = pa.struct(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("small", pa.int8()),
        pa.field("price", pa.float64()),
        pa.field("rough", pa.float32()),
        pa.field("paid", pa.bool_()),
        pa.field("name", pa.string()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("at", INNER),
        pa.field("past", pa.large_list(INNER)),
        pa.field("counts", pa.map_(pa.string(), pa.int64())),
        pa.field("cost", pa.decimal128(20, 3)),
        pa.field("when", pa.timestamp("us", tz="UTC")),
        pa.field("day", pa.date32()),
        pa.field("state", pa.dictionary(pa.int8(), pa.string())),
    ]
)
inner = st.fixed_dictionaries({"city": st.none() | texts, "zip": st.integers(0, 9999)})
orders = st.fixed_dictionaries(
    {
        "id": st.integers(-(1 << 63), (1 << 63) - 1),
        "small": st.none() | st.integers(-128, 127),
        "price": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "rough": st.none() | st.floats(width=32, allow_nan=False, allow_infinity=False),
        "paid": st.none() | st.booleans(),
        "name": st.none() | texts,
        "tags": st.none() | st.lists(st.none() | texts, max_size=3),
        "at": st.none() | inner,
        "past": st.none() | st.lists(inner, max_size=2),
        "counts": st.none()
        | st.dictionaries(texts, st.none() | st.integers(0, 9), max_size=3).map(
            lambda pairs: [*pairs.items()]
        ),
        "cost": st.none() | st.decimals(-(10**16), 10**16, places=3),
        "when": st.none() | st.datetimes(*YEARS, timezones=st.just(UTC)),
        "day": st.none() | st.dates(date(1900, 1, 1)),
        "state": st.none() | st.sampled_from(("new", "sent")),
    }
)


def both(source: Any, kernel: str, row_wise: Any) -> Any:
    """What the kernel wrote, having seen that Python writes the same."""
    slow = write_rows(source, None, row_wise, b"!")
    compiled = value_kernel(kernel)
    if compiled is None:
        return slow
    quick = write_rows(source, compiled, row_wise, b"!")
    quick.validate(full=True)
    assert quick.to_pylist() == slow.to_pylist()
    return quick


def as_json(order: Any) -> Any:
    return order and {
        **order,
        "counts": None if order["counts"] is None else dict(order["counts"]),
        "cost": None if order["cost"] is None else order["cost"],
        "when": order["when"] and order["when"].strftime("%Y-%m-%dT%H:%M:%S.%fZ").zfill(27),
        "day": order["day"] and order["day"].isoformat(),
    }


@given(rows=st.lists(st.none() | orders, max_size=5), skip=st.integers(0, 2))
@QUICK
def test_json_is_what_python_reads(rows: list[Any], skip: int) -> None:
    column = pa.array([None] * skip + rows, ORDER)[skip:]
    written = both(json_source(column), "write_json", json_row).to_pylist()
    found = [None if data is None else json.loads(data[1:], parse_float=Decimal) for data in written]
    for row in found:
        for name in ("price", "rough"):
            if row and row[name] is not None:
                row[name] = float(row[name])
        if row and row["cost"] is not None:
            row["cost"] = Decimal(row["cost"])
    wanted = [as_json(row) for row in rows]
    for row, other in zip(found, wanted, strict=True):
        if row and row["rough"] is not None:  # spelled as a float32, in fewer digits
            assert np.float32(row.pop("rough")) == np.float32(other.pop("rough"))
    assert found == wanted


@given(rows=st.lists(st.none() | orders, max_size=5), skip=st.integers(0, 2))
@QUICK
def test_avro_is_what_fastavro_reads(rows: list[Any], skip: int) -> None:
    column = pa.array([None] * skip + rows, ORDER)[skip:]
    schema = derived_schema(ORDER, "Value")
    written = both(avro_source(column, parse_schema(schema)), "write_avro", avro_row).to_pylist()
    parsed = fastavro.parse_schema(schema)
    for data, row in zip(written, rows, strict=True):
        if row is None:
            assert data is None
            continue
        found = fastavro.schemaless_reader(io.BytesIO(data[1:]), parsed, None)
        assert found == {**row, "counts": None if row["counts"] is None else dict(row["counts"])}


DECIMAL = {"logicalType": "decimal", "precision": 9, "scale": 2}


def test_avro_of_a_given_schema() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "state", "type": {"type": "enum", "name": "E", "symbols": ["NEW", "SENT"]}},
            {"name": "cost", "type": {"type": "fixed", "name": "F", "size": 4, **DECIMAL}},
            {"name": "mark", "type": {"type": "fixed", "name": "M", "size": 2}},
            {"name": "late", "type": ["bytes", "null"]},
            {"name": "absent", "type": ["null", "string"]},
            {"name": "nothing", "type": "null"},
        ],
    }  # fmt: skip
    rows = [
        {"state": "SENT", "cost": Decimal("-1.25"), "mark": b"ab", "late": b"x"},
        {"state": "NEW", "cost": Decimal("99.99"), "mark": b"cd", "late": None},
    ]
    kind = pa.struct(
        {"state": pa.string(), "cost": pa.decimal128(9, 2), "mark": pa.binary(2), "late": pa.binary()}
    )
    written = both(avro_source(pa.array(rows, kind), parse_schema(schema)), "write_avro", avro_row)
    found = [
        fastavro.schemaless_reader(io.BytesIO(data[1:]), fastavro.parse_schema(schema), None)
        for data in written.to_pylist()
    ]
    assert found == [{**row, "absent": None, "nothing": None} for row in rows]


@pytest.mark.parametrize("place", [0, 1, 2])
@given(rows=st.lists(st.none() | st.integers(-9, 9) | texts, max_size=5))
@QUICK
def test_unions_are_written_as_they_are_read(place: int, rows: list[Any]) -> None:
    branches: list[Any] = ["long", "string"]
    branches.insert(place, "null")
    schema = {"type": "record", "name": "R", "fields": [{"name": "u", "type": branches}]}
    members = {int: "member0", str: "member1"}
    values = [{"u": None if row is None else {members[type(row)]: row}} for row in rows]
    kind = pa.struct({"u": pa.struct({"member0": pa.int64(), "member1": pa.string()})})
    written = both(avro_source(pa.array(values, kind), parse_schema(schema)), "write_avro", avro_row)
    parsed = fastavro.parse_schema(schema)
    found = [fastavro.schemaless_reader(io.BytesIO(data[1:]), parsed, None) for data in written.to_pylist()]
    assert found == [{"u": row} for row in rows]


def test_a_union_without_null_has_to_have_a_value() -> None:
    source = avro_source(
        pa.array([{"member1": "x"}, {"member1": None}], pa.struct({"member1": pa.string()})),
        parse_schema(["long", "string"]),
    )
    for kernel in (value_kernel("write_avro"), None):
        with pytest.raises(RowUnfit) as caught:
            write_rows(source, kernel, avro_row)
        assert (caught.value.row, caught.value.fault) == (1, Fault.NULL)


LONG = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}
BATCH = pa.record_batch(
    {
        "n": pa.array([1, 2, 70_000, None]),
        "x": pa.array([1.5, None, float("nan"), 2.0]),
        "s": pa.array(["a", "b", "c", None]),
        "b": pa.array([b"\xff"] * 4),
        "t": pa.array([True] * 4),
        "two words": pa.array([1] * 4),
    }
)


def write(choice: Any, form: Any = None, batch: Any = BATCH) -> Any:
    writer = bytes_writer("value", choice, form, batch.schema, "orders")
    assert writer is not None
    return writer(batch).to_pylist()


@pytest.mark.parametrize(
    ("choice", "form", "expected"),
    [
        ("n", None, [struct.pack(">q", 1), struct.pack(">q", 2), struct.pack(">q", 70_000), None]),
        ("n", "int32", [struct.pack(">i", 1), struct.pack(">i", 2), struct.pack(">i", 70_000), None]),
        ("n", "float64", [struct.pack(">d", 1), struct.pack(">d", 2), struct.pack(">d", 70_000), None]),
        ("n", "string", [b"1", b"2", b"70000", None]),
        ("n", "json", [b"1", b"2", b"70000", None]),
        ("s", None, [b"a", b"b", b"c", None]),
        ("s", "json", [b'"a"', b'"b"', b'"c"', None]),
        ("t", "string", [b"true"] * 4),
        (["s", "t"], None, [b'{"s":%s,"t":true}' % s for s in (b'"a"', b'"b"', b'"c"', b"null")]),
        (["two words"], "json", [b'{"two words":1}'] * 4),
        (["t"], "avro", [b"\2\1"] * 4),
    ],
)  # fmt: skip
def test_forms_of_columns(choice: Any, form: Any, expected: list[bytes | None]) -> None:
    assert write(choice, form) == expected


@pytest.mark.parametrize(
    ("choice", "form", "row", "why"),
    [
        ("n", "int16", 2, "70000 in column 'n' does not fit int16"),
        (["x"], "json", 2, "column 'x': its value does not fit JSON"),
        (["n"], Avro(LONG), 3, "column 'n': it is null, which the Avro schema does not allow"),
        (
            ["n"],
            Avro({"type": "record", "name": "R", "fields": [{"name": "n", "type": ["null", "int"]}]}),
            None,
            "",
        ),
    ],
)
def test_rows_that_do_not_fit_are_named(choice: Any, form: Any, row: int | None, why: str) -> None:
    if row is None:
        assert len(write(choice, form)) == 4
        return
    with pytest.raises(RowRefused, match=why) as caught:
        write(choice, form)
    assert caught.value.row == row


def test_numbers_beyond_an_avro_int_are_named() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
    batch = pa.record_batch({"n": pa.array([1, 1 << 31])})
    with pytest.raises(RowRefused, match="column 'n': its value does not fit the Avro schema") as caught:
        write(["n"], Avro(schema), batch)
    assert caught.value.row == 1
    source = avro_source(batch.to_struct_array(), parse_schema(schema))
    with pytest.raises(RowUnfit):
        write_rows(source, None, avro_row)


@pytest.mark.parametrize(
    ("choice", "form", "why"),
    [
        ("nope", None, "the table has no column 'nope'; it has n, x"),
        ([], None, "no column is named for the value; give value=None"),
        ("t", None, "column 't' is bool, of which Kafka's clients have no usual form; .*value_format="),
        ("t", "int64", "column 't' is bool, but must be a number"),
        ("n", "raw", "column 'n' is int64, but must be binary or string"),
        ("b", "string", "column 'b' is binary, but must be something that has a text"),
        ("b", "json", "field 'b' of type binary cannot be written as JSON; cast it"),
        ("n", Json(pa.int32()), "the value is written with the columns' own types; cast them"),
        ("n", "yaml", "'yaml' is not a format; use one of raw, string"),
        (["two words"], "avro", "'two words' is no name for an Avro field; rename it"),
        (["s"], Avro(LONG), "the Avro schema has no field 's'; write fewer columns"),
        (["n", "s"], Avro(LONG), "the Avro schema has no field 's'"),
        ("n", Avro(LONG), "a value: int64 as record cannot be written as Avro"),
        ("s", Avro("long"), "a value: string as int64 cannot be written as Avro; cast it"),
        ("n", Avro(["int", "string", "null"]), "int64 as a union, which is a struct of member0, member1"),
        (["s"], Avro(registry="somewhere"), "'somewhere' is no address of a schema registry; write it"),
        (["s"], Avro(registry="http://127.0.0.1:1"), "no schema registry answers at http://127.0.0.1:1"),
    ],
)  # fmt: skip
def test_invalid_values_are_refused_before_anything_is_sent(choice: Any, form: Any, why: str) -> None:
    with pytest.raises(ClientError, match=why):
        bytes_writer("value", choice, form, BATCH.schema, "orders")
