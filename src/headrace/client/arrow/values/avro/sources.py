# SPDX-License-Identifier: Apache-2.0
"""Arrow columns made ready to be written as Avro by a schema: matched by name, cast where nothing is lost.

Read next: sources.py, derive.py (when no schema is given).
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.client.arrow.values.avro.nodes import DECIMAL_BYTES, arrow_type
from headrace.client.arrow.values.avro.schema import AvroType
from headrace.client.arrow.values.json.sources import plain_form
from headrace.client.arrow.values.nodes import NO_BRANCH, Kind
from headrace.client.arrow.values.sources import Source
from headrace.client.errors import ClientError

_BITS = {"int": 31, "long": 63}
_LEAVES = {
    "null": Kind.NULL,
    "boolean": Kind.BOOL,
    "float": Kind.REAL32,
    "double": Kind.FLOAT,
    "string": Kind.STRING,
    "bytes": Kind.BYTES,
}


def avro_source(array: Any, schema: AvroType, path: str = "") -> Source:
    """ClientError when a column is missing, is one too many, or cannot hold what the schema wants."""
    if schema.optional is not None:
        return avro_source(array, schema.optional, path)._replace(null_branch=schema.null_branch)
    if schema.kind == "enum":  # before dictionaries are unfolded
        return _enum(plain_form(array), schema, path)
    array = plain_form(array)
    if schema.kind == "union":
        return _union(array, schema, path)
    if schema.kind == "record":
        return _record(array, schema, path)
    if schema.kind == "array":
        _must(pa.types.is_list(array.type), array, schema, path)
        return Source(
            Kind.LIST, array, path, children=[avro_source(array.values, schema.branches[0], f"{path}[]")]
        )
    if schema.kind == "map":
        _must(pa.types.is_map(array.type), array, schema, path)
        keys = Source(Kind.STRING, _cast(array.keys, pa.string(), path), path)
        values = avro_source(array.items, schema.branches[0], f"{path}{{}}")
        return Source(Kind.MAP, array, path, children=[keys, values])
    return _leaf(array, schema, path)


def _record(array: Any, schema: AvroType, path: str) -> Source:
    _must(pa.types.is_struct(array.type), array, schema, path)
    places = {field.name: place for place, field in enumerate(array.type)}
    unknown = places.keys() - {each.name for each in schema.fields}
    if unknown:
        raise ClientError(
            f"the Avro schema has no field {_below(path, min(unknown))!r}", next_step="write fewer columns"
        )
    children = []
    for each in schema.fields:
        inner = _below(path, each.name)
        if each.name in places:
            children.append(avro_source(array.field(places[each.name]), each.type, inner))
        elif each.type.null_branch != NO_BRANCH or each.type.kind == "null":
            children.append(avro_source(pa.nulls(len(array), arrow_type(each.type)), each.type, inner))
        else:
            raise ClientError(f"no column for field {inner!r} of the Avro schema, which may not be null")
    return Source(Kind.STRUCT, array, path, children=children)


def _union(array: Any, schema: AvroType, path: str) -> Source:
    """A struct of `member0`, `member1`, …, as unions are read."""
    members = [branch for branch in schema.branches if branch.kind != "null"]
    places = {f"member{place}": place for place in range(len(members))}
    if not pa.types.is_struct(array.type) or any(field.name not in places for field in array.type):
        raise _cannot(path, f"{array.type} as a union, which is a struct of {', '.join(places)},")
    children = []
    for name, place in places.items():
        number = array.type.get_field_index(name)
        column = array.field(number) if number >= 0 else pa.nulls(len(array), arrow_type(members[place]))
        children.append(avro_source(column, members[place], _below(path, name)))
    return Source(Kind.UNION, array, path, null_branch=schema.null_branch, children=children)


def _enum(array: Any, schema: AvroType, path: str) -> Source:
    texts = _cast(array, pa.string(), path)
    numbers = pc.index_in(texts, pa.array(schema.symbols, pa.string())).cast(pa.int64())
    unknown = pc.and_(texts.is_valid(), numbers.is_null())
    numbers = pc.if_else(unknown, pa.scalar(-1, pa.int64()), numbers)
    return Source(Kind.ENUM, numbers, path, low=0, high=len(schema.symbols) - 1)


def _leaf(array: Any, schema: AvroType, path: str) -> Source:
    wanted = arrow_type(schema)
    if schema.logical == "decimal":
        size = schema.size if schema.kind == "fixed" else -1
        return Source(Kind.DECIMAL, _cast(array, wanted, path), path, low=DECIMAL_BYTES, high=size)
    if schema.kind == "fixed":
        return Source(Kind.FIXED, _cast(array, wanted, path), path, low=schema.size)
    if schema.kind in _BITS:
        if not pa.types.is_integer(wanted):
            array = _cast(array, wanted, path)
            array = array.cast(pa.int32() if wanted.bit_width == 32 else pa.int64())
        high = (1 << _BITS[schema.kind]) - 1
        return Source(Kind.INT, _cast(array, pa.int64(), path), path, low=-high - 1, high=high)
    return Source(_LEAVES[schema.kind], _cast(array, wanted, path), path)


def _cast(array: Any, wanted: Any, path: str) -> Any:
    if array.type == wanted:
        return array
    _must_be_alike(array.type, wanted, path)
    try:
        return array.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        where = f"field {path!r}" if path else "a value"
        raise ClientError(f"{where} cannot be written as Avro: {error}") from None


def _must_be_alike(kind: Any, wanted: Any, path: str) -> None:
    """Numbers are not quietly made text, nor text numbers."""

    def family(each: Any) -> str:
        if pa.types.is_string(each) or pa.types.is_binary(each) or pa.types.is_fixed_size_binary(each):
            return "text"
        if pa.types.is_temporal(each):
            return "moment"
        return "flag" if pa.types.is_boolean(each) else "number"

    if not pa.types.is_null(kind) and family(kind) != family(wanted):
        raise _cannot(path, f"{kind} as {wanted}")


def _must(fits: bool, array: Any, schema: AvroType, path: str) -> None:
    if not fits:
        raise _cannot(path, f"{array.type} as {schema.kind}")


def _cannot(path: str, what: str) -> ClientError:
    where = f"field {path!r}" if path else "a value"
    return ClientError(f"{where}: {what} cannot be written as Avro", next_step="cast it before writing")


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
