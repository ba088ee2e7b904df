# SPDX-License-Identifier: Apache-2.0
"""Filters of records: what they match, what they refuse and where, and that no input breaks them."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.console.messages.avro import RegistryAvro
from headrace.console.messages.filter_parser import DEEPEST, LONGEST, FilterError, parse_filter
from headrace.console.messages.filter_terms import All, Any_, Compare, Exists, In, Matches, Not, Path, Text
from headrace.console.messages.readable import Readable
from headrace.console.messages.record import StoredRecord
from tests.harness.console.records_in_memory import record

VALUE = {
    "user": {"id": 42, "name": "Zoë", "first name": "Z"},
    "tags": ["new", 7, None],
    "paid": True,
    "note": None,
    "items": [{"sku": "A-1"}, {"sku": "B-2"}],
    "code": "42",
}
ORDER = record(
    partition=2,
    offset=100,
    timestamp_ms=1_767_268_800_000,  # 2026-01-01T12:00:00Z
    key=b"abc-7",
    value=json.dumps(VALUE).encode(),
    headers=(("trace", b"old"), ("trace", b"t-1"), ("n", b"15"), ("empty", None), ("x y", b"1")),
)


def matches(text: str, of: StoredRecord = ORDER) -> bool:
    return parse_filter(text).matches(Readable(of, "auto", "auto", RegistryAvro(None)))


@pytest.mark.parametrize(
    "text",
    [
        "value.user.id == 42",
        "value.user.id = 42",
        "value.user.id == 42.0",
        "value.user.id >= 42 and value.user.id < 43",
        'value.user["first name"] == "Z"',
        'value.items[1].sku == "B-2"',
        'value.items.0.sku ~ "A-?"',
        'value.user.name ~ "Zo?"',
        'value.tags contains "new"',
        "value.tags contains 7",
        "value.tags contains null",
        'value contains "Zo"',
        'value.user contains "id"',
        "value.paid == true",
        "value.note == null",
        "value.note exists",
        "not value.missing exists",
        "value.missing != 3",
        'value.code == "42"',
        "not value.code == 42",
        'key ~ "ab*"',
        'key !~ "b*"',
        "key starts with 'abc'",
        'key ends with "-7"',
        'key in ("x", "abc-7")',
        "header.n == 15",
        "header.n > 9",
        'header.trace == "t-1"',
        "header.empty == null",
        'header["x y"] == 1',
        "offset == 100 and partition == 2",
        "partition in (0, 2)",
        'timestamp > "2026-01-01T00:00"',
        'timestamp == "2026-01-01T13:00:00+01:00"',
        "timestamp < 1767268800001",
        "size > 20",
        "not (offset < 10 or offset > 1000)",
        "offset < 10 or offset > 1000 or partition == 2",
        "not not offset == 100",
        "key == null or offset == 100 and partition == 2",
        'value != ""',
    ],
)
def test_what_matches(text: str) -> None:
    assert matches(text)
    assert not matches(f"not ({text})")


@pytest.mark.parametrize(
    "text",
    [
        'value.user.id == "42"',
        "value.user.id == true",
        "value.paid == 1",
        'value.user.id > "a"',
        "value.user.id.deeper == 1",
        "value.items[9].sku exists",
        'value.tags contains "7"',
        'key ~ "AB*"',
        'key ~ "abc"',
        "header.missing == null",
        "value.note > 0",
        'key == "abc-7" and offset == 1',
    ],
)
def test_what_does_not_match(text: str) -> None:
    assert not matches(text)


def test_records_without_value_and_values_that_are_not_json() -> None:
    tombstone = record(key=b"k")
    assert matches("value == null", tombstone)
    assert not matches("value.a exists", tombstone)
    assert not matches('value ~ "*"', tombstone)
    text = record(value=b"not { json")
    assert not matches("value.a exists", text)
    assert matches('value ~ "*json"', text)
    assert matches("value > 41", record(value=b"42"))
    assert matches('value contains "\ufffd"', record(value=b"\xff\x00"))
    deep = record(value=b"[" * 200_000)
    assert not matches("value[0] exists", deep)


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("", 0, "expected"),
        ("offset", 6, "followed by a comparison"),
        ("offset >=", 9, "a number"),
        ("offset >= or", 10, "a number"),
        ("user.id == 1", 0, "one of partition"),
        ('key == "open', 7, "closing quote"),
        ("key == 1 2", 9, "and, or, or the end"),
        ("(key == 1", 9, "')'"),
        ("key == 1 & offset == 2", 9, "no meaning"),
        ("offset.x == 1", 0, "no fields"),
        ("header == 1", 0, "a header has a name"),
        ("partition in 1", 13, "'('"),
        ("partition in ()", 14, "a text in quotes"),
        ("key ~ 5", 6, "a text in quotes is expected"),
        ("key starts 'a'", 11, "followed by with"),
        ('timestamp > "yesterday"', 12, "a moment"),
        ('key == "\\q"', 7, "escape"),
        (f"{'(' * 40}key == 1{')' * 40}", 33, "deeper"),
        (f"key == {'9' * 60}", 7, "40 digits"),
        (f'key ~ "{"a" * 300}"', 6, "256 characters"),
        ("value[-1] == 1", 6, "number from 0"),
    ],
)
def test_what_is_not_understood_is_told_with_its_place(text: str, position: int, words: str) -> None:
    with pytest.raises(FilterError) as refused:
        parse_filter(text)
    assert words in refused.value.what
    assert refused.value.position == position
    assert f"at character {position + 1}:" in refused.value.what
    assert refused.value.status == 400


def test_length_depth_and_number_of_terms_are_bounded() -> None:
    with pytest.raises(FilterError, match="longer than"):
        parse_filter(" " * LONGEST + "a")
    parse_filter("(" * DEEPEST + "key == 1" + ")" * DEEPEST)
    with pytest.raises(FilterError, match="deeper"):
        parse_filter("not " * (DEEPEST + 1) + "key == 1")
    with pytest.raises(FilterError, match="more than 100"):
        parse_filter(" or ".join(["key == 1"] * 101))


def test_patterns_take_time_in_proportion_to_the_text() -> None:
    term = parse_filter('value ~ "' + "*?a" * 60 + '*b"')
    attacked = record(value=b"a" * 200_000)
    started = time.process_time()
    assert not term.matches(Readable(attacked, "auto", "auto", RegistryAvro(None)))
    assert time.process_time() - started < 5


LITERALS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8).filter(lambda text: not any("\ud800" <= letter <= "\udfff" for letter in text))
)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
PATHS = st.builds(
    Path,
    st.sampled_from(["key", "value"]),
    st.lists(TEXTS | st.integers(0, 99), max_size=3).map(tuple),
) | st.sampled_from([Path("offset"), Path("partition"), Path("size"), Path("header", ("trace",))])
LEAVES = (
    st.builds(Compare, PATHS, st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "contains"]), LITERALS)
    | st.builds(Exists, PATHS)
    | st.builds(In, PATHS, st.lists(LITERALS, min_size=1, max_size=3).map(tuple))
    | st.builds(Text, PATHS, st.sampled_from(["starts", "ends"]), TEXTS)
    | st.builds(Matches, PATHS, TEXTS)
)
TERMS = st.recursive(
    LEAVES,
    lambda inner: (
        st.builds(Not, inner)
        | st.builds(All, st.lists(inner, min_size=2, max_size=3).map(tuple))
        | st.builds(Any_, st.lists(inner, min_size=2, max_size=3).map(tuple))
    ),
    max_leaves=6,
)
RECORDS = st.builds(
    record,
    key=st.none() | st.binary(max_size=20),
    value=st.none()
    | st.binary(max_size=30)
    | LITERALS.map(lambda value: json.dumps({"a": [value]}).encode()),
    timestamp_ms=st.none() | st.integers(-5, 10**18),
    headers=st.lists(st.tuples(TEXTS, st.none() | st.binary(max_size=8)), max_size=2).map(tuple),
)


@settings(max_examples=300, deadline=None)
@given(term=TERMS, of=RECORDS)
def test_a_term_reads_back_from_its_text_and_matches_the_same(term: Any, of: StoredRecord) -> None:
    again = parse_filter(str(term))
    assert str(again) == str(term)
    avro = RegistryAvro(None)
    assert again.matches(Readable(of, "auto", "auto", avro)) == term.matches(
        Readable(of, "auto", "auto", avro)
    )


WORDS = st.sampled_from(
    [
        "value",
        "key",
        ".",
        "a",
        "==",
        "(",
        ")",
        "and",
        "or",
        "not",
        "in",
        "[",
        "]",
        '"x"',
        "'",
        "1",
        "~",
        ",",
        "exists",
        "contains",
        "header",
        "timestamp",
        "\\",
        "\x00",
    ]
)


def position_of_error(text: str) -> int | None:
    try:
        parse_filter(text)
    except FilterError as refused:
        return refused.position
    return None


@settings(max_examples=500, deadline=None)
@given(text=st.text(max_size=40) | st.lists(WORDS, max_size=20).map(" ".join), of=RECORDS)
def test_any_text_is_a_filter_or_is_refused_with_a_place_in_it(text: str, of: StoredRecord) -> None:
    position = position_of_error(text)
    if position is None:
        matches(text, of)
    else:
        assert 0 <= position <= len(text)
