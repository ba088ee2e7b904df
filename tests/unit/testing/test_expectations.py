# SPDX-License-Identifier: Apache-2.0
"""What a test expects of records, and how a failure of it reads."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.testing.embedded.expectations import difference, fields_expected, matches, too_few
from headrace.testing.embedded.records import Record


def record(value: bytes, **fields: Any) -> Record:
    given = {"topic": "orders", "partition": 0, "offset": 0, "timestamp_ms": 0, "key": None, **fields}
    return Record(value=value, **given)


def test_a_value_a_pair_and_fields_are_expected() -> None:
    found = [record(b"1"), record(b"2", key=b"ann"), record(b"3", headers=(("h", b"x"),), partition=2)]
    expected = ["1", ("ann", b"2"), {"value": "3", "headers": {"h": "x"}, "partition": 2}]
    wanted = [fields_expected(each) for each in expected]
    assert matches(found, wanted, in_order=True)
    assert not matches(found[::-1], wanted, in_order=True)
    assert matches(found[::-1], wanted, in_order=False)
    assert not matches(found[:2], wanted, in_order=False)
    assert not matches([*found[:2], record(b"3")], wanted, in_order=False)


def test_what_no_record_can_be_is_refused() -> None:
    with pytest.raises(ValueError, match="no field 'valeu'; it has topic, partition"):
        fields_expected({"valeu": "1"})
    with pytest.raises(TypeError, match="a key and a value, not 3 things"):
        fields_expected(("a", "b", "c"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected as a value"):
        fields_expected(12)  # type: ignore[arg-type]


def test_a_failure_shows_what_there_is() -> None:
    assert difference("topic orders", [record(b"1", key=b"ann")], [{"value": b"2"}], 1.5).splitlines() == [
        "topic orders has other records than expected, after 1.5 s",
        "expected:",
        "  value=b'2'",
        "there are:",
        "  orders-0@0 key=b'ann' value=b'1'",
    ]
    assert too_few("topic orders", [], 3, 10).splitlines()[-1] == "  none"


def test_of_many_records_the_last_are_shown() -> None:
    lines = too_few("topic orders", [record(b"%d" % number) for number in range(30)], 31, 1).splitlines()
    assert lines[2] == "  … 10 more"
    assert lines[-1].endswith("value=b'29'")
