# SPDX-License-Identifier: Apache-2.0
"""Writes values row by row, without compiled kernels: the same bytes.

Read next: sources.py.
"""

from __future__ import annotations

import json
import struct
from typing import Any

from headrace.client.arrow.values.nodes import NO_BRANCH, Fault, Kind
from headrace.client.arrow.values.sources import RowUnfit, Source

_ESCAPES = str.maketrans({**{chr(code): f"\\u{code:04x}" for code in range(0x20)}, '"': '\\"', "\\": "\\\\"})


def json_row(source: Source, row: int) -> bytes:
    try:
        return _json(source, row).encode()
    except _Unfit as error:
        raise RowUnfit(row, error.fault, error.path) from None


def avro_row(source: Source, row: int) -> bytes:
    try:
        return _avro(source, row)
    except _Unfit as error:
        raise RowUnfit(row, error.fault, error.path) from None


class _Unfit(Exception):
    def __init__(self, fault: Fault, path: str) -> None:
        self.fault = fault
        self.path = path


def _json(source: Source, row: int) -> str:
    value = source.array[row]
    if not value.is_valid:
        return "null"
    if source.kind is Kind.STRUCT:
        parts = (child.name.decode() + _json(child, row) for child in source.children)
        return "{" + ",".join(parts) + "}"
    if source.kind is Kind.LIST:
        return "[" + ",".join(_json(source.children[0], item) for item in _items(source, row)) + "]"
    if source.kind is Kind.MAP:
        keys, values = source.children
        return (
            "{" + ",".join(f"{_json(keys, item)}:{_json(values, item)}" for item in _items(source, row)) + "}"
        )
    text: str = value.as_py()
    if source.kind is Kind.STRING:
        return f'"{text.translate(_ESCAPES)}"'
    try:
        json.loads(text, parse_constant=lambda _: 1 / 0)
    except (ValueError, ZeroDivisionError):
        raise _Unfit(Fault.RANGE, source.path) from None
    return text


def _items(source: Source, row: int) -> range:
    """Of a list or map, in its child column."""
    ends = memoryview(source.array.buffers()[1]).cast("i")
    place = source.array.offset + row
    return range(ends[place], ends[place + 1])


def _branch(source: Source, row: int) -> bytes:
    """A union of several types is a struct of its branches: the first that is set counts."""
    for place, child in enumerate(source.children if source.array[row].is_valid else ()):
        if child.array[row].is_valid:
            return _long(place + (NO_BRANCH < source.null_branch <= place)) + _avro(child, row)
    if source.null_branch == NO_BRANCH:
        raise _Unfit(Fault.NULL, source.path)
    return _long(source.null_branch)


def _avro(source: Source, row: int) -> bytes:
    if source.kind is Kind.UNION:
        return _branch(source, row)
    there = source.kind is not Kind.NULL and source.array[row].is_valid
    branch = b""
    if source.null_branch != NO_BRANCH:
        branch = _long(1 - source.null_branch if there else source.null_branch)
    if source.kind is Kind.NULL or (not there and branch):
        return branch
    if not there:
        raise _Unfit(Fault.NULL, source.path)
    if source.kind is Kind.STRUCT:
        return branch + b"".join(_avro(child, row) for child in source.children)
    if source.kind in (Kind.LIST, Kind.MAP):
        items = _items(source, row)
        block = b"".join(_avro(child, item) for item in items for child in source.children)
        return branch + (_long(len(items)) + block if items else b"") + _long(0)
    return branch + _leaf(source, source.array[row].as_py())


def _leaf(source: Source, value: Any) -> bytes:
    if source.kind is Kind.BOOL:
        return b"\1" if value else b"\0"
    if source.kind in (Kind.INT, Kind.ENUM):
        if not source.low <= value <= source.high:
            raise _Unfit(Fault.RANGE, source.path)
        return _long(value)
    if source.kind is Kind.FLOAT:
        return struct.pack("<d", value)
    if source.kind is Kind.REAL32:
        return struct.pack("<f", value)
    if source.kind is Kind.FIXED:
        return bytes(value)
    if source.kind is Kind.DECIMAL:
        return _decimal(source, value)
    data = value.encode() if isinstance(value, str) else value
    return _long(len(data)) + data


def _decimal(source: Source, value: Any) -> bytes:
    sign, digits, exponent = value.as_tuple()
    power = int(source.array.type.scale + exponent)
    number: int = int("".join(map(str, digits))) * (-1 if sign else 1) * 10**power
    size = (number if number >= 0 else ~number).bit_length() // 8 + 1
    if source.high < 0:
        return _long(size) + number.to_bytes(size, "big", signed=True)
    if size > source.high:
        raise _Unfit(Fault.RANGE, source.path)
    return number.to_bytes(source.high, "big", signed=True)


def _long(value: int) -> bytes:
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)
