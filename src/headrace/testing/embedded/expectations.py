# SPDX-License-Identifier: Apache-2.0
"""What a test expects of records, and the words of a failure: what was expected, and what there is.

Knows no broker. Read next: broker.py (`assert_records`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from headrace.testing.embedded.records import Record

T = TypeVar("T")
Expected = bytes | str | None | tuple[bytes | str | None, bytes | str | None] | Mapping[str, Any]
"""A value; a key and a value; or some fields of a record by name."""

_POLL_S = 0.005
_MOST_SHOWN = 20
_FIELDS = ("topic", "partition", "offset", "timestamp_ms", "key", "value", "headers")


def wait_for(look: Callable[[], T], is_enough: Callable[[T], bool], timeout_s: float) -> tuple[T, bool]:
    """What it sees when that is enough, or when the time is over; and whether it is enough."""
    deadline = time.monotonic() + timeout_s
    while True:
        seen = look()
        if is_enough(seen):
            return seen, True
        if time.monotonic() >= deadline:
            return seen, False
        time.sleep(_POLL_S)


def fields_expected(expected: Expected) -> dict[str, Any]:
    """By the names of Record's fields, texts as bytes. Raises TypeError or ValueError."""
    if isinstance(expected, Mapping):
        unknown = sorted(set(expected) - set(_FIELDS))
        if unknown:
            raise ValueError(f"a record has no field {unknown[0]!r}; it has {', '.join(_FIELDS)}")
        fields = dict(expected)
    elif isinstance(expected, tuple):
        if len(expected) != 2:
            raise TypeError(f"expected a key and a value, not {len(expected)} things: {expected!r}")
        fields = {"key": expected[0], "value": expected[1]}
    elif expected is None or isinstance(expected, bytes | str):
        fields = {"value": expected}
    else:
        raise TypeError(f"a record is expected as a value, (key, value) or a dict of fields: {expected!r}")
    for name in {"key", "value"} & fields.keys():
        fields[name] = _bytes(fields[name])
    if "headers" in fields:
        headers = fields["headers"]
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        fields["headers"] = tuple((name, _bytes(value)) for name, value in pairs)
    return fields


def _bytes(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def matches(records: Sequence[Record], expected: Sequence[Mapping[str, Any]], *, in_order: bool) -> bool:
    if len(records) != len(expected):
        return False
    if in_order:
        return all(map(_is, records, expected))
    left = list(records)
    for each in sorted(expected, key=len, reverse=True):  # the most exact first
        found = next((record for record in left if _is(record, each)), None)
        if found is None:
            return False
        left.remove(found)
    return True


def _is(record: Record, expected: Mapping[str, Any]) -> bool:
    return all(getattr(record, name) == value for name, value in expected.items())


def difference(
    where: str, records: Sequence[Record], expected: Sequence[Mapping[str, Any]], timeout_s: float
) -> str:
    wanted = [" ".join(f"{name}={value!r}" for name, value in each.items()) for each in expected]
    return "\n".join(
        [f"{where} has other records than expected, after {timeout_s:g} s", "expected:", *_shown(wanted),
         "there are:", *_shown(records)]
    )  # fmt: skip


def too_few(where: str, records: Sequence[Record], count: int, timeout_s: float) -> str:
    lines = [f"{where} has {len(records)} of {count} expected records after {timeout_s:g} s", "there are:"]
    return "\n".join([*lines, *_shown(records)])


def _shown(items: Sequence[object]) -> list[str]:
    """The last ones, which are what a test has just done."""
    if not items:
        return ["  none"]
    left_out = len(items) - _MOST_SHOWN
    head = [f"  … {left_out} more"] if left_out > 0 else []
    return head + [f"  {item}" for item in items[-_MOST_SHOWN:]]
