# SPDX-License-Identifier: Apache-2.0
"""Arrow columns made ready to be written as JSON: every leaf becomes text, by Arrow's own casts.

Moments are written as ISO 8601, in UTC where they have a zone. Read next: sources.py.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.client.arrow.values.nodes import Kind
from headrace.client.arrow.values.sources import Source
from headrace.client.errors import ClientError


def json_source(array: Any, path: str = "") -> Source:
    return _source(array, "", path)


def _source(array: Any, name: str, path: str) -> Source:
    array = plain_form(array)
    kind = array.type
    quoted = json.dumps(name, ensure_ascii=False).encode() + b":"
    if pa.types.is_struct(kind):
        children = [
            _source(array.field(place), field.name, f"{path}.{field.name}" if path else field.name)
            for place, field in enumerate(kind)
        ]
        return Source(Kind.STRUCT, array, path, quoted, children=children)
    if pa.types.is_list(kind):
        return Source(Kind.LIST, array, path, quoted, children=[_source(array.values, "", f"{path}[]")])
    if pa.types.is_map(kind):
        keys = Source(Kind.STRING, _text(array.keys, path), path)
        return Source(Kind.MAP, array, path, quoted, children=[keys, _source(array.items, "", f"{path}{{}}")])
    is_number = pa.types.is_boolean(kind) or pa.types.is_null(kind) or pa.types.is_decimal(kind)
    is_number = is_number or pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return Source(Kind.TEXT if is_number else Kind.STRING, _text(array, path), path, quoted)


def plain_form(array: Any) -> Any:
    """Without dictionaries and extensions, and with 32-bit ends: what the kernels know."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return plain_form(array.storage)
    if pa.types.is_dictionary(kind):
        if len(array.dictionary) == 0:  # below nulls, indices may stand that it does not have
            return plain_form(pa.nulls(len(array), kind.value_type))
        return plain_form(array.dictionary_decode())
    if pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return array.cast(pa.list_(kind.value_field))
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return array.cast(pa.string())
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return array.cast(pa.binary())
    return array


def _text(array: Any, path: str) -> Any:
    array = plain_form(array)
    kind = array.type
    if pa.types.is_string(kind):
        return array
    if pa.types.is_timestamp(kind):
        return _moments(array)
    if pa.types.is_duration(kind):
        array = array.cast(pa.int64())
    if pa.types.is_float16(kind):
        array = array.cast(pa.float32())
    if not pa.types.is_binary(kind) and not pa.types.is_fixed_size_binary(kind):
        try:
            return array.cast(pa.string())
        except pa.ArrowNotImplementedError:
            pass
    raise ClientError(
        f"{f'field {path!r}' if path else 'a column'} of type {kind} cannot be written as JSON",
        next_step="cast it to a string before writing",
    )


def _moments(array: Any) -> Any:
    zoned = array.type.tz is not None
    if zoned:
        array = array.cast(pa.timestamp(array.type.unit, "UTC")).cast(pa.timestamp(array.type.unit))
    text = pc.utf8_replace_slice(array.cast(pa.string()), start=10, stop=11, replacement="T")
    return pc.binary_join_element_wise(text, "Z", "") if zoned else text
