# SPDX-License-Identifier: Apache-2.0
"""Avro schemas: from JSON to values in which every name is resolved. Pure.

Schemas that no column can hold (a record within itself) are refused. Read next: avro/nodes.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.client.errors import ClientError

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NO_DEFAULT = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroField:
    name: str
    type: AvroType
    default: Any = field(default=NO_DEFAULT, hash=False)
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroType:
    """`kind` is Avro's word; a list has its items in `branches`, a map its values."""

    kind: str
    name: str = ""
    fields: tuple[AvroField, ...] = ()
    branches: tuple[AvroType, ...] = ()
    symbols: tuple[str, ...] = ()
    default_symbol: str | None = None
    size: int = 0
    logical: str = ""
    precision: int = 0
    scale: int = 0

    @property
    def optional(self) -> AvroType | None:
        """What a union of null and one other thing holds."""
        others = [branch for branch in self.branches if branch.kind != "null"]
        return others[0] if self.kind == "union" and len(self.branches) == 2 and len(others) == 1 else None

    @property
    def null_branch(self) -> int:
        """-1: it has none."""
        if self.kind != "union":
            return -1
        return next((place for place, each in enumerate(self.branches) if each.kind == "null"), -1)


def parse_schema(schema: Any, references: Iterable[Any] = ()) -> AvroType:
    """`references` are schemas whose names this one uses, those that others use first."""
    names: dict[str, AvroType | None] = {}
    for each in references:
        _parse(_loaded(each), names, "", "")
    return _parse(_loaded(schema), names, "", "")


def _loaded(schema: Any) -> Any:
    if not isinstance(schema, str) or schema in PRIMITIVES:
        return schema
    try:
        return json.loads(schema)
    except ValueError as error:
        raise ClientError(f"the Avro schema is not JSON: {error}") from None


def _parse(schema: Any, names: dict[str, AvroType | None], namespace: str, path: str) -> AvroType:
    if isinstance(schema, str):
        return _named(schema, names, namespace, path)
    if isinstance(schema, list):
        branches = tuple(_parse(branch, names, namespace, path) for branch in schema)
        if not branches or any(branch.kind == "union" for branch in branches):
            raise _bad(path, "a union is empty or holds another")
        return AvroType(kind="union", branches=branches)
    if not isinstance(schema, Mapping) or "type" not in schema:
        raise _bad(path, f"{schema!r} is no type")
    kind = schema["type"]
    if not isinstance(kind, str):
        return _parse(kind, names, namespace, path)
    if kind in ("array", "map"):
        inner = schema.get("items" if kind == "array" else "values")
        item = _parse(inner, names, namespace, f"{path}[]")
        if _is_nothing(item):
            raise _bad(path, f"items of {kind} {path!r} take no bytes, so that their number has no bound")
        return AvroType(kind=kind, branches=(item,))
    if kind in ("record", "error", "enum", "fixed"):
        return _define(schema, kind, names, namespace, path)
    found = _named(kind, names, namespace, path)
    return _with_logical(found, schema) if found.kind in PRIMITIVES else found


def _named(name: str, names: dict[str, AvroType | None], namespace: str, path: str) -> AvroType:
    if name in PRIMITIVES:
        return AvroType(kind=name)
    for full in (_full_name(name, namespace), name):
        if full in names:
            found = names[full]
            if found is None:
                raise _bad(path, f"record {full!r} holds itself, which no column can")
            return found
    raise _bad(path, f"{name!r} is not defined")


def _define(
    schema: Mapping[str, Any], kind: str, names: dict[str, AvroType | None], namespace: str, path: str
) -> AvroType:
    if not isinstance(schema.get("name"), str):
        raise _bad(path, f"a type of kind {kind} has no name")
    full = _full_name(schema["name"], schema.get("namespace", namespace))
    names[full] = None
    if kind == "enum":
        symbols = tuple(schema.get("symbols") or ())
        made = AvroType(kind=kind, name=full, symbols=symbols, default_symbol=schema.get("default"))
    elif kind == "fixed":
        size = schema.get("size")
        if not isinstance(size, int) or not 0 <= size <= 1 << 20:
            raise _bad(path, f"fixed type {full!r} has size {size!r}, not 0 to 1,048,576")
        made = _with_logical(AvroType(kind=kind, name=full, size=size), schema)
    else:
        made = AvroType(kind="record", name=full, fields=_fields(schema, names, full, path))
    names[full] = made
    return made


def _fields(
    schema: Mapping[str, Any], names: dict[str, AvroType | None], full: str, path: str
) -> tuple[AvroField, ...]:
    namespace = full.rpartition(".")[0]
    found: list[AvroField] = []
    for each in schema.get("fields") or ():
        if not isinstance(each, Mapping) or not isinstance(each.get("name"), str) or "type" not in each:
            raise _bad(path, f"{each!r} is no field of record {full!r}")
        name = each["name"]
        found.append(
            AvroField(
                name=name,
                type=_parse(each["type"], names, namespace, f"{path}.{name}" if path else name),
                default=each.get("default", NO_DEFAULT),
                aliases=tuple(each.get("aliases") or ()),
            )
        )
    if len({each.name for each in found}) < len(found):
        raise _bad(path, f"two fields of record {full!r} have one name")
    return tuple(found)


def _with_logical(found: AvroType, schema: Mapping[str, Any]) -> AvroType:
    """A logical type that makes no sense here is passed over, as Avro has it."""
    logical = schema.get("logicalType")
    if logical == "decimal" and found.kind in ("bytes", "fixed"):
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision <= 38:
            return found
        return AvroType(
            kind=found.kind,
            name=found.name,
            size=found.size,
            logical=logical,
            precision=precision,
            scale=scale,
        )
    if isinstance(logical, str) and found.kind in ("int", "long"):
        return AvroType(kind=found.kind, logical=logical)
    return found


def _is_nothing(item: AvroType) -> bool:
    if item.kind == "record":
        return all(_is_nothing(each.type) for each in item.fields)
    return item.kind == "null" or (item.kind == "fixed" and item.size == 0)


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _bad(path: str, what: str) -> ClientError:
    return ClientError(f"Avro schema{f' at field {path!r}' if path else ''}: {what}")
