# SPDX-License-Identifier: Apache-2.0
"""Runs a kernel of kernels/values.h over a column of bytes, with growing buffers, and builds Arrow arrays.

The only caller of kernels/json.c and kernels/avro.c, whose structures these mirror. Read next: nodes.py.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.client.arrow.kernels.types import Int32s
from headrace.client.arrow.values.nodes import Kind, ValueNode
from headrace.kernels.library import NO_ROOM

_WITH_ENDS = {Kind.STRING, Kind.TEXT, Kind.BYTES, Kind.LIST, Kind.MAP}
_WITH_SIZE = {Kind.FIXED, Kind.DECIMAL}
_WITH_DATA = {Kind.STRING, Kind.TEXT, Kind.BYTES, *_WITH_SIZE}
_WITHOUT_VALUES = {Kind.STRUCT, Kind.UNION, Kind.NULL, *_WITH_SIZE}
_NOT_PLAIN = frozenset(b'"\\')
_FIRST_DATA_PER_ROW = 16
_LEAST = 64
_WORTH_TRIMMING = 1.25


class _Node(ctypes.Structure):
    _fields_ = [
        *[(name, ctypes.c_int32) for name in ("kind", "first_child", "children", "nullable")],
        ("name", ctypes.c_char_p),
        *[(name, ctypes.c_int64) for name in ("name_size", "plain_name", "low", "high", "null_branch")],
        *[(name, ctypes.c_void_p) for name in ("validity", "data", "values")],
        *[(name, ctypes.c_int64) for name in ("entries", "capacity", "data_size", "data_capacity")],
    ]


class _Rows(ctypes.Structure):
    _fields_ = [
        *[(name, ctypes.c_void_p) for name in ("ends", "data", "validity")],
        *[(name, ctypes.c_int64) for name in ("first_bit", "rows", "prefix")],
    ]


class _Buffers:
    """The buffers of one node."""

    def __init__(self, node: ValueNode) -> None:
        self.node = node
        self.validity = np.empty(0, np.uint8)
        self.values = np.zeros(1 if node.kind in _WITH_ENDS else 0, _values_type(node.kind))
        self.data = np.empty(0, np.uint8)

    def grow(self, entries: int, data: int) -> None:
        self.validity = _larger(self.validity, entries)
        if self.node.kind not in _WITHOUT_VALUES:
            self.values = _larger(self.values, entries + (self.node.kind in _WITH_ENDS))
        if self.node.kind in _WITH_DATA:
            self.data = _larger(self.data, data)

    def show(self, raw: _Node) -> None:
        raw.validity, raw.capacity = self.validity.ctypes.data, len(self.validity)
        raw.values = None if self.node.kind in _WITHOUT_VALUES else self.values.ctypes.data
        raw.data, raw.data_capacity = self.data.ctypes.data, len(self.data)


class KernelReader:
    """Reads columns of one schema; the size of the last one is the estimate for the next."""

    def __init__(self, nodes: Sequence[ValueNode], kernel: Any) -> None:
        self._nodes = nodes
        self._kernel = kernel
        self._per_row = [1.0] * len(nodes)
        self._data_per_row = [
            float(node.low if node.kind in _WITH_SIZE else _FIRST_DATA_PER_ROW) for node in nodes
        ]

    def read(self, column: Any, prefix: int = 0) -> tuple[Any, Int32s]:
        """(a column as long as this binary one; for each row a fault or 0, its node, and at which byte)."""
        raw = (_Node * len(self._nodes))(*(_raw(node) for node in self._nodes))
        buffers = [_Buffers(node) for node in self._nodes]
        for place, each in enumerate(buffers):
            each.grow(
                int(self._per_row[place] * len(column)) + _LEAST,
                int(self._data_per_row[place] * len(column)) + _LEAST,
            )
            each.show(raw[place])
        faults = np.zeros((len(column), 3), np.int32)
        self._run(raw, buffers, _rows(column, prefix), faults)
        for place, each in enumerate(raw):
            self._per_row[place] = 1.1 * each.entries / max(len(column), 1)
            self._data_per_row[place] = 1.1 * each.data_size / max(len(column), 1)
        return _Assembly(self._nodes, raw, buffers).array(0), faults

    def _run(self, raw: Any, buffers: list[_Buffers], rows: _Rows, faults: Int32s) -> None:
        saved, stopped = np.empty(2 * len(raw), np.int64), np.zeros(2, np.int64)
        arguments = (ctypes.byref(rows), saved.ctypes.data, faults.ctypes.data, stopped.ctypes.data)
        while self._kernel(raw, len(raw), arguments[0], int(stopped[0]), *arguments[1:]) == NO_ROOM:
            place = int(stopped[1])
            # The row without room was rolled back; which buffer was too small is not known.
            buffers[place].grow(2 * raw[place].capacity, 2 * raw[place].data_capacity)
            buffers[place].show(raw[place])


class _Assembly:
    """Arrow arrays from filled buffers."""

    def __init__(self, nodes: Sequence[ValueNode], raw: Any, buffers: Sequence[_Buffers]) -> None:
        self._nodes = nodes
        self._raw = raw
        self._buffers = buffers

    def array(self, place: int) -> Any:
        node, entries = self._nodes[place], int(self._raw[place].entries)
        # Below a null there are entries also of what is never null itself: they are not looked at.
        bits = _bits(self._buffers[place].validity[:entries]) if node.nullable or place == 0 else None
        children = [self.array(node.first_child + child) for child in range(node.children)]
        if node.kind is Kind.NULL:
            return pa.nulls(entries)
        if node.kind in (Kind.STRUCT, Kind.UNION):
            return pa.Array.from_buffers(node.type, entries, [bits], children=children)
        if node.kind in _WITH_SIZE:
            return pa.Array.from_buffers(node.type, entries, [bits, self._data(place)])
        values = self._buffers[place].values
        if node.kind not in _WITH_ENDS:
            return _numbers(node, values[:entries], bits)
        ends = pa.py_buffer(_trimmed(values, entries + 1))
        if node.kind is Kind.LIST:
            return pa.Array.from_buffers(node.type, entries, [bits, ends], children=children)
        if node.kind is Kind.MAP:
            pairs = pa.StructArray.from_arrays(children, fields=[node.type.key_field, node.type.item_field])
            return pa.Array.from_buffers(node.type, entries, [bits, ends], children=[pairs])
        return pa.Array.from_buffers(node.type, entries, [bits, ends, self._data(place)])

    def _data(self, place: int) -> Any:
        return pa.py_buffer(_trimmed(self._buffers[place].data, int(self._raw[place].data_size)))


def _numbers(node: ValueNode, values: Any, bits: Any) -> Any:
    if node.kind is Kind.BOOL:
        packed = pa.py_buffer(np.packbits(values, bitorder="little"))
        return pa.Array.from_buffers(node.type, len(values), [bits, packed])
    if node.kind is Kind.ENUM:
        numbers = pa.Array.from_buffers(
            pa.int32(), len(values), [bits, pa.py_buffer(values.astype(np.int32))]
        )
        return pa.DictionaryArray.from_arrays(numbers, pa.array(node.symbols, pa.string()))
    if node.kind in (Kind.FLOAT, Kind.REAL32):
        values = values.view(np.float64)
        if node.type.bit_width < 64:
            values = values.astype(np.float32)
    elif node.type.bit_width < 64:
        values = values.astype(f"i{node.type.bit_width // 8}")  # its bounds were checked
    return pa.Array.from_buffers(node.type, len(values), [bits, pa.py_buffer(np.ascontiguousarray(values))])


def _raw(node: ValueNode) -> _Node:
    return _Node(
        kind=node.kind,
        first_child=node.first_child,
        children=node.children,
        nullable=node.nullable,
        name=node.name,
        name_size=len(node.name),
        plain_name=not any(byte in _NOT_PLAIN or byte < 0x20 for byte in node.name),
        low=node.low,
        high=node.high,
        null_branch=node.null_branch,
    )


def _rows(column: Any, prefix: int) -> _Rows:
    validity, ends, data = column.buffers()
    return _Rows(
        ends=0 if ends is None else ends.address + 4 * column.offset,
        data=0 if data is None else data.address,
        validity=None if validity is None else validity.address,
        first_bit=column.offset,
        rows=len(column),
        prefix=prefix,
    )


def _values_type(kind: Kind) -> Any:
    if kind in _WITH_ENDS:
        return np.int32
    return np.uint8 if kind is Kind.BOOL else np.int64


def _larger(array: Any, size: int) -> Any:
    if size <= len(array):
        return array
    larger = np.empty(size, array.dtype)
    larger[: len(array)] = array
    return larger


def _trimmed(array: Any, size: int) -> Any:
    """The used part; copied if much is unused."""
    return array[:size] if len(array) <= size * _WORTH_TRIMMING else array[:size].copy()


def _bits(validity: Any) -> Any:
    return None if validity.all() else pa.py_buffer(np.packbits(validity, bitorder="little"))
