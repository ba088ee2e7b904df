# SPDX-License-Identifier: Apache-2.0
"""What an Avro schema is in Arrow, and the nodes that a kernel reads it by.

A union of null and one thing is that thing; any other union is a struct of `member0`, `member1`, …, of which
one is set, as Spark has it. Read next: schema.py, avro/reader.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from headrace.client.arrow.values.avro.schema import AvroType
from headrace.client.arrow.values.nodes import NO_BRANCH, Kind, Tree, ValueNode, flatten

DECIMAL_BYTES = 16
_LEAVES = {
    "null": (Kind.NULL, pa.null()),
    "boolean": (Kind.BOOL, pa.bool_()),
    "int": (Kind.INT, pa.int32()),
    "long": (Kind.INT, pa.int64()),
    "float": (Kind.REAL32, pa.float32()),
    "double": (Kind.FLOAT, pa.float64()),
    "bytes": (Kind.BYTES, pa.binary()),
    "string": (Kind.STRING, pa.string()),
}
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    **{
        ("long", f"{prefix}timestamp-{word}"): pa.timestamp(unit, zone)
        for prefix, zone in (("", "UTC"), ("local-", None))
        for word, unit in (("millis", "ms"), ("micros", "us"), ("nanos", "ns"))
    },
}


def avro_nodes(schema: AvroType) -> list[ValueNode]:
    return flatten(_tree(schema, "", "", NO_BRANCH))


def arrow_type(schema: AvroType) -> Any:
    return _tree(schema, "", "", NO_BRANCH).node.type


def _tree(schema: AvroType, name: str, path: str, null_branch: int) -> Tree:
    """`null_branch`: of the union of null and this."""
    if schema.optional is not None:
        return _tree(schema.optional, name, path, schema.null_branch)
    children: list[Tree] = []
    settings: dict[str, Any] = {}
    if schema.kind == "record":
        children = [_tree(each.type, each.name, _below(path, each.name), NO_BRANCH) for each in schema.fields]
        kind, arrow = Kind.STRUCT, pa.struct([_field(child) for child in children])
    elif schema.kind == "union":
        members = [branch for branch in schema.branches if branch.kind != "null"]
        children = [_member(branch, place, path) for place, branch in enumerate(members)]
        null_branch = schema.null_branch
        kind, arrow = Kind.UNION, pa.struct([_field(child) for child in children])
    elif schema.kind == "array":
        children = [_tree(schema.branches[0], "item", f"{path}[]", NO_BRANCH)]
        kind, arrow = Kind.LIST, pa.list_(_field(children[0]))
    elif schema.kind == "map":
        keys = Tree(ValueNode(kind=Kind.STRING, type=pa.string(), path=f"{path}{{}}", nullable=False))
        children = [keys, _tree(schema.branches[0], "value", f"{path}{{}}", NO_BRANCH)]
        kind, arrow = Kind.MAP, pa.map_(pa.string(), _field(children[1]))
    else:
        kind, arrow, settings = _leaf(schema)
    nullable = null_branch != NO_BRANCH or kind is Kind.NULL
    node = ValueNode(
        kind=kind,
        type=arrow,
        path=path,
        name=name.encode(),
        nullable=nullable,
        null_branch=null_branch,
        **settings,
    )
    return Tree(node, children)


def _member(branch: AvroType, place: int, path: str) -> Tree:
    """Of a union: null where another is set."""
    tree = _tree(branch, f"member{place}", _below(path, f"member{place}"), NO_BRANCH)
    return Tree(replace(tree.node, nullable=True), tree.children)


def _leaf(schema: AvroType) -> tuple[Kind, Any, dict[str, Any]]:
    if schema.logical == "decimal":
        size = schema.size if schema.kind == "fixed" else -1
        arrow = pa.decimal128(schema.precision, schema.scale)
        return Kind.DECIMAL, arrow, {"low": DECIMAL_BYTES, "high": size}
    if schema.kind == "fixed":
        return Kind.FIXED, pa.binary(schema.size), {"low": schema.size}
    if schema.kind == "enum":
        arrow = pa.dictionary(pa.int32(), pa.string())
        return Kind.ENUM, arrow, {"low": len(schema.symbols), "symbols": schema.symbols}
    kind, arrow = _LEAVES[schema.kind]
    if kind is Kind.INT:
        bits = arrow.bit_width - 1
        arrow = _LOGICAL.get((schema.kind, schema.logical), arrow)
        return kind, arrow, {"low": -(1 << bits), "high": (1 << bits) - 1}
    return kind, arrow, {}


def _field(tree: Tree) -> Any:
    return pa.field(tree.node.name.decode(), tree.node.type, tree.node.nullable)


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
