# SPDX-License-Identifier: Apache-2.0
"""The topics whose history Spark reads: rows that all differ, as Parquet would fold equal ones.

`BENCH_HISTORY_ROWS` makes them smaller or larger. Read next: spark.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import headrace
from bench.cell import Cell

ROWS = int(os.environ.get("BENCH_HISTORY_ROWS", "20000000"))
WIDE = (
    "id BIGINT, customer STRING, amount BIGINT, country STRING, city STRING, quantity INT, "
    "price DOUBLE, paid BOOLEAN, channel STRING, note STRING"
)
COUNTRY = "DE"
_ROWS_AT_ONCE = 250_000
_KEY_BYTES, _VALUE_BYTES = 12, 88
_COUNTRIES = pa.array([COUNTRY, "FR", "IT", "ES", "PL", "NL", "SE", "AT", "CH", "DK"])


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A topic and what it adds up to."""

    rows: int
    total: int
    """Bytes of keys and values, or the amounts of one country."""


def fill_rows(cell: Cell, topic: str) -> History:
    def made(count: int, source: Any) -> tuple[pa.Table, int]:
        columns = {
            "key": _digits(source, count, _KEY_BYTES),
            "value": _digits(source, count, _VALUE_BYTES),
        }
        return pa.table(columns), count * (_KEY_BYTES + _VALUE_BYTES)

    return _filled(cell, topic, made)


def fill_documents(cell: Cell, topic: str) -> History:
    return _filled(cell, topic, _documents)


def _filled(cell: Cell, topic: str, made: Callable[[int, Any], tuple[pa.Table, int]]) -> History:
    source, rows, total = np.random.default_rng(1), 0, 0
    for count in _counts(max(_ROWS_AT_ONCE, round(ROWS * cell.suite_scale))):
        table, amount = made(count, source)
        key = "key" if "key" in table.column_names else None
        headrace.write(table, topic, bootstrap=cell.node.bootstrap, key=key)
        rows, total = rows + count, total + amount
    return History(rows=rows, total=total)


def _counts(rows: int) -> Iterator[int]:
    for first in range(0, rows, _ROWS_AT_ONCE):
        yield min(_ROWS_AT_ONCE, rows - first)


def _digits(source: Any, count: int, size: int) -> pa.Array:
    letters = source.integers(ord("0"), ord("9") + 1, count * size, dtype=np.uint8)
    fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(size), count, [None, pa.py_buffer(letters)])
    return fixed.cast(pa.binary())


def _documents(count: int, source: Any) -> tuple[pa.Table, int]:
    """JSON objects of ten fields, and the amounts of one country."""
    amounts = pa.array(source.integers(0, 10_000, count))
    countries = _COUNTRIES.take(pa.array(source.integers(0, len(_COUNTRIES), count)))
    whole = [_text(source.integers(0, 1 << 40, count)) for _ in range(3)]
    fields = {
        "id": whole[0],
        "customer": _quoted(_text(source.integers(0, 50_000, count)), "customer-"),
        "amount": _text(amounts),
        "country": _quoted(countries),
        "city": _quoted(_text(source.integers(0, 3_000, count)), "city-"),
        "quantity": _text(source.integers(1, 20, count)),
        "price": _joined(_text(source.integers(0, 999, count)), ".25"),
        "paid": pa.array(source.integers(0, 2, count) == 1).cast(pa.string()),
        "channel": _quoted(_text(source.integers(0, 6, count)), "channel-"),
        "note": _quoted(whole[1], "note "),
    }
    parts: list[Any] = []
    for number, (name, values) in enumerate(fields.items()):
        parts += [f'{"," if number else "{"}"{name}":', values]
    chosen = amounts.filter(pc.equal(countries, COUNTRY))
    return pa.table({"value": _joined(*parts, "}")}), int(pc.sum(chosen).as_py())


def _text(numbers: Any) -> Any:
    return (numbers if isinstance(numbers, pa.Array) else pa.array(numbers)).cast(pa.string())


def _quoted(values: Any, before: str = "") -> Any:
    return _joined(f'"{before}', values, '"')


def _joined(*parts: Any) -> Any:
    return pc.binary_join_element_wise(*parts, "")
