# SPDX-License-Identifier: Apache-2.0
"""The kernels in C behind Python calls: allocates every buffer, checks every size, turns codes into errors.

The only caller of kernels/columns.c, whose structures these mirror; the GIL is released while a kernel runs.
Read next: kernels/columns.c; row_wise.py (the same without a compiler).
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.client.arrow.fetch.sections import Section
from headrace.client.arrow.kernels.types import (
    HEADER,
    HEADERS,
    TIMESTAMP,
    Decoded,
    EncodedRows,
    Int32s,
    Int64s,
    RowColumns,
)
from headrace.client.errors import ClientError
from headrace.errors import DecodeError
from headrace.kernels.library import FAULTS, LIBRARY, NO_ROOM, function, load_library
from headrace.wire.batch import HEADER_SIZE
from headrace.wire.compression import decompress

NO_TIMESTAMP = -1

_SECTION = struct.Struct("=Q8q")
_SMALLEST_RECORD = 7


def _fields(*names: str, kind: Any = ctypes.c_int64) -> list[tuple[str, Any]]:
    return [(name, kind) for name in names]


class _Totals(ctypes.Structure):
    _fields_ = _fields(
        *("rows", "key_bytes", "value_bytes", "headers", "header_name_bytes", "header_value_bytes"),
        *("null_keys", "null_values", "null_header_values", "failed_section", "failed_record"),
    )


class _ScanOutput(ctypes.Structure):
    _fields_ = [
        *_fields("offsets", "timestamps", "keys", "values", "headers", "header_ends", kind=ctypes.c_void_p),
        *_fields("capacity"),
    ]


class _Column(ctypes.Structure):
    _fields_ = [
        *_fields("ends", "data", "validity", kind=ctypes.c_void_p),
        *_fields("first_bit", "data_size", "rows"),
    ]


class _HeaderColumn(ctypes.Structure):
    _fields_ = [("ends", ctypes.c_void_p), ("names", _Column), ("values", _Column)]


class _Written(ctypes.Structure):
    _fields_ = _fields("rows", "bytes", "base_timestamp", "max_timestamp", "needed")


def load(path: Path = LIBRARY) -> Compiled | None:
    """None when there is no library to use."""
    library = load_library(path)
    return None if library is None else Compiled(library)


class Compiled:
    name = "compiled"

    def __init__(self, library: ctypes.CDLL) -> None:
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        self._scan = function(library, "scan", pointer, number, pointer, pointer, pointer)
        self._gather = function(library, "gather", pointer, number, pointer, pointer, number, pointer)
        self._header_spans = function(library, "header_spans", pointer, number, pointer, pointer, number)
        self._encode = function(
            library, "encode", *[pointer] * 4, number, pointer, number, number, pointer, number, pointer
        )
        self._murmur2 = function(library, "murmur2", pointer, number, pointer)
        self._group = function(library, "group", pointer, number, number, pointer, pointer)

    # -- reading -------------------------------------------------------------------------------------------

    def decode(self, sections: Sequence[Section], wanted: frozenset[str]) -> Decoded:
        bodies, table, capacity = _section_table(sections)
        scratch = _Scratch(capacity, wanted, bodies)
        totals, rows = _Totals(), np.zeros(len(sections), np.int64)
        code = self._scan(
            _address(table),
            len(sections),
            ctypes.byref(scratch.output),
            ctypes.byref(totals),
            rows.ctypes.data,
        )
        if code < 0:
            raise DecodeError(_describe(sections, totals, code))
        columns = {}
        if "key" in wanted:
            columns["key"] = self._binary(scratch.keys, totals.rows, totals.key_bytes, totals.null_keys)
        if "value" in wanted:
            columns["value"] = self._binary(
                scratch.values, totals.rows, totals.value_bytes, totals.null_values
            )
        if "headers" in wanted:
            columns["headers"] = self._headers(scratch, totals)
        if "offset" in wanted:
            columns["offset"] = pa.array(scratch.offsets[: totals.rows])
        if "timestamp" in wanted:
            columns["timestamp"] = timestamp_column(scratch.timestamps[: totals.rows])
        return Decoded(rows, columns)

    def _binary(self, spans: Int64s, rows: int, size: int, nulls: int) -> Any:
        ends = pa.allocate_buffer(4 * (rows + 1))
        data = pa.allocate_buffer(size)
        validity = np.full((rows + 7) // 8, 0xFF, np.uint8) if nulls else None
        code = self._gather(
            spans.ctypes.data,
            rows,
            ends.address,
            data.address,
            size,
            None if validity is None else validity.ctypes.data,
        )
        if code < 0:
            raise DecodeError(FAULTS[code])
        bits = None if validity is None else pa.py_buffer(validity)
        return pa.Array.from_buffers(pa.binary(), rows, [bits, ends, data], nulls)

    def _headers(self, scratch: _Scratch, totals: _Totals) -> Any:
        count = totals.headers
        names, values = np.empty((count, 2), np.int64), np.empty((count, 2), np.int64)
        code = self._header_spans(
            scratch.headers.ctypes.data, totals.rows, names.ctypes.data, values.ctypes.data, count
        )
        if code != count:
            raise DecodeError(FAULTS.get(code, "headers changed while they were read"))
        name_column = as_text(self._binary(names, count, totals.header_name_bytes, 0))
        value_column = self._binary(values, count, totals.header_value_bytes, totals.null_header_values)
        structs = pa.StructArray.from_arrays([name_column, value_column], fields=list(HEADER))
        ends = pa.py_buffer(scratch.header_ends[: totals.rows + 1])
        return pa.Array.from_buffers(HEADERS, totals.rows, [None, ends], 0, children=[structs])

    # -- writing -------------------------------------------------------------------------------------------

    def encode(self, columns: RowColumns, rows: Int64s, *, limit: int, free: int) -> EncodedRows:
        keys, values = _column(columns.key), _column(columns.value)
        headers = _header_column(columns.headers)
        done = _Written()
        room = limit
        while True:
            buffer = bytearray(free + room)
            code = self._encode(
                *(ctypes.byref(each) for each in (keys, values, headers)),
                None if columns.timestamps is None else columns.timestamps.ctypes.data,
                columns.timestamp,
                rows.ctypes.data,
                len(rows),
                limit,
                _address(buffer) + free,
                room,
                ctypes.byref(done),
            )
            if code != NO_ROOM:
                break
            room = done.needed
        _check_column(code)
        del buffer[free + done.bytes :]
        return EncodedRows(buffer, done.rows, done.base_timestamp, done.max_timestamp)

    def murmur2(self, keys: Any) -> Int32s:
        hashes = np.empty(len(keys), np.int32)
        _check_column(self._murmur2(ctypes.byref(_column(keys)), len(keys), hashes.ctypes.data))
        return hashes

    def group(self, chosen: Int32s, partitions: int) -> tuple[Int64s, Int64s]:
        rows, ends = np.empty(len(chosen), np.int64), np.zeros(partitions + 1, np.int64)
        chosen = np.ascontiguousarray(chosen, np.int32)
        _check_column(
            self._group(chosen.ctypes.data, len(chosen), partitions, ends.ctypes.data, rows.ctypes.data)
        )
        return rows, ends


class _Scratch:
    """Where the first pass notes what it finds; columns that nobody wants have no place."""

    def __init__(self, capacity: int, wanted: frozenset[str], bodies: list[Any]) -> None:
        self.bodies = bodies  # what the notes point into
        self.offsets = np.empty(capacity if "offset" in wanted else 0, np.int64)
        self.timestamps = np.empty(capacity if "timestamp" in wanted else 0, np.int64)
        self.keys = np.empty((capacity if "key" in wanted else 0, 2), np.int64)
        self.values = np.empty((capacity if "value" in wanted else 0, 2), np.int64)
        self.headers = np.empty((capacity if "headers" in wanted else 0, 2), np.int64)
        self.header_ends = np.zeros(len(self.headers) + 1, np.int32)
        places = {
            name: getattr(self, name).ctypes.data if len(getattr(self, name)) else None
            for name in ("offsets", "timestamps", "keys", "values", "headers")
        }
        self.output = _ScanOutput(**places, header_ends=self.header_ends.ctypes.data + 4, capacity=capacity)


def timestamp_column(milliseconds: Int64s) -> Any:
    """-1 is Kafka's way to say that there is none."""
    absent = milliseconds == NO_TIMESTAMP
    if absent.any():
        return pa.array(milliseconds, mask=absent).cast(TIMESTAMP)
    return pa.Array.from_buffers(TIMESTAMP, len(milliseconds), [None, pa.py_buffer(milliseconds)], 0)


def as_text(names: Any) -> Any:
    """Header names as strings; bytes that are not UTF-8 become the replacement sign, as in Java."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string())


def _section_table(sections: Sequence[Section]) -> tuple[list[Any], bytearray, int]:
    """(what must stay alive, the sections as the C code reads them, how many records they can hold)."""
    alive, table, capacity = [], bytearray(), 0
    for section in sections:
        header = section.header
        body = section.batch[HEADER_SIZE : header.size]
        if header.codec and body:
            body = memoryview(decompress(header.codec, body))
        buffer = pa.py_buffer(body)
        alive.append(buffer)
        capacity += max(0, min(header.record_count, buffer.size // _SMALLEST_RECORD))
        table += _SECTION.pack(
            buffer.address,
            buffer.size,
            header.base_offset,
            header.base_timestamp,
            header.max_timestamp,
            header.timestamp_type,
            header.record_count,
            section.first_offset,
            section.end_offset,
        )
    return alive, table, capacity


def _describe(sections: Sequence[Section], totals: _Totals, code: int) -> str:
    section = sections[totals.failed_section]
    return (
        f"record {totals.failed_record} of the batch at offset {section.header.base_offset} "
        f"of partition {section.partition}: {FAULTS[code]}"
    )


def _check_column(code: int) -> None:
    if code < 0:
        raise ClientError(f"rows cannot be written: {FAULTS[code]}")


def _column(array: Any) -> _Column:
    if array is None:
        return _Column()
    validity, ends, data = array.buffers()
    return _Column(
        ends=0 if ends is None else ends.address + 4 * array.offset,
        data=0 if data is None else data.address,
        validity=None if validity is None else validity.address,
        first_bit=array.offset,
        data_size=0 if data is None else data.size,
        rows=len(array),
    )


def _header_column(array: Any) -> _HeaderColumn:
    if array is None:
        return _HeaderColumn()
    structs = array.values
    ends = array.buffers()[1]
    return _HeaderColumn(
        ends=ends.address + 4 * array.offset,
        names=_column(structs.field(0).cast(pa.binary())),
        values=_column(structs.field(1)),
    )


def _address(buffer: bytearray) -> int:
    return int(pa.py_buffer(buffer).address)
