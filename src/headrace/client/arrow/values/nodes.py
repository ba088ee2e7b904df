# SPDX-License-Identifier: Apache-2.0
"""A schema in the form that kernels use: a list of nodes, with the children of each adjacent. Plain data.

Read next: kernel_reader.py, which runs a kernel over them; json/nodes.py and avro/nodes.py, which make them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, NamedTuple

NO_BRANCH = -1


class Kind(IntEnum):
    """As in kernels/values.h."""

    BOOL = 0
    INT = 1
    FLOAT = 2
    STRING = 3
    TEXT = 4
    TIME = 5
    STRUCT = 6
    LIST = 7
    MAP = 8
    BYTES = 9
    FIXED = 10
    REAL32 = 11
    ENUM = 12
    UNION = 13
    NULL = 14
    DECIMAL = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueNode:
    """`type` is the Arrow type of its column; `path` names it in errors ("" is the whole value)."""

    kind: Kind
    type: Any
    path: str
    name: bytes = b""
    nullable: bool = True
    low: int = 0
    high: int = 0
    null_branch: int = NO_BRANCH
    symbols: tuple[str, ...] = ()
    first_child: int = 0
    children: int = 0


class Tree(NamedTuple):
    """A node with its children; `flatten` orders them."""

    node: ValueNode
    children: Sequence[Tree] = ()


def flatten(root: Tree) -> list[ValueNode]:
    """The root first; every node's children follow each other."""
    trees, nodes = [root], []
    for tree in trees:  # grows as it goes
        nodes.append(replace(tree.node, first_child=len(trees), children=len(tree.children)))
        trees.extend(tree.children)
    return nodes


class Fault(IntEnum):
    """Why a row cannot be read, as in kernels/values.h."""

    SYNTAX = 1
    CUT_OFF = 2
    KIND = 3
    RANGE = 4
    NULL = 5
    MISSING = 6
    TWICE = 7
    UTF8 = 8
    DEEP = 9
    LEFT_OVER = 10
    TIME = 11
    BRANCH = 12
    LENGTH = 13
    UNKNOWN = 14


class Unfit(Exception):
    """A row that cannot be read; `row` is what a kernel would report. Position -1: not known."""

    def __init__(self, fault: Fault, node: int, position: int = -1) -> None:
        self.row = (int(fault), node, position)
