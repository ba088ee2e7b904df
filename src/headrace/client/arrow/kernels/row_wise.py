# SPDX-License-Identifier: Apache-2.0
"""The kernels without a compiler: row by row with wire/records.py, hashes and grouping with NumPy.

Same results as compiled.py, some hundred times slower; the tests hold the two together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.client.arrow.fetch.sections import Section
from headrace.client.arrow.kernels.types import (
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
from headrace.wire.records import NO_TIMESTAMP, Record, encode_records, iter_records

_MURMUR2_SEED = np.uint32(0x9747B28C)
_MURMUR2_M = np.uint32(0x5BD1E995)
_BUILDERS: dict[str, Callable[[list[Record]], Any]] = {
    "key": lambda records: pa.array([record.key for record in records], pa.binary()),
    "value": lambda records: pa.array([record.value for record in records], pa.binary()),
    "headers": lambda records: pa.array([_header_dicts(record) for record in records], HEADERS),
    "offset": lambda records: pa.array([record.offset for record in records], pa.int64()),
    "timestamp": lambda records: pa.array([_time_or_none(record) for record in records], TIMESTAMP),
}


class RowWise:
    name = "row-wise"

    def decode(self, sections: Sequence[Section], wanted: frozenset[str]) -> Decoded:
        records: list[Record] = []
        rows = np.zeros(len(sections), np.int64)
        for place, section in enumerate(sections):
            before = len(records)
            records += [
                record
                for record in iter_records(section.batch)
                if section.first_offset <= record.offset < section.end_offset
            ]
            rows[place] = len(records) - before
        try:
            return Decoded(rows, {name: make(records) for name, make in _BUILDERS.items() if name in wanted})
        except (OverflowError, pa.ArrowInvalid) as error:
            raise DecodeError(f"a record does not fit its column: {error}") from None

    def encode(self, columns: RowColumns, rows: Int64s, *, limit: int, free: int) -> EncodedRows:
        buffer = bytearray(free)
        taken = 0
        base = latest = _time_of(columns, int(rows[0]))
        for number, row in enumerate(rows.tolist()):
            record = _record(columns, row, number)
            encoded = encode_records([record], base_offset=0, base_timestamp=base)
            if taken and len(buffer) - free + len(encoded) > limit:
                break
            buffer += encoded
            taken += 1
            latest = max(latest, record.timestamp)
        return EncodedRows(buffer, taken, base, latest)

    def murmur2(self, keys: Any) -> Int32s:
        starts, sizes, data = _places(keys)
        value: Any = _MURMUR2_SEED ^ sizes.astype(np.uint32)
        for step in range(int(sizes.max(initial=0)) // 4):
            at = np.flatnonzero(sizes >= 4 * (step + 1))
            word = _little_endian(data, starts[at] + 4 * step, 4) * _MURMUR2_M
            value[at] = value[at] * _MURMUR2_M ^ (word ^ word >> 24) * _MURMUR2_M
        for rest in (1, 2, 3):
            at = np.flatnonzero(sizes % 4 == rest)
            tail = _little_endian(data, starts[at] + sizes[at] - rest, rest)
            value[at] = (value[at] ^ tail) * _MURMUR2_M
        value = (value ^ value >> 13) * _MURMUR2_M
        hashes: Int32s = (value ^ value >> 15).view(np.int32)
        hashes[keys.is_null().to_numpy(zero_copy_only=False)] = 0
        return hashes

    def group(self, chosen: Int32s, partitions: int) -> tuple[Int64s, Int64s]:
        if len(chosen) and not 0 <= chosen.min() <= chosen.max() < partitions:
            raise ClientError("rows cannot be written: a partition does not exist")
        ends = np.zeros(partitions + 1, np.int64)
        np.cumsum(np.bincount(chosen, minlength=partitions), out=ends[1:])
        return np.argsort(chosen, kind="stable").astype(np.int64), ends


def _places(keys: Any) -> tuple[Int64s, Int64s, Any]:
    """(where each key begins, its size, the bytes), of a binary column that may be a slice."""
    _, ends, data = keys.buffers()
    if not len(keys) or data is None:
        zeros = np.zeros(len(keys), np.int64)
        return zeros, zeros, np.zeros(0, np.uint8)
    bounds = np.frombuffer(ends, np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    return bounds[:-1], np.diff(bounds), np.frombuffer(data, np.uint8)


def _little_endian(data: Any, starts: Int64s, width: int) -> Any:
    value = np.zeros(len(starts), np.uint32)
    for byte in range(width):
        value |= data[starts + byte].astype(np.uint32) << np.uint32(8 * byte)
    return value


def _header_dicts(record: Record) -> list[dict[str, Any]]:
    return [{"key": _plain_text(name), "value": value} for name, value in record.headers]


def _plain_text(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _time_or_none(record: Record) -> int | None:
    return None if record.timestamp == NO_TIMESTAMP else record.timestamp


def _time_of(columns: RowColumns, row: int) -> int:
    return columns.timestamp if columns.timestamps is None else int(columns.timestamps[row])


def _record(columns: RowColumns, row: int, number: int) -> Record:
    headers = () if columns.headers is None else columns.headers[row].as_py()
    return Record(
        offset=number,
        timestamp=_time_of(columns, row),
        key=None if columns.key is None else columns.key[row].as_py(),
        value=None if columns.value is None else columns.value[row].as_py(),
        headers=tuple((header["key"], header["value"]) for header in headers),
    )
