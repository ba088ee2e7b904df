# SPDX-License-Identifier: Apache-2.0
"""Splits rows by the partition columns of a table and formats their values.

Pure. Values are stored in the table's log; directory names are for people. Read next: files.py.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

PartitionValues = tuple[str | None, ...]

_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = re.compile(r"""[\x00-\x1f"#%'*/:=?\\\x7f{[\]^]""")
_LONGEST_NAME = 200
"""In bytes; file systems allow 255."""


def split(rows: pa.Table, columns: Sequence[str]) -> Iterator[tuple[PartitionValues, pa.Table]]:
    """Yield the rows of each combination of values, in their order, without these columns."""
    if not columns:
        yield (), rows
        return
    rest = rows.drop_columns(list(columns))
    codes, first = _numbered([rows.column(name) for name in columns], rows.num_rows)
    if len(first) > 1:
        rest = rest.take(pa.array(np.argsort(codes, kind="stable")))
    start = 0
    for count, row in zip(np.bincount(codes), first, strict=True):
        values = tuple(text_of(rows.column(name)[int(row)].as_py()) for name in columns)
        yield values, rest.slice(start, int(count))
        start += int(count)


def folder(columns: Sequence[str], values: PartitionValues) -> str:
    """`date=2026-11-15/country=de`, empty without partitions."""
    return "/".join(_name(column, value) for column, value in zip(columns, values, strict=True))


def as_mapping(columns: Sequence[str], values: PartitionValues) -> Mapping[str, str | None]:
    return dict(zip(columns, values, strict=True))


def _numbered(columns: Sequence[Any], rows: int) -> tuple[Any, Any]:
    """The index of each row's combination, and the first row of each combination."""
    combined = np.zeros(rows, np.int64)
    for column in columns:
        encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
        indices = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        # Renumbered after each column, so that indexes stay small.
        _, combined = np.unique(combined * (len(encoded.dictionary) + 1) + indices, return_inverse=True)
    _, first, codes = np.unique(combined, return_index=True, return_inverse=True)
    return codes, first


def text_of(value: Any) -> str | None:
    """Format a value as in the Delta protocol, where an empty string is null."""
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _name(column: str, value: str | None) -> str:
    name = f"{_escaped(column)}={_NULL_FOLDER if value is None else _escaped(value)}"
    if len(name.encode()) <= _LONGEST_NAME:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:32]
    return f"{name.encode()[: _LONGEST_NAME - 40].decode(errors='ignore')}-{digest}"


def _escaped(text: str) -> str:
    """As Hive and Spark name folders."""
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)
