# SPDX-License-Identifier: Apache-2.0
"""JSON into typed columns: the kernel against Python's json, on good records and on damaged ones."""

from __future__ import annotations

import json
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.client.arrow.values.formats import Json
from headrace.client.arrow.values.json.nodes import JSON_TEXT, json_nodes
from headrace.client.arrow.values.json.reader import JsonConverter
from headrace.client.arrow.values.json.row_wise import read_json_rows
from headrace.client.arrow.values.json.sample import sampled_field
from headrace.client.arrow.values.kernel_functions import value_kernel
from headrace.client.arrow.values.kernel_reader import KernelReader
from headrace.client.errors import ClientError
from tests.harness.left_out import leave_out

QUICK = settings(deadline=None, max_examples=80)
ORDER = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("small", pa.int8()),
        pa.field("price", pa.float64()),
        pa.field("rough", pa.float32()),
        pa.field("paid", pa.bool_()),
        pa.field("name", pa.string()),
        pa.field('odd "näme"\n', pa.string()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field(
            "at", pa.struct([pa.field("city", pa.string(), nullable=False), pa.field("zip", pa.int32())])
        ),
        pa.field("rest", pa.string(), metadata=JSON_TEXT),
        pa.field("when", pa.timestamp("us", tz="UTC")),
        pa.field("local", pa.timestamp("ms")),
        pa.field("day", pa.date32()),
        pa.field("counts", pa.map_(pa.string(), pa.list_(pa.int16()))),
    ]
)
FIELD = pa.field("value", pa.struct(list(ORDER)))
texts = st.text(max_size=12)
numbers = st.integers() | st.floats() | st.integers(-200, 200)
moments = st.datetimes().map(lambda moment: moment.isoformat() + "Z") | st.dates().map(str) | texts
anything = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
records = st.fixed_dictionaries(
    {"id": st.integers(-(1 << 63), (1 << 63) - 1)},
    optional={
        "small": st.integers(-128, 127) | anything,
        "price": numbers | anything,
        "rough": st.floats(width=32) | anything,
        "paid": st.booleans() | st.none(),
        "name": texts,
        'odd "näme"\n': texts,
        "tags": st.lists(texts | st.none(), max_size=4),
        "at": st.fixed_dictionaries(
            {"city": texts}, optional={"zip": st.integers(0, 9999), "more": anything}
        ),
        "rest": anything,
        "when": moments,
        "local": st.datetimes().map(lambda moment: moment.isoformat(timespec="milliseconds")),
        "day": st.dates().map(str),
        "counts": st.dictionaries(texts, st.lists(st.integers(-9, 9), max_size=3), max_size=3),
        "unknown": anything,
    },
)


@st.composite
def spelled(draw: Any) -> bytes:
    """A record in one of the ways that JSON may be written, or damaged in one place."""
    spell = {"ensure_ascii": draw(st.booleans()), "indent": draw(st.sampled_from((None, None, 1)))}
    data = bytearray(json.dumps(draw(records), **spell).encode("utf-8", "surrogatepass"))
    if draw(st.integers(0, 2)) == 0:
        place = draw(st.integers(0, len(data)))
        damage = draw(
            st.sampled_from((b'"', b"}", b"{", b",", b"\\", b"\x00", b"\xff", b"9", b"-", b"e", b"null"))
        )
        data[place : place + draw(st.integers(0, 3))] = damage
    return bytes(data)


compiled = pytest.mark.skipif(value_kernel("read_json") is None, reason="row by row, no byte is named")


def by_kernel(column: Any) -> Any:
    kernel = value_kernel("read_json")
    if kernel is None:
        leave_out("compiled kernels", "python -m headrace.kernels.build compiles them")
    return KernelReader(json_nodes(FIELD), kernel).read(column)


def comparable(value: Any) -> Any:
    """nan equals nan; texts of JSON by what they say."""
    if isinstance(value, dict):
        return {
            name: comparable(json.loads(each))
            if name == "rest" and isinstance(each, str)
            else comparable(each)
            for name, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [comparable(each) for each in value]
    return repr(value) if isinstance(value, float) else value


@given(rows=st.lists(st.none() | spelled(), max_size=5))
@QUICK
def test_the_kernel_agrees_with_python(rows: list[bytes | None]) -> None:
    column = pa.array(rows, pa.binary())
    ours, our_faults = by_kernel(column)
    theirs, their_faults = read_json_rows(json_nodes(FIELD), column)
    ours.validate(full=True)
    theirs.validate(full=True)
    assert (our_faults[:, 0] != 0).tolist() == (their_faults[:, 0] != 0).tolist()
    assert comparable(ours.to_pylist()) == comparable(theirs.to_pylist())


@given(
    rows=st.lists(st.binary(max_size=20) | spelled().map(lambda data: data[: len(data) // 2]), max_size=20)
)
@QUICK
def test_garbage_is_rejected_and_nothing_else_happens(rows: list[bytes]) -> None:
    column = pa.array(rows, pa.binary())
    typed, faults = by_kernel(column)
    typed.validate(full=True)
    assert len(typed) == len(rows)
    for row, data in enumerate(rows):
        if faults[row, 0] == 0:
            assert typed[row].as_py() is None or typed[row].as_py()["id"] == json.loads(data)["id"]


def test_every_cut_and_every_flipped_byte_of_a_record() -> None:
    record = json.dumps(
        {"id": 1, "price": -1.5e-3, "name": "ü\n", "tags": ["a"], "at": {"city": "x"}}
    ).encode()
    damaged = [record[:end] for end in range(len(record))]
    for place in range(len(record)):
        damaged += [record[:place] + bytes([byte]) + record[place + 1 :] for byte in b'\0"\\{\x80\xff']
    column = pa.array(damaged, pa.binary())
    ours, our_faults = by_kernel(column)
    theirs, their_faults = read_json_rows(json_nodes(FIELD), column)
    assert (our_faults[:, 0] != 0).tolist() == (their_faults[:, 0] != 0).tolist()
    assert ours.equals(theirs)
    assert (our_faults[: len(record), 0] != 0).all()


@compiled
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "JSON that breaks off, at byte 1"),
        ("", "JSON that breaks off, at byte 0"),
        ("oops", "not JSON, at byte 0"),
        ("[1]", "not of type struct<"),
        ('{"id": "1"}', "not of type int64, at field 'id', byte 10"),
        ('{"id": 1.0}', "not of type int64, at field 'id'"),
        ('{"id": 9223372036854775808}', "a number beyond int64, at field 'id'"),
        ('{"id": 1, "small": 128}', "a number beyond int8, at field 'small'"),
        ('{"id": 1, "rough": 1e39}', "a number beyond float, at field 'rough'"),
        ('{"id": 1, "price": 1e309}', "a number beyond double, at field 'price'"),
        ('{"id": null}', "null, which the schema does not allow, at field 'id'"),
        ("{}", "missing, which the schema does not allow, at field 'id'"),
        ('{"id": 1, "at": {"zip": 1}}', "missing, which the schema does not allow, at field 'at.city'"),
        ('{"id": 1, "id": 2}', "named twice, at field 'id'"),
        ('{"id": 1, "tags": [1]}', "not of type string, at field 'tags[]'"),
        ('{"id": 1, "when": "2026-02-29T00:00:00Z"}', "no text for timestamp[us, tz=UTC], at field 'when'"),
        ('{"id": 1, "when": "2026-02-28T00:00:00"}', "no text for timestamp[us, tz=UTC], at field 'when'"),
        ('{"id": 1} {}', "more behind the end of the JSON value, at byte 10"),
        ('{"id": 1, "x": ' + "[" * 600 + "]" * 600 + "}", "nested too deep"),
        ('{"id": 1, "name": "\\ud800"}', "not JSON, at field 'name'"),
    ],
)
def test_reasons_name_the_problem_and_its_position(text: str, why: str) -> None:
    _, wrong = JsonConverter("value", Json(ORDER)).convert(pa.array([text.encode()], pa.binary()))
    assert wrong[0].startswith(why)


@compiled
def test_what_json_allows_is_read() -> None:
    text = (
        ' { "unknown" : [ { } , [ ] , -0.0e+1 , true , false , null , "\\u00fc\\/" ] , "\\u0069d":\t-0, '
        '"price": NaN, "name": "\\ud83c\\udf0a \\"x\\"", "rest": {"b" : [1, 2]}, '
        '"when": "2026-11-15 18:20+01:00", '
        '"local": "1969-12-31T23:59:59.999", "day": "0001-01-01", "counts": {"a": [1], "a": []} }\r\n'
    )
    converter = JsonConverter("value", Json(ORDER))
    (row,), wrong = converter.convert(pa.array([text.encode()], pa.binary()))
    found = row.as_py()
    assert not wrong
    assert math.isnan(found["price"])
    assert (found["id"], found["name"], found["rest"]) == (0, '🌊 "x"', '{"b" : [1, 2]}')
    assert found["when"].isoformat() == "2026-11-15T17:20:00+00:00"
    assert found["local"].isoformat() == "1969-12-31T23:59:59.999000"
    assert found["day"].isoformat() == "0001-01-01"
    assert found["counts"] == [("a", [1]), ("a", [])]


def test_buffers_grow_as_far_as_one_record_needs() -> None:
    rows = [b'{"id": 1}', json.dumps({"id": 2, "name": "x" * 100_000, "tags": ["y"] * 50_000}).encode()]
    typed, faults = by_kernel(pa.array(rows, pa.binary()))
    assert not faults.any()
    assert [len(row["tags"] or ()) for row in typed.to_pylist()] == [0, 50_000]
    assert len(typed[1]["name"].as_py()) == 100_000


@given(values=st.lists(st.dictionaries(texts, anything, max_size=4), min_size=1, max_size=6))
@QUICK
def test_a_sampled_schema_takes_the_records_it_was_sampled_from(values: list[Any]) -> None:
    rows = [json.dumps(value).encode() for value in values]
    converter = JsonConverter("value", Json())
    typed, wrong = converter.convert(pa.array(rows, pa.binary()))
    typed.validate(full=True)
    assert not wrong
    assert typed.type == converter.field.type


def test_sampled_kinds() -> None:
    rows = [
        (
            b'{"a": 1, "b": 1, "c": true, "d": [], "e": null, "f": {}, "g": {"x": [1, null]}, '
            b'"h": 99999999999999999999}'
        ),
        b'{"a": 2, "b": 1.5, "c": "x", "d": null}',
        b"not json",
        None,
    ]
    field = sampled_field("value", rows)
    kinds = {each.name: (str(each.type), each.metadata == JSON_TEXT) for each in field.type}
    assert kinds == {
        "a": ("int64", False),
        "b": ("double", False),
        "c": ("string", True),
        "d": ("list<item: string>", False),
        "e": ("string", True),
        "f": ("string", True),
        "g": ("struct<x: list<item: int64>>", False),
        "h": ("string", True),
    }


@compiled
def test_fields_that_the_schema_has_not_are_ignored_or_rejected() -> None:
    rows = pa.array([b'{"a": 1}', b'{"a": 2, "n\\u0065w": {"x": 1}}'], pa.binary())
    schema = pa.schema({"a": pa.int64()})
    assert JsonConverter("value", Json(schema)).convert(rows).column.to_pylist() == [{"a": 1}, {"a": 2}]
    strict = JsonConverter("value", Json(schema, other_fields="reject"))
    assert strict.convert(rows).wrong == {
        1: r'a field that the schema does not have, at byte 20 ("n\u0065w")'
    }
    sampled = JsonConverter("value", Json(sample=1))
    typed, wrong = sampled.convert(rows)
    assert typed.to_pylist() == [{"a": 1}, None]
    assert "no record of the sample (1) has it: give headrace.Json(schema)" in wrong[1]
    nodes = json_nodes(pa.field("value", pa.struct(list(schema))), is_all=True)
    assert read_json_rows(nodes, rows)[1][:, 0].tolist() == [0, 14]
    with pytest.raises(ClientError, match="other_fields='drop' means nothing"):
        JsonConverter("value", Json(other_fields="drop"))  # type: ignore[arg-type]


def test_types_that_json_has_not_are_named() -> None:
    with pytest.raises(
        ClientError, match=r"field 'a.b' of type decimal.* cannot be read from JSON; choose from bool"
    ):
        JsonConverter("value", Json(pa.schema({"a": pa.struct({"b": pa.decimal128(5)})})))
    with pytest.raises(ClientError, match="'x' is not a schema; give a pyarrow"):
        JsonConverter("value", Json("x"))
    with pytest.raises(ClientError, match="a sample of 0 records says nothing"):
        JsonConverter("value", Json(sample=0))
