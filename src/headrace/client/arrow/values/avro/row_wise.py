# SPDX-License-Identifier: Apache-2.0
"""Reads Avro's binary encoding row by row, without compiled kernels: same rows, same rejects.

Read next: avro/nodes.py, values/row_arrays.py.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace.client.arrow.kernels.types import Int32s
from headrace.client.arrow.values.avro.nodes import DECIMAL_BYTES
from headrace.client.arrow.values.nodes import NO_BRANCH, Fault, Kind, Unfit, ValueNode
from headrace.client.arrow.values.row_arrays import array_of

_LONGEST_VARINT = 10


def read_avro_rows(nodes: Sequence[ValueNode], column: Any, prefix: int = 0) -> tuple[Any, Int32s]:
    """As KernelReader.read returns them."""
    faults = np.zeros((len(column), 3), np.int32)
    found: list[Any] = []
    for row, data in enumerate(column.to_pylist()):
        try:
            found.append(None if data is None else _Datum(nodes, data, prefix).whole())
        except Unfit as error:
            faults[row] = error.row
            found.append(None)
    return array_of(nodes, 0, found), faults


class _Datum:
    """One value in its bytes."""

    def __init__(self, nodes: Sequence[ValueNode], data: bytes, prefix: int) -> None:
        self._nodes = nodes
        self._data = data
        self._at = prefix
        if prefix > len(data):
            raise Unfit(Fault.CUT_OFF, 0)

    def whole(self) -> Any:
        value = self._value(0)
        if self._at != len(self._data):
            raise Unfit(Fault.LEFT_OVER, 0, self._at)
        return value

    def _value(self, place: int) -> Any:
        node = self._nodes[place]
        branch = 0
        if node.null_branch != NO_BRANCH or node.kind is Kind.UNION:
            branch = self._long(place)
            if branch == node.null_branch:
                return None
            if node.kind is not Kind.UNION and branch != 1 - node.null_branch:
                raise Unfit(Fault.BRANCH, place, self._at)
            branch -= NO_BRANCH < node.null_branch < branch
        children = range(node.first_child, node.first_child + node.children)
        if node.kind is Kind.STRUCT:
            return [self._value(child) for child in children]
        if node.kind is Kind.UNION:
            if not 0 <= branch < node.children:
                raise Unfit(Fault.BRANCH, place, self._at)
            return branch, self._value(children[branch])
        if node.kind in (Kind.LIST, Kind.MAP):
            return self._blocks(place, children)
        return self._leaf(place, node)

    def _leaf(self, place: int, node: ValueNode) -> Any:
        if node.kind is Kind.NULL:
            return None
        if node.kind in (Kind.INT, Kind.ENUM):
            return self._bounded(place, node)
        if node.kind is Kind.BOOL:
            (flag,) = self._take(place, 1)
            if flag > 1:
                raise Unfit(Fault.RANGE, place, self._at)
            return bool(flag)
        if node.kind is Kind.REAL32:
            return struct.unpack("<f", self._take(place, 4))[0]
        if node.kind is Kind.FLOAT:
            return struct.unpack("<d", self._take(place, 8))[0]
        if node.kind is Kind.FIXED:
            return self._take(place, node.low)
        if node.kind is Kind.DECIMAL:
            return self._decimal(place, node)
        data = self._take(place, self._long(place))
        return self._text(place, data) if node.kind is Kind.STRING else data

    def _text(self, place: int, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise Unfit(Fault.UTF8, place, self._at) from None

    def _bounded(self, place: int, node: ValueNode) -> int:
        value = self._long(place)
        low, high = (0, node.low - 1) if node.kind is Kind.ENUM else (node.low, node.high)
        if not low <= value <= high:
            raise Unfit(Fault.RANGE, place, self._at)
        return value

    def _decimal(self, place: int, node: ValueNode) -> int:
        data = self._take(place, self._long(place) if node.high < 0 else node.high)
        value = int.from_bytes(data, "big", signed=True)
        if not -(1 << (8 * DECIMAL_BYTES - 1)) <= value < 1 << (8 * DECIMAL_BYTES - 1):
            raise Unfit(Fault.RANGE, place, self._at)
        return value

    def _blocks(self, place: int, children: range) -> list[Any]:
        items: list[Any] = []
        while count := self._long(place):
            if count < 0:
                self._long(place)
            if abs(count) > len(self._data) - self._at:
                raise Unfit(Fault.LENGTH, place, self._at)
            for _ in range(abs(count)):
                parts = tuple(self._value(child) for child in children)
                items.append(parts if len(parts) > 1 else parts[0])
        return items

    def _take(self, place: int, size: int) -> bytes:
        if size < 0:
            raise Unfit(Fault.LENGTH, place, self._at)
        if size > len(self._data) - self._at:
            raise Unfit(Fault.CUT_OFF, place, self._at)
        self._at += size
        return self._data[self._at - size : self._at]

    def _long(self, place: int) -> int:
        raw = 0
        for step in range(_LONGEST_VARINT):
            if self._at >= len(self._data):
                raise Unfit(Fault.CUT_OFF, place, self._at)
            byte = self._data[self._at]
            self._at += 1
            raw |= (byte & 0x7F) << (7 * step)
            if byte < 0x80:
                if raw >> 64:
                    break
                return (raw >> 1) ^ -(raw & 1)
        raise Unfit(Fault.SYNTAX, place, self._at)
