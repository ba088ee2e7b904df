# SPDX-License-Identifier: Apache-2.0
"""Columns of one Avro schema as those of another, by Avro's rules of resolution, a whole column at a time.

Records are matched by the names and aliases of their fields; what the reader's schema has in addition takes
its default. Read next: schema.py, avro/reader.py.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.client.arrow.values.avro.nodes import arrow_type
from headrace.client.arrow.values.avro.schema import NO_DEFAULT, AvroField, AvroType
from headrace.client.errors import ClientError

_PROMOTIONS = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}


class Incompatible(ClientError):
    """Records of the one schema cannot be read as the other."""


def resolve(column: Any, writer: AvroType, reader: AvroType, path: str = "") -> Any:
    """Incompatible says at which field."""
    if writer == reader:
        return column
    old, new = writer.optional or writer, reader.optional or reader
    if old.kind == new.kind == "record":
        return _record(column, old, new, path)
    if old.kind == new.kind == "array":
        values = resolve(column.values, old.branches[0], new.branches[0], f"{path}[]")
        return _with_children(column, new, [values])
    if old.kind == new.kind == "map":
        items = resolve(column.items, old.branches[0], new.branches[0], f"{path}{{}}")
        kind = arrow_type(new)
        pairs = pa.StructArray.from_arrays([column.keys, items], fields=[kind.key_field, kind.item_field])
        return _with_children(column, new, [pairs])
    if old.kind == new.kind == "enum":
        return _enum(column, new, path)
    is_same = old.kind == new.kind and (old.kind != "fixed" or old.size == new.size) and old.kind != "union"
    if not is_same and new.kind not in _PROMOTIONS.get(old.kind, ()):
        raise _unlike(path, f"{old.kind} cannot be read as {new.kind}")
    try:
        return column.cast(arrow_type(new), safe=new.kind not in ("float", "double"))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise _unlike(path, str(error)) from None


def _record(column: Any, old: AvroType, new: AvroType, path: str) -> Any:
    places = {each.name: place for place, each in enumerate(old.fields)}
    children = []
    for each in new.fields:
        inner = f"{path}.{each.name}" if path else each.name
        known = next((name for name in (each.name, *each.aliases) if name in places), None)
        if known is None:
            children.append(_defaults(each, len(column), inner))
        else:
            place = places[known]
            children.append(resolve(column.field(place), old.fields[place].type, each.type, inner))
    if not children:
        return pa.array([{}] * len(column), pa.struct([]))
    return pa.StructArray.from_arrays(children, fields=list(arrow_type(new)), mask=column.is_null())


def _with_children(column: Any, new: AvroType, children: list[Any]) -> Any:
    return pa.Array.from_buffers(
        arrow_type(new), len(column), column.buffers()[:2], offset=column.offset, children=children
    )


def _enum(column: Any, new: AvroType, path: str) -> Any:
    symbols = pa.array(new.symbols, pa.string())
    texts = column.cast(pa.string())
    numbers = pc.index_in(texts, symbols)
    unknown = pc.and_(texts.is_valid(), numbers.is_null())
    if pc.any(unknown).as_py():
        if new.default_symbol not in new.symbols:
            raise _unlike(path, f"{texts.filter(unknown)[0].as_py()!r} is none of its symbols")
        numbers = pc.if_else(unknown, pa.scalar(new.symbols.index(new.default_symbol), pa.int32()), numbers)
    return pa.DictionaryArray.from_arrays(numbers, symbols)


def _defaults(field: AvroField, rows: int, path: str) -> Any:
    if field.default is NO_DEFAULT:
        raise _unlike(path, "it is not in the record, and has no default")
    try:
        one = pa.array([_default(field.type, field.default)], arrow_type(field.type))
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, KeyError) as error:
        raise _unlike(path, f"its default {field.default!r} is none: {error}") from None
    return one.take(pa.array(np.zeros(rows, np.int64)))


def _default(kind: AvroType, value: Any) -> Any:
    """As Python's Arrow takes it; the default of a union is one of its first branch, or null."""
    if kind.kind == "union":
        if value is None or kind.optional is not None:
            return None if value is None else _default(kind.optional or kind, value)
        members = [branch for branch in kind.branches if branch.kind != "null"]
        return {"member0": _default(members[0], value)}
    if kind.kind == "record":
        return {each.name: _default(each.type, value.get(each.name, each.default)) for each in kind.fields}
    if kind.kind == "array":
        return [_default(kind.branches[0], each) for each in value]
    if kind.kind == "map":
        return [(name, _default(kind.branches[0], each)) for name, each in value.items()]
    if kind.kind in ("bytes", "fixed"):
        data = value.encode("latin-1")
        if kind.logical != "decimal":
            return data
        return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-kind.scale)
    return value


def _unlike(path: str, why: str) -> Incompatible:
    return Incompatible(f"field {path!r}: {why}" if path else why)
