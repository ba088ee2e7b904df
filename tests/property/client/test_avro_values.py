# SPDX-License-Identifier: Apache-2.0
"""Avro into typed columns: against fastavro, kernel against Python, on good records and on damaged ones."""

from __future__ import annotations

import copy
import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.client.arrow.values.avro.nodes import arrow_type, avro_nodes
from headrace.client.arrow.values.avro.reader import AvroConverter, schema_ids
from headrace.client.arrow.values.avro.resolve import Incompatible, resolve
from headrace.client.arrow.values.avro.row_wise import read_avro_rows
from headrace.client.arrow.values.avro.schema import parse_schema
from headrace.client.arrow.values.formats import Avro
from headrace.client.arrow.values.kernel_functions import value_kernel
from headrace.client.arrow.values.kernel_reader import KernelReader
from headrace.client.errors import ClientError
from tests.harness.left_out import leave_out

QUICK = settings(deadline=None, max_examples=150)
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "small", "type": "int"},
        {"name": "price", "type": "double"},
        {"name": "rough", "type": "float"},
        {"name": "paid", "type": "boolean"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "late", "type": ["bytes", "null"]},
        {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "SENT"]}},
        {"name": "mark", "type": {"type": "fixed", "name": "Mark", "size": 3}},
        {"name": "again", "type": ["null", "State"]},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "any", "type": ["null", "long", "string", {"type": "array", "items": "int"}]},
        {"name": "nothing", "type": "null"},
        {
            "name": "at",
            "type": ["null", {"type": "record", "name": "At", "fields": [{"name": "zip", "type": "int"}]}],
        },
        {"name": "cost", "type": {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 4}},
    ],
}
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
ints = st.integers(-(1 << 31), (1 << 31) - 1)
longs = st.integers(-(1 << 63), (1 << 63) - 1)
orders = st.fixed_dictionaries(
    {
        "id": longs,
        "small": ints,
        "price": st.floats(allow_nan=False),
        "rough": st.floats(width=32, allow_nan=False),
        "paid": st.booleans(),
        "name": st.none() | texts,
        "late": st.none() | st.binary(max_size=5),
        "tags": st.lists(st.none() | texts, max_size=3),
        "state": st.sampled_from(("NEW", "SENT")),
        "mark": st.binary(min_size=3, max_size=3),
        "again": st.none() | st.sampled_from(("NEW", "SENT")),
        "counts": st.dictionaries(texts, ints, max_size=3),
        "any": st.none() | longs | texts | st.lists(ints, max_size=3),
        "nothing": st.none(),
        "at": st.none() | st.fixed_dictionaries({"zip": ints}),
        "cost": st.decimals(-(10**20), 10**20, places=4),
    }
)


def written(value: Any, schema: Any = ORDER) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(copy.deepcopy(schema)), value)
    return out.getvalue()


def expected(order: dict[str, Any]) -> dict[str, Any]:
    """As Arrow gives it back."""
    value = dict(order)
    branch = {int: "member0", str: "member1", list: "member2"}.get(type(order["any"]))
    members = {"member0": None, "member1": None, "member2": None}
    value["any"] = None if branch is None else {**members, branch: order["any"]}
    value["counts"] = list(order["counts"].items())
    return value


def by_kernel(schema: Any, column: Any) -> Any:
    kernel = value_kernel("read_avro")
    if kernel is None:
        leave_out("compiled kernels", "python -m headrace.kernels.build compiles them")
    return KernelReader(avro_nodes(parse_schema(schema)), kernel).read(column)


@given(rows=st.lists(st.none() | orders, max_size=4))
@QUICK
def test_what_fastavro_wrote_is_read(rows: list[Any]) -> None:
    column = pa.array([None if row is None else written(row) for row in rows], pa.binary())
    wanted = [None if row is None else expected(row) for row in rows]
    for typed, faults in (
        by_kernel(ORDER, column),
        read_avro_rows(avro_nodes(parse_schema(ORDER)), column),
    ):
        typed.validate(full=True)
        assert not faults.any()
        assert typed.to_pylist() == wanted


@given(order=orders, data=st.data())
@QUICK
def test_damaged_records_are_rejected_alike_and_nothing_else_happens(order: Any, data: Any) -> None:
    good = written(order)
    rows = [good[: data.draw(st.integers(0, len(good)))] for _ in range(3)]
    for _ in range(6):
        place = data.draw(st.integers(0, len(good)))
        rows.append(good[:place] + data.draw(st.binary(min_size=1, max_size=3)) + good[place + 1 :])
    column = pa.array(rows, pa.binary())
    ours, our_faults = by_kernel(ORDER, column)
    theirs, their_faults = read_avro_rows(avro_nodes(parse_schema(ORDER)), column)
    ours.validate(full=False)
    assert our_faults[:, :2].tolist() == their_faults[:, :2].tolist()
    assert repr(ours.to_pylist()) == repr(theirs.to_pylist())


@pytest.mark.parametrize("logical", ["date", "time-millis"])
@given(value=st.integers(0, 86_399_999))
@settings(deadline=None, max_examples=20)
def test_days_and_times(logical: str, value: int) -> None:
    check_logical("int", logical, value % 20_000 if logical == "date" else value)


@pytest.mark.parametrize(
    "logical", ["time-micros", "timestamp-millis", "timestamp-micros", "local-timestamp-millis"]
)
@given(value=st.integers(0, 86_399_999))
@settings(deadline=None, max_examples=20)
def test_moments(logical: str, value: int) -> None:
    check_logical("long", logical, value)


def check_logical(kind: str, logical: str, value: int) -> None:
    schema = {"type": kind, "logicalType": logical}
    data = written(value, kind)
    theirs = fastavro.schemaless_reader(io.BytesIO(data), schema, None)
    typed, faults = by_kernel(schema, pa.array([data], pa.binary()))
    row_wise, _ = read_avro_rows(avro_nodes(parse_schema(schema)), pa.array([data], pa.binary()))
    assert not faults.any()
    assert typed.equals(row_wise)
    assert typed[0].as_py() == theirs


def test_lists_that_claim_more_than_there_is_take_no_memory() -> None:
    schema = {"type": "array", "items": "string"}
    bomb = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    _, faults = by_kernel(schema, pa.array([bomb, bomb + b"\0", b"\x01", b"\0\0"], pa.binary()))
    assert (faults[:, 0] != 0).all()
    with pytest.raises(ClientError, match="take no bytes"):
        parse_schema({"type": "array", "items": {"type": "array", "items": "null"}})


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("{", "not JSON"),
        ('"strang"', "'strang' is not defined"),
        ({"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]}, "holds itself"),
        ({"type": "record", "name": "R", "fields": [{"name": "r"}]}, "is no field of record 'R'"),
        ({"type": "fixed", "name": "F", "size": -1}, "has size -1"),
        (["null", ["int"]], "a union is empty or holds another"),
        (7, "7 is no type"),
    ],
)
def test_bad_schemas_are_named(schema: Any, why: str) -> None:
    with pytest.raises(ClientError, match=why):
        parse_schema(schema)


def test_records_of_an_older_schema_are_read_as_the_newer() -> None:
    old = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "n", "type": "int"},
            {"name": "gone", "type": "string"},
            {"name": "was", "type": {"type": "array", "items": "int"}},
            {"name": "m", "type": {"type": "map", "values": "float"}},
            {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        ],
    }
    new = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "n", "type": ["null", "double"]},
            {"name": "now", "aliases": ["was"], "type": {"type": "array", "items": "long"}},
            {"name": "m", "type": {"type": "map", "values": "double"}},
            {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["C", "A"], "default": "C"}},
            {"name": "more", "type": "string", "default": "none"},
            {"name": "b", "type": "bytes", "default": "\u00ff"},
            {"name": "o", "type": ["null", "int"], "default": None},
            {"name": "l", "type": {"type": "array", "items": "int"}, "default": [1, 2]},
            {
                "name": "d",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
                "default": "\u0001",
            },
        ],
    }
    value = {"n": 3, "gone": "x", "was": [1, 2], "m": {"k": 0.5}, "e": "B"}
    typed, _ = by_kernel(old, pa.array([written(value, old), None], pa.binary()))
    found = resolve(typed, parse_schema(old), parse_schema(new))
    found.validate(full=True)
    assert found.type == arrow_type(parse_schema(new))
    theirs = fastavro.schemaless_reader(io.BytesIO(written(value, old)), old, new)
    theirs["m"] = list(theirs["m"].items())
    theirs["d"] = Decimal("0.01")  # fastavro gives defaults of logical types as they stand
    theirs["b"] = b"\xff"
    assert found.to_pylist() == [theirs, None]


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("string", "int", "string cannot be read as int"),
        ("double", "float", "double cannot be read as float"),
        (["null", "int", "string"], ["null", "int"], "union cannot be read as int"),
    ],
)
def test_schemas_that_do_not_fit_are_named(old: Any, new: Any, why: str) -> None:
    wrapped = [
        parse_schema({"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}]})
        for kind in (old, new)
    ]
    with pytest.raises(Incompatible, match=f"field 'f': {why}"):
        resolve(pa.nulls(2, arrow_type(wrapped[0])), *wrapped)
    empty = parse_schema({"type": "record", "name": "R", "fields": []})
    with pytest.raises(Incompatible, match="field 'f': it is not in the record, and has no default"):
        resolve(pa.nulls(2, arrow_type(empty)), empty, wrapped[1])


def test_a_schema_has_to_be_given() -> None:
    with pytest.raises(ClientError, match=r"to read values as Avro takes their schema; give headrace.Avro"):
        AvroConverter("value", Avro(), "orders")


def test_bare_records_with_a_schema_as_text() -> None:
    converter = AvroConverter("value", Avro(json.dumps({"type": "array", "items": "long"})), "orders")
    typed, wrong = converter.convert(
        pa.array([written([1, 2], {"type": "array", "items": "long"}), b"\4\2\2"], pa.binary())
    )
    assert typed.to_pylist() == [[1, 2], None]
    assert wrong == {1: "Avro that breaks off, at byte 3"}


def test_ids_of_the_wire_format() -> None:
    rows = [b"\0\0\0\1\2rest", None, b"", b"\1\0\0\0\1", b"\0\xff\xff\xff\xff", b"\0\0\0\0"]
    column = pa.array([b"skipped", *rows], pa.binary())[1:]
    assert schema_ids(column).tolist() == [258, -1, -1, -1, 0xFFFFFFFF, -1]
