# SPDX-License-Identifier: Apache-2.0
"""Which Arrow types JSON can be read as, and the nodes that a kernel reads them by.

A field that is marked as JSON_TEXT holds whatever stands there, as its text. Read next: json/reader.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from headrace.client.arrow.values.nodes import Kind, Tree, ValueNode, flatten
from headrace.client.errors import ClientError

JSON_TEXT = {b"headrace.json": b"text"}
"""Metadata of a string field that takes any JSON value as it is written."""
_DEEPEST = 64
_TICKS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_READABLE = "bool, integers, floats, string, timestamp, date32, list, struct, or map with string keys"


def json_nodes(field: Any, *, is_all: bool = False) -> list[ValueNode]:
    """`is_all`: a field that the schema does not have is a fault of its record."""
    nodes = flatten(_tree(field, "", 0))
    return [replace(node, low=int(is_all)) if node.kind is Kind.STRUCT else node for node in nodes]


def is_text(field: Any) -> bool:
    return bool(field.metadata) and field.metadata.get(b"headrace.json") == b"text"


def _tree(field: Any, path: str, depth: int) -> Tree:
    kind = field.type
    if depth > _DEEPEST:
        raise ClientError(f"the schema is nested deeper than {_DEEPEST} levels at {path!r}")
    if is_text(field) and pa.types.is_string(kind):
        return _leaf(Kind.TEXT, field, path)
    for fits, make in _MAKERS:
        if fits(kind):
            return make(field, path, depth)
    raise ClientError(
        f"{f'field {path!r}' if path else 'a value'} of type {kind} cannot be read from JSON",
        next_step=f"choose from {_READABLE}, and cast afterwards",
    )


def _leaf(kind: Kind, field: Any, path: str, low: int = 0, high: int = 0) -> Tree:
    return Tree(_node(kind, field, path, low, high))


def _node(kind: Kind, field: Any, path: str, low: int = 0, high: int = 0) -> ValueNode:
    return ValueNode(
        kind=kind,
        type=field.type,
        path=path,
        name=field.name.encode(),
        nullable=field.nullable,
        low=low,
        high=high,
    )


def _integer(field: Any, path: str, _depth: int) -> Tree:
    bits = field.type.bit_width
    if pa.types.is_signed_integer(field.type):
        return _leaf(Kind.INT, field, path, -(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    return _leaf(Kind.INT, field, path, 0, (1 << bits) - 1)


def _time(field: Any, path: str, _depth: int) -> Tree:
    if pa.types.is_date32(field.type):
        return _leaf(Kind.TIME, field, path)
    return _leaf(Kind.TIME, field, path, _TICKS[field.type.unit], int(field.type.tz is not None))


def _struct(field: Any, path: str, depth: int) -> Tree:
    names = [child.name for child in field.type]
    if len(set(names)) < len(names):
        raise ClientError(f"two fields of {path or 'the value'!r} have one name")
    children = [
        _tree(child, f"{path}.{child.name}" if path else child.name, depth + 1) for child in field.type
    ]
    return Tree(_node(Kind.STRUCT, field, path), children)


def _list(field: Any, path: str, depth: int) -> Tree:
    return Tree(_node(Kind.LIST, field, path), [_tree(field.type.value_field, f"{path}[]", depth + 1)])


def _map(field: Any, path: str, depth: int) -> Tree:
    children = [
        _tree(each, f"{path}{{}}", depth + 1) for each in (field.type.key_field, field.type.item_field)
    ]
    return Tree(_node(Kind.MAP, field, path), children)


def _is_number_type(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) and kind != pa.uint64())


_MAKERS: tuple[tuple[Callable[[Any], bool], Callable[[Any, str, int], Tree]], ...] = (
    (pa.types.is_boolean, lambda field, path, _: _leaf(Kind.BOOL, field, path)),
    (_is_number_type, _integer),
    (pa.types.is_float64, lambda field, path, _: _leaf(Kind.FLOAT, field, path)),
    (pa.types.is_float32, lambda field, path, _: _leaf(Kind.FLOAT, field, path, low=1)),
    (pa.types.is_string, lambda field, path, _: _leaf(Kind.STRING, field, path)),
    (lambda kind: pa.types.is_timestamp(kind) or pa.types.is_date32(kind), _time),
    (pa.types.is_struct, _struct),
    (pa.types.is_list, _list),
    (lambda kind: pa.types.is_map(kind) and pa.types.is_string(kind.key_type), _map),
)
