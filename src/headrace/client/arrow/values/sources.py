# SPDX-License-Identifier: Apache-2.0
"""Arrow columns in the form that writing kernels use, and the bytes that they write.

The only caller of kernels/write_values.c, whose structures these mirror. Read next: json/sources.py
and avro/sources.py, which prepare columns; write_row_wise.py (the same without a compiler).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.client.arrow.values.nodes import NO_BRANCH, Fault, Kind
from headrace.client.errors import ClientError
from headrace.kernels.library import NO_ROOM

_FIRST_FAULT = -100
_LARGEST = (1 << 31) - 1
_LEAST = 1024
_DATA_ONLY = {Kind.FIXED, Kind.DECIMAL}
_WITH_DATA = {Kind.STRING, Kind.TEXT, Kind.BYTES}


class Source(NamedTuple):
    """A column with those below it. `path` names it in errors; for JSON, `name` is quoted, with its colon."""

    kind: Kind
    array: Any
    path: str
    name: bytes = b""
    low: int = 0
    high: int = 0
    null_branch: int = NO_BRANCH
    children: Sequence[Source] = ()


class RowUnfit(Exception):
    """A row that cannot be written; it counts within the column."""

    def __init__(self, row: int, fault: Fault, path: str) -> None:
        self.row = row
        self.fault = fault
        self.path = path


class _Source(ctypes.Structure):
    _fields_ = [
        *[(name, ctypes.c_int32) for name in ("kind", "first_child", "children", "nullable")],
        ("name", ctypes.c_char_p),
        *[(name, ctypes.c_int64) for name in ("name_size", "low", "high", "null_branch", "first")],
        *[(name, ctypes.c_void_p) for name in ("validity", "data", "values")],
    ]


class _Written(ctypes.Structure):
    _fields_ = [
        ("prefix", ctypes.c_char_p),
        *[(name, ctypes.c_int64) for name in ("prefix_size", "rows")],
        ("data", ctypes.c_void_p),
        ("capacity", ctypes.c_int64),
        ("ends", ctypes.c_void_p),
    ]


def write_rows(
    root: Source, kernel: Any, row_wise: Callable[[Source, int], bytes], prefix: bytes = b""
) -> Any:
    """A binary column: null where the root is, else prefix and value. RowUnfit names the first bad row."""
    if kernel is None:
        there = root.array.is_valid().to_pylist()
        values = [prefix + row_wise(root, row) if ok else None for row, ok in enumerate(there)]
        return pa.array(values, pa.binary())
    return _by_kernel(root, kernel, prefix)


def _by_kernel(root: Source, kernel: Any, prefix: bytes) -> Any:
    sources = flattened(root)
    rows = len(root.array)
    raw = (_Source * len(sources))(*_raw(sources))
    ends, stopped = np.zeros(rows + 1, np.int32), np.zeros(2, np.int64)
    data = np.empty(rows * len(prefix) + root.array.nbytes * 2 + _LEAST, np.uint8)
    while True:
        out = _Written(prefix, len(prefix), rows, data.ctypes.data, len(data), ends.ctypes.data)
        code = kernel(raw, ctypes.byref(out), int(stopped[0]), stopped.ctypes.data)
        if code <= _FIRST_FAULT:
            raise RowUnfit(int(stopped[0]), Fault(_FIRST_FAULT - code), sources[int(stopped[1])].path)
        if code != NO_ROOM:
            break
        data = _larger(data)
    bits = None
    if root.array.null_count:
        valid = root.array.is_valid().to_numpy(zero_copy_only=False)
        bits = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), rows, [bits, pa.py_buffer(ends), pa.py_buffer(data)])


def flattened(root: Source) -> list[Source]:
    """The root first; every source's children follow each other."""
    sources = [root]
    for each in sources:  # grows as it goes
        sources.extend(each.children)
    return sources


def _raw(sources: Sequence[Source]) -> list[_Source]:
    found = []
    first_child = 1
    for each in sources:
        buffers = each.array.buffers()
        validity = buffers[0] if each.array.null_count else None
        body = buffers[1] if len(buffers) > 1 and each.kind not in (Kind.STRUCT, Kind.UNION) else None
        data = buffers[2] if each.kind in _WITH_DATA else body
        found.append(
            _Source(
                kind=each.kind,
                first_child=first_child,
                children=len(each.children),
                nullable=each.null_branch != NO_BRANCH,
                name=each.name,
                name_size=len(each.name),
                low=each.low,
                high=each.high,
                null_branch=each.null_branch,
                first=each.array.offset,
                validity=None if validity is None else validity.address,
                data=None if data is None else data.address,
                values=None if body is None or each.kind in _DATA_ONLY else body.address,
            )
        )
        first_child += len(each.children)
    return found


def _larger(data: Any) -> Any:
    if len(data) >= _LARGEST:
        raise ClientError("the values of one slice take more than 2 GiB", next_step="write smaller batches")
    larger = np.empty(min(2 * len(data), _LARGEST), np.uint8)
    larger[: len(data)] = data
    return larger
