"""Rows apart by the columns that a table is partitioned by, and how their values are written down.

Pure. Values are in the table's log; the names of folders only help people. Read next: files.py.
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
"""Bytes. File systems allow 255."""


def split(rows: pa.Table, columns: Sequence[str]) -> Iterator[tuple[PartitionValues, pa.Table]]:
    """Rows of each combination of values, in the order they came, without these columns."""
    if not columns:
        yield (), rows
        return
    kept = rows.drop_columns(list(columns))
    codes, first = _numbered([rows.column(name) for name in columns], rows.num_rows)
    if len(first) > 1:
        kept = kept.take(pa.array(np.argsort(codes, kind="stable")))
    start = 0
    for count, row in zip(np.bincount(codes), first, strict=True):
        values = tuple(text_of(rows.column(name)[int(row)].as_py()) for name in columns)
        yield values, kept.slice(start, int(count))
        start += int(count)


def folder(columns: Sequence[str], values: PartitionValues) -> str:
    """`date=2026-11-15/country=de`, empty without partitions."""
    return "/".join(_name(column, value) for column, value in zip(columns, values, strict=True))


def as_mapping(columns: Sequence[str], values: PartitionValues) -> Mapping[str, str | None]:
    return dict(zip(columns, values, strict=True))


def _numbered(columns: Sequence[Any], rows: int) -> tuple[Any, Any]:
    """For every row the number of its combination, and for every combination its first row."""
    combined = np.zeros(rows, np.int64)
    for column in columns:
        encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
        indices = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        # Made dense after each column, so that the numbers cannot grow past any bound.
        _, combined = np.unique(combined * (len(encoded.dictionary) + 1) + indices, return_inverse=True)
    _, first, codes = np.unique(combined, return_index=True, return_inverse=True)
    return codes, first


def text_of(value: Any) -> str | None:
    """As the protocol has it, where an empty text is a null."""
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
