# SPDX-License-Identifier: Apache-2.0
"""Keys and values as text and numbers: what fits comes as it was, what does not goes to the rejects."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.client.arrow.fetch.sections import Fetched
from headrace.client.arrow.read.typed import Rejects, TypedDecoder
from headrace.client.arrow.values.plain import read_numbers, read_strings
from headrace.client.errors import ClientError
from headrace.wire.records import Record, build_batch

QUICK = settings(deadline=None, max_examples=60)
END = 1 << 62
LAYOUTS = {"int16": ">h", "int32": ">i", "int64": ">q", "float32": ">f", "float64": ">d"}
some_bytes = st.none() | st.binary(max_size=10) | st.sampled_from((b"12", b"1234", b"12345678", "ü".encode()))


def read_number(data: bytes | None, layout: str) -> tuple[bool, Any]:
    """(whether it fits, the number)."""
    if data is None:
        return True, None
    return (True, struct.unpack(layout, data)[0]) if len(data) == struct.calcsize(layout) else (False, None)


@pytest.mark.parametrize("name", list(LAYOUTS))
@given(column=st.lists(some_bytes, max_size=20))
@QUICK
def test_numbers_are_those_of_struct(name: Any, column: list[bytes | None]) -> None:
    numbers, wrong = read_numbers(pa.array(column, pa.binary()), name)
    expected = [read_number(data, LAYOUTS[name]) for data in column]
    assert repr(numbers.to_pylist()) == repr([number for _, number in expected])  # nan is nan
    assert (wrong is None or wrong.tolist()) == (
        [not fits for fits, _ in expected] if not all(fits for fits, _ in expected) else True
    )


@given(column=st.lists(some_bytes | st.text(max_size=5).map(str.encode), max_size=20))
@QUICK
def test_strings_are_utf8_or_rejected(column: list[bytes | None]) -> None:
    strings, wrong = read_strings(pa.array(column, pa.binary()))
    for place, data in enumerate(column):
        if wrong is not None and wrong[place]:
            with pytest.raises(UnicodeDecodeError):
                data.decode()  # type: ignore[union-attr]
        else:
            assert strings[place].as_py() == (None if data is None else data.decode())


def batch_of(*values: bytes | None) -> Fetched:
    records = [Record(10 + place, 0, b"k%d" % place, value) for place, value in enumerate(values)]
    return Fetched(2, bytes(build_batch(records, base_offset=10)), 0, END)


def test_rejected_records_are_set_aside_with_place_reason_and_bytes() -> None:
    rejects = Rejects()
    decoder = TypedDecoder("orders", ["key", "value"], key="string", value="int32", rejects=rejects)
    (batch,) = decoder.decode([batch_of(b"\0\0\0\1", b"oops!", None, b"\xff\xff\xff\xff")])
    assert batch.to_pylist() == [
        {"key": "k0", "value": 1},
        {"key": "k2", "value": None},
        {"key": "k3", "value": -1},
    ]
    assert rejects.to_arrow().to_pylist() == [
        {
            "topic": "orders",
            "partition": 2,
            "offset": 11,
            "column": "value",
            "error": "5 bytes are no int32, which has 4",
            "bytes": b"oops!",
        }
    ]
    assert repr(rejects) == "<1 rejected records>"


def test_without_rejects_the_first_bad_record_is_an_error_with_the_next_step() -> None:
    decoder = TypedDecoder("orders", value="string")
    with pytest.raises(
        ClientError, match=r"value at offset 11 of partition 2 of topic 'orders': not UTF-8.*rejects="
    ):
        list(decoder.decode([batch_of(b"ok", b"\xff")]))


def test_nothing_but_rejects_gives_no_batch() -> None:
    rejects = Rejects()
    decoder = TypedDecoder("orders", value="int64", rejects=rejects)
    assert list(decoder.decode([batch_of(b"1", b"22")])) == []
    assert len(rejects) == 2


def test_raw_and_unselected_columns_are_not_decoded() -> None:
    (batch,) = TypedDecoder("orders", ["offset"], value="int64").decode([batch_of(b"1", b"22")])
    assert batch.to_pylist() == [{"offset": 10}, {"offset": 11}]
    (batch,) = TypedDecoder("orders", ["value"]).decode([batch_of(b"1")])
    assert batch.to_pylist() == [{"value": b"1"}]


def test_an_unknown_format_is_named() -> None:
    with pytest.raises(ClientError, match="'jason' is not a format; use one of raw, string, int16"):
        TypedDecoder("orders", value="jason")  # type: ignore[arg-type]
