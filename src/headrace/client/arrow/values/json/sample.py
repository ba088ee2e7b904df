# SPDX-License-Identifier: Apache-2.0
"""Infers the schema of JSON records from a sample.

Numbers with and without a fraction are one kind. What is of several kinds, or null or empty in all of the
sample, stays JSON text. Read next: json/nodes.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headrace.client.arrow.values.json.nodes import JSON_TEXT

_MOST_FIELDS = 500
"""An object with more names than this is a map whose keys are data."""
_INT64 = range(-(1 << 63), 1 << 63)


@dataclass(slots=True)
class _Seen:
    """The values seen at one path."""

    kinds: set[str] = field(default_factory=set)
    fields: dict[str, _Seen] = field(default_factory=dict)
    items: _Seen | None = None

    def add(self, value: Any) -> None:
        kind = _kind(value)
        if kind is None:
            return
        self.kinds.add(kind)
        if isinstance(value, dict):
            for name, each in value.items():
                self.fields.setdefault(name, _Seen()).add(each)
        elif isinstance(value, list):
            self.items = self.items or _Seen()
            for each in value:
                self.items.add(each)

    def as_field(self, name: str) -> Any:
        kind = self._type()
        return pa.field(name, pa.string(), metadata=JSON_TEXT) if kind is None else pa.field(name, kind)

    def _type(self) -> Any:
        """None: JSON text."""
        if self.kinds == {"object"} and self.fields:
            if len(self.fields) > _MOST_FIELDS:
                return None
            return pa.struct([each.as_field(name) for name, each in self.fields.items()])
        if self.kinds == {"list"} and self.items is not None:
            return pa.list_(self.items.as_field("item"))
        simple = {"bool": pa.bool_(), "string": pa.string(), "int": pa.int64(), "float": pa.float64()}
        if self.kinds == {"int", "float"}:
            return pa.float64()
        return simple.get(next(iter(self.kinds))) if len(self.kinds) == 1 else None


def _kind(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int" if value in _INT64 else "large"
    names = {float: "float", str: "string", dict: "object", list: "list"}
    return names[type(value)]


def sampled_field(name: str, records: Iterable[bytes | None]) -> Any:
    """A field that takes these records. Those that are not JSON say nothing about it."""
    seen = _Seen()
    for data in records:
        if data is None:
            continue
        try:
            seen.add(json.loads(data.decode()))
        except (ValueError, RecursionError):  # bad bytes and bad text are ValueErrors too
            continue
    return seen.as_field(name)
