# SPDX-License-Identifier: Apache-2.0
"""Bytes as text or numbers. Numbers are big-endian, as Kafka's own serializers write them.

Read next: converters.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

NUMBERS = {
    "int16": (pa.int16(), ">i2"),
    "int32": (pa.int32(), ">i4"),
    "int64": (pa.int64(), ">i8"),
    "float32": (pa.float32(), ">f4"),
    "float64": (pa.float64(), ">f8"),
}


def read_numbers(column: Any, word: str) -> tuple[Any, Any]:
    """(the column in its type, which rows do not fit or None). Null stays null: tombstones are valid."""
    kind, layout = NUMBERS[word]
    width = np.dtype(layout).itemsize
    there = column.is_valid().to_numpy(zero_copy_only=False)
    sizes = pc.fill_null(pc.binary_length(column), 0).to_numpy()
    fits = there & (sizes == width)
    numbers = np.zeros(len(column), layout)
    if fits.any():
        picked = column.filter(pa.array(fits))  # a copy, whose bytes are contiguous
        start = int(np.frombuffer(picked.buffers()[1], np.int32)[picked.offset])
        numbers[fits] = np.frombuffer(picked.buffers()[2], layout, len(picked), start)
    native = numbers.astype(np.dtype(layout).newbyteorder("="))
    wrong = there & ~fits
    return pa.array(native, kind, mask=~fits), wrong if wrong.any() else None


def write_numbers(column: Any, word: str) -> Any:
    """A binary column; null stays null."""
    _, layout = NUMBERS[word]
    width = np.dtype(layout).itemsize
    numbers = pc.fill_null(column, 0).to_numpy(zero_copy_only=False).astype(layout)
    data = pa.py_buffer(np.ascontiguousarray(numbers))
    ends = pa.py_buffer(np.arange(0, (len(column) + 1) * width, width, dtype=np.int32))
    bytes_column = pa.Array.from_buffers(pa.binary(), len(column), [None, ends, data])
    if column.null_count:
        return pc.if_else(column.is_valid(), bytes_column, pa.scalar(None, pa.binary()))
    return bytes_column


def read_strings(column: Any) -> tuple[Any, Any]:
    try:
        return column.cast(pa.string()), None
    except pa.ArrowInvalid:
        wrong = np.array([data is not None and not _is_utf8(data) for data in column.to_pylist()])
        return pc.if_else(pa.array(wrong), pa.scalar(None, pa.binary()), column).cast(pa.string()), wrong


def why_not(data: bytes, word: str) -> str:
    if word == "string":
        return "not UTF-8"
    return f"{len(data)} bytes are no {word}, which has {np.dtype(NUMBERS[word][1]).itemsize}"


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
