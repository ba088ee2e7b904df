# SPDX-License-Identifier: Apache-2.0
"""Converts a column of bytes to a typed column, with a reason for each row that does not fit.

Read next: formats.py (what a user names), plain.py, json/reader.py, avro/reader.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from headrace.client.arrow.kernels.types import Int32s
from headrace.client.arrow.values.nodes import Fault, ValueNode
from headrace.client.arrow.values.plain import NUMBERS, read_numbers, read_strings, why_not


class Converted(NamedTuple):
    """As long as its input. Rows with a reason in `wrong` have no meaningful value."""

    column: Any
    wrong: Mapping[int, str]


class Converter(Protocol):
    """Converts one column. `field` is None until its type is known."""

    @property
    def field(self) -> Any: ...

    def learn(self, column: Any) -> None:
        """Infers the type from the first bytes, if it is not given."""

    def convert(self, column: Any) -> Converted:
        """Null stays null: tombstones are valid."""


class PlainConverter:
    """Text and numbers."""

    def __init__(self, name: str, word: str) -> None:
        self.field = pa.field(name, pa.string() if word == "string" else NUMBERS[word][0])
        self._word = word

    def learn(self, column: Any) -> None:
        """The type is given by the format."""

    def convert(self, column: Any) -> Converted:
        typed, wrong = read_strings(column) if self._word == "string" else read_numbers(column, self._word)
        if wrong is None:
            return Converted(typed, {})
        rows = np.flatnonzero(wrong).tolist()
        return Converted(typed, {row: why_not(column[row].as_py(), self._word) for row in rows})


def reasons(faults: Int32s, nodes: Sequence[ValueNode], texts: Mapping[Fault, str]) -> dict[int, str]:
    """Faults reported by kernels, as text."""
    rows = np.flatnonzero(faults[:, 0]).tolist()
    found = {}
    for row, (code, node, position) in zip(rows, faults[rows].tolist(), strict=True):
        path = nodes[node].path
        where = [f"field {path!r}"] if path else []
        if position >= 0:
            where.append(f"byte {position}")
        what = texts[Fault(code)].format(type=nodes[node].type)
        found[row] = f"{what}, at {', '.join(where)}" if where else what
    return found
