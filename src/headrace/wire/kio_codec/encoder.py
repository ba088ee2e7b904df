# SPDX-License-Identifier: Apache-2.0
"""Compiles kio's classes into encoders of plain dict trees: no message object is built to be written.

Durations and times are milliseconds; a uuid may be None (zero). Keys that this version lacks are dropped,
keys that no version has are a bug and raise. Read next: schema.py, ../messages.py.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from headrace.wire.kio_codec.schema import (
    FieldSpec,
    Kind,
    field_names,
    fields_of,
    message_class,
    message_versions,
)
from headrace.wire.primitives import compact_string, string, uvarint

Fields = Mapping[str, Any]
WriteStruct = Callable[[bytearray, Fields], None]
_WriteValue = Callable[[bytearray, Any], None]

_LONG_ARRAY = 127
"""From here the count of a compact array takes more than one byte."""

FIXED_FORMATS = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float64": "d",
    "bool": "?",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
}


@cache
def message_encoder(name: str, version: int, kind: Kind) -> WriteStruct:
    """Writes a message body, header excluded, to the end of a bytearray."""
    return _compile_struct(_Message(name, kind), message_class(name, version, kind), ())


class EncodedItems:
    """Items of an array that are encoded as they come, so that a long reply is never a tree of objects.

    Takes the place of the list in the fields of a message of the same version; `field` is a top-level array.
    """

    __slots__ = ("_count", "_write", "encoded")

    def __init__(self, name: str, version: int, kind: Kind, field: str) -> None:
        self.encoded = bytearray()
        self._count = 0
        self._write = _item_encoder(name, version, kind, field)

    def append(self, fields: Fields) -> None:
        self._write(self.encoded, fields)
        self._count += 1

    def __len__(self) -> int:
        return self._count


@cache
def _item_encoder(name: str, version: int, kind: Kind, field: str) -> WriteStruct:
    (spec,) = (spec for spec in fields_of(message_class(name, version, kind)) if spec.name == field)
    return _compile_struct(_Message(name, kind), spec.struct, (field,))


class _Message:
    """The message being compiled; knows which field names its other versions have."""

    def __init__(self, name: str, kind: Kind) -> None:
        self.name = name
        self.kind: Kind = kind

    def names_in_any_version(self, path: tuple[str, ...]) -> frozenset[str]:
        found: set[str] = set()
        for version in message_versions(self.name):
            found |= field_names(message_class(self.name, version, self.kind), path) or frozenset()
        return frozenset(found)

    def check_names(self, path: tuple[str, ...], fields: Fields) -> frozenset[str]:
        """All names that any version has; TypeError when a key is not among them."""
        known = self.names_in_any_version(path)
        unknown = sorted(set(fields) - known)
        if unknown:
            where = ".".join((f"{self.name} {self.kind}", *path))
            raise TypeError(f"{where} has no field {unknown} in any version; it has {sorted(known)}")
        return known


def _compile_struct(message: _Message, cls: Any, path: tuple[str, ...]) -> WriteStruct:
    flexible = bool(cls.__flexible__)
    specs = fields_of(cls)
    steps = _compile_untagged(message, [spec for spec in specs if spec.tag is None], path, flexible)
    if flexible:
        tagged = sorted((spec for spec in specs if spec.tag is not None), key=lambda spec: spec.tag or 0)
        steps.append(_compile_tagged(message, tagged, path))
    allowed = frozenset(spec.name for spec in specs)

    def write(out: bytearray, fields: Fields) -> None:
        nonlocal allowed
        if not fields.keys() <= allowed:
            allowed = message.check_names(path, fields)
        for step in steps:
            step(out, fields)

    return write


def _compile_untagged(
    message: _Message, specs: Sequence[FieldSpec], path: tuple[str, ...], flexible: bool
) -> list[WriteStruct]:
    """One step per field, neighbours of fixed width packed together."""
    steps: list[WriteStruct] = []
    run: list[FieldSpec] = []
    for spec in specs:
        if spec.kind in FIXED_FORMATS and not spec.is_array:
            run.append(spec)
            continue
        if run:
            steps.append(_write_run(run))
            run = []
        steps.append(_write_field(spec, _compile_value(message, spec, path, flexible)))
    if run:
        steps.append(_write_run(run))
    return steps


def _write_run(specs: Sequence[FieldSpec]) -> WriteStruct:
    pack = struct.Struct(">" + "".join(FIXED_FORMATS[spec.kind] for spec in specs)).pack
    names_and_defaults = [(spec.name, spec.default) for spec in specs]

    def step(out: bytearray, fields: Fields) -> None:
        get = fields.get
        try:
            out += pack(*[get(name, default) for name, default in names_and_defaults])
        except struct.error as error:
            values = {name: get(name, default) for name, default in names_and_defaults}
            raise ValueError(f"{error}: one of {values}") from None

    return step


def _write_field(spec: FieldSpec, write_value: _WriteValue) -> WriteStruct:
    name, default = spec.name, spec.default

    def step(out: bytearray, fields: Fields) -> None:
        value = fields.get(name, default)
        try:
            write_value(out, value)
        except (AttributeError, struct.error) as error:
            raise ValueError(f"{name} cannot be {value!r}: {error}") from None

    return step


def _compile_tagged(message: _Message, specs: Sequence[FieldSpec], path: tuple[str, ...]) -> WriteStruct:
    """Tagged fields go out in order of their tags, and only when they differ from the default."""
    if not specs:
        return _write_no_tags
    writers = [(spec, uvarint(spec.tag or 0), _compile_value(message, spec, path, True)) for spec in specs]

    def step(out: bytearray, fields: Fields) -> None:
        count = 0
        section = bytearray()
        for spec, tag, write_value in writers:
            value = fields.get(spec.name, spec.default)
            if value is None or value == spec.default or (spec.is_array and not value):
                continue
            body = bytearray()
            write_value(body, value)
            section += tag + uvarint(len(body)) + body
            count += 1
        out += uvarint(count)
        out += section

    return step


def _write_no_tags(out: bytearray, fields: Fields) -> None:
    out.append(0)


def _compile_value(message: _Message, spec: FieldSpec, path: tuple[str, ...], flexible: bool) -> _WriteValue:
    if spec.struct is not None:
        write_item: _WriteValue = _compile_struct(message, spec.struct, (*path, spec.name))
        if spec.nullable and not spec.is_array and spec.tag is None:
            return _nullable_struct(write_item)
    elif spec.kind in FIXED_FORMATS:
        if spec.is_array:
            return _fixed_array(FIXED_FORMATS[spec.kind], flexible, spec.nullable)
        pack = struct.Struct(">" + FIXED_FORMATS[spec.kind]).pack
        return lambda out, value: out.extend(pack(value))
    else:
        write_item = _variable_writer(spec, flexible)
    return _array(write_item, flexible, spec.nullable) if spec.is_array else write_item


def _variable_writer(spec: FieldSpec, flexible: bool) -> _WriteValue:
    if spec.kind == "uuid":
        return _write_uuid
    encode: Callable[[Any], bytes]
    if spec.kind == "string":
        encode = compact_string if flexible else string
    else:
        encode = _compact_bytes if flexible else _bytes
    if spec.nullable and not spec.is_array:
        return lambda out, value: out.extend(encode(value))
    return _not_null(encode)


def _not_null(encode: Callable[[Any], bytes]) -> _WriteValue:
    def write(out: bytearray, value: Any) -> None:
        if value is None:
            raise ValueError("null where the message has no null")
        out += encode(value)

    return write


def _write_uuid(out: bytearray, value: Any) -> None:
    out += bytes(16) if value is None else value.bytes


def _compact_bytes(value: bytes | None) -> bytes:
    return b"\0" if value is None else uvarint(len(value) + 1) + value


def _bytes(value: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if value is None else struct.pack(">i", len(value)) + value


def _nullable_struct(write_struct: _WriteValue) -> _WriteValue:
    """KIP-893: one byte says whether the struct is there."""

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            out += b"\xff"
        else:
            out += b"\1"
            write_struct(out, value)

    return write


def _array(write_item: _WriteValue, flexible: bool, nullable: bool) -> _WriteValue:
    def write(out: bytearray, items: Any) -> None:
        out += _count(items, flexible, nullable)
        if type(items) is EncodedItems:
            out += items.encoded
            return
        for item in items or ():
            write_item(out, item)

    return write


def _fixed_array(code: str, flexible: bool, nullable: bool) -> _WriteValue:
    """Count and items in one go: replica lists make up most of a Metadata reply."""

    @cache
    def packer(size: int) -> Callable[..., bytes]:
        return struct.Struct(f">{'B' if flexible else 'i'}{size}{code}").pack

    def write(out: bytearray, items: Any) -> None:
        if items is None or len(items) >= _LONG_ARRAY:
            out += _count(items, flexible, nullable)
            out += struct.pack(f">{len(items or ())}{code}", *(items or ()))
        else:
            out += packer(len(items))(len(items) + flexible, *items)

    return write


def _count(items: Sequence[Any] | None, flexible: bool, nullable: bool) -> bytes:
    if items is None:
        if not nullable:
            raise ValueError("null where the message has no null array")
        return b"\0" if flexible else b"\xff\xff\xff\xff"
    return uvarint(len(items) + 1) if flexible else struct.pack(">i", len(items))
