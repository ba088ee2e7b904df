# SPDX-License-Identifier: Apache-2.0
"""Arrow arrays from Python values that were read row by row, in the types of the nodes.

A struct is a list of its fields, a list a list, a map a list of pairs, a union a pair of branch and value,
an enum the number of its symbol; moments and decimals are whole numbers. Read next: avro/row_wise.py,
json/row_wise.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.client.arrow.values.nodes import Kind, ValueNode

_EXACT = Context(prec=80)


def array_of(nodes: Sequence[ValueNode], place: int, values: Sequence[Any]) -> Any:
    """Values below a null are null, whatever the schema says."""
    node = nodes[place]
    if node.kind is Kind.STRUCT:
        return _struct(nodes, place, values, lambda value, child: value[child])
    if node.kind is Kind.UNION:
        return _struct(nodes, place, values, lambda value, child: value[1] if value[0] == child else None)
    if node.kind in (Kind.LIST, Kind.MAP):
        ends = np.cumsum([0, *(len(value or ()) for value in values)], dtype=np.int32)
        there = np.array([value is not None for value in values], bool)
        bits = pa.py_buffer(np.packbits(there, bitorder="little"))
        items = [item for value in values for item in value or ()]
        children = [_items(nodes, place, items)]
        return pa.Array.from_buffers(node.type, len(values), [bits, pa.py_buffer(ends)], children=children)
    return _leaf(node, values)


def _leaf(node: ValueNode, values: Sequence[Any]) -> Any:
    if node.kind is Kind.ENUM:
        symbols = pa.array(node.symbols, pa.string())
        return pa.DictionaryArray.from_arrays(pa.array(values, pa.int32()), symbols)
    if node.kind is Kind.DECIMAL:
        scaled = [
            None if value is None else Decimal(value).scaleb(-node.type.scale, _EXACT) for value in values
        ]
        return pa.array(scaled, node.type)
    if node.kind in (Kind.INT, Kind.TIME):
        return pa.array(values, pa.int64() if node.type.bit_width == 64 else pa.int32()).cast(node.type)
    return pa.array(values, node.type)


def _struct(nodes: Sequence[ValueNode], place: int, values: Sequence[Any], part: Any) -> Any:
    node = nodes[place]
    if node.children == 0:
        return pa.array([None if value is None else {} for value in values], node.type)
    columns = [
        array_of(
            nodes,
            node.first_child + child,
            [None if value is None else part(value, child) for value in values],
        )
        for child in range(node.children)
    ]
    absent = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(columns, fields=list(node.type), mask=absent)


def _items(nodes: Sequence[ValueNode], place: int, items: Sequence[Any]) -> Any:
    node = nodes[place]
    if node.kind is Kind.LIST:
        return array_of(nodes, node.first_child, items)
    keys = array_of(nodes, node.first_child, [key for key, _ in items])
    values = array_of(nodes, node.first_child + 1, [value for _, value in items])
    return pa.StructArray.from_arrays([keys, values], fields=[node.type.key_field, node.type.item_field])
