# SPDX-License-Identifier: Apache-2.0
"""Compiles kio's classes into decoders that make kio's message objects.

kio's own native reader is not used on bytes from the network: it reserves room for as many array items as
the sender claims, and a few bytes end the process. Here every count and length is checked against the bytes
that remain, and the number of items in a request is bounded. Read next: schema.py, ../messages.py.
"""

from __future__ import annotations

import datetime
import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from headrace.errors import DecodeError
from headrace.wire.error_codes import ErrorCode
from headrace.wire.kio_codec.encoder import FIXED_FORMATS
from headrace.wire.kio_codec.schema import FieldSpec, Kind, fields_of, message_class
from headrace.wire.primitives import (
    read_compact_string,
    read_string,
    read_tag,
    read_tag_count,
    read_uvarint,
    uuid_from_bytes,
)


class Budget:
    """How many more array items a message may hold: two bytes of a frame can become an object of 100."""

    __slots__ = ("_limit", "items")

    def __init__(self, items: int) -> None:
        self._limit = items
        self.items = items

    def spend(self, count: int) -> None:
        self.items -= count
        if self.items < 0:
            raise DecodeError(f"too many array items: {self._limit} are allowed, send several requests")


Read = Callable[[memoryview, int, int, Budget], tuple[Any, int]]
"""(view that ends with the frame, position, end, budget) -> (value, position after it)."""

_Step = Callable[[memoryview, int, int, Budget, dict[str, Any]], int]

_ERRORS: dict[int, ErrorCode] = {int(code): code for code in ErrorCode}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_INT32 = struct.Struct(">i")
_NO_ID = bytes(16)


@cache
def message_decoder(name: str, version: int, kind: Kind) -> Read:
    """Reads a message body, header excluded. Records in a reply stay where they are: a view of the frame."""
    return _compile_struct(message_class(name, version, kind), record_views=kind == "response")


def _compile_struct(cls: Any, record_views: bool) -> Read:
    flexible = bool(cls.__flexible__)
    specs = fields_of(cls)
    steps = _compile_untagged([spec for spec in specs if spec.tag is None], flexible, record_views)
    if flexible:
        steps.append(_compile_tagged([spec for spec in specs if spec.tag is not None], record_views))

    def read(view: memoryview, position: int, end: int, budget: Budget) -> tuple[Any, int]:
        values: dict[str, Any] = {}
        for step in steps:
            position = step(view, position, end, budget, values)
        return cls(**values), position

    return read


def _compile_untagged(specs: Sequence[FieldSpec], flexible: bool, record_views: bool) -> list[_Step]:
    """One step per field, neighbours of fixed width unpacked together."""
    steps: list[_Step] = []
    run: list[FieldSpec] = []
    for spec in specs:
        if spec.kind in FIXED_FORMATS and not spec.is_array:
            run.append(spec)
            continue
        if run:
            steps.append(_read_run(run))
            run = []
        steps.append(_read_field(spec.name, _compile_value(spec, flexible, record_views)))
    if run:
        steps.append(_read_run(run))
    return steps


def _read_run(specs: Sequence[FieldSpec]) -> _Step:
    layout = struct.Struct(">" + "".join(FIXED_FORMATS[spec.kind] for spec in specs))
    names = [spec.name for spec in specs]
    conversions = [(spec.name, convert) for spec in specs if (convert := _conversion(spec)) is not None]

    def step(view: memoryview, position: int, end: int, budget: Budget, values: dict[str, Any]) -> int:
        values.update(zip(names, layout.unpack_from(view, position), strict=True))
        for name, convert in conversions:
            values[name] = convert(values[name])
        return position + layout.size

    return step


def _read_field(name: str, read: Read) -> _Step:
    def step(view: memoryview, position: int, end: int, budget: Budget, values: dict[str, Any]) -> int:
        values[name], position = read(view, position, end, budget)
        return position

    return step


def _compile_tagged(specs: Sequence[FieldSpec], record_views: bool) -> _Step:
    """Known tags are read, others skipped; what is missing keeps the default of kio's class."""
    readers = {spec.tag: (spec.name, _compile_value(spec, True, record_views)) for spec in specs}

    def step(view: memoryview, position: int, end: int, budget: Budget, values: dict[str, Any]) -> int:
        count, position = read_tag_count(view, position)
        for _ in range(count):
            tag, start, position = read_tag(view, position, end)
            if tag in readers:
                name, read = readers[tag]
                values[name], _ = read(view[:position], start, position, budget)
        return position

    return step


def _compile_value(spec: FieldSpec, flexible: bool, record_views: bool) -> Read:
    if spec.struct is not None:
        read = _compile_struct(spec.struct, record_views)
        if spec.nullable and not spec.is_array and spec.tag is None:
            return _nullable_struct(read)
    elif spec.kind in FIXED_FORMATS:
        read = _fixed_reader(spec)
    elif spec.kind == "uuid":
        read = _read_uuid
    elif spec.kind == "string":
        read = _string_reader(flexible, nullable=spec.nullable and not spec.is_array)
    else:
        as_view = record_views and spec.kind == "records"
        read = _bytes_reader(flexible, nullable=spec.nullable and not spec.is_array, as_view=as_view)
    return _array_reader(read, flexible, spec.nullable) if spec.is_array else read


def _conversion(spec: FieldSpec) -> Callable[[Any], Any] | None:
    """From the number on the wire to what kio's class holds."""
    if spec.kind == "error_code":
        return _error_code
    if spec.kind.startswith("timedelta"):
        return _duration
    if spec.kind == "datetime_i64":
        return _nullable_time if spec.nullable else _time
    return None


def _error_code(value: int) -> ErrorCode:
    """A newer broker may send codes that this version does not know yet."""
    return _ERRORS.get(value, ErrorCode.unknown_server_error)


def _duration(milliseconds: int) -> datetime.timedelta:
    try:
        return datetime.timedelta(milliseconds=milliseconds)
    except OverflowError:
        raise DecodeError(f"duration of {milliseconds} ms is out of range") from None


def _time(milliseconds: int) -> datetime.datetime:
    try:
        return _EPOCH + datetime.timedelta(milliseconds=milliseconds)
    except OverflowError:
        raise DecodeError(f"time {milliseconds} ms is out of range") from None


def _nullable_time(milliseconds: int) -> datetime.datetime | None:
    return None if milliseconds == -1 else _time(milliseconds)


def _fixed_reader(spec: FieldSpec) -> Read:
    layout = struct.Struct(">" + FIXED_FORMATS[spec.kind])
    convert = _conversion(spec)

    def read(view: memoryview, position: int, end: int, budget: Budget) -> tuple[Any, int]:
        (value,) = layout.unpack_from(view, position)
        return (value if convert is None else convert(value)), position + layout.size

    return read


def _read_uuid(view: memoryview, position: int, end: int, budget: Budget) -> tuple[Any, int]:
    stop = position + 16
    if stop > end:
        raise DecodeError("uuid is cut off")
    raw = bytes(view[position:stop])
    return (None if raw == _NO_ID else uuid_from_bytes(raw)), stop


def _string_reader(flexible: bool, nullable: bool) -> Read:
    read_text = read_compact_string if flexible else read_string

    def read(view: memoryview, position: int, end: int, budget: Budget) -> tuple[Any, int]:
        text, position = read_text(view, position, end)
        if text is None and not nullable:
            raise DecodeError("null where the message has no null string")
        return text, position

    return read


def _bytes_reader(flexible: bool, nullable: bool, as_view: bool) -> Read:
    def read(view: memoryview, position: int, end: int, budget: Budget) -> tuple[Any, int]:
        length, position = _read_length(view, position, flexible)
        if length < 0:
            if not nullable:
                raise DecodeError("null where the message has no null bytes")
            return None, position
        stop = position + length
        if stop > end:
            raise DecodeError(f"{length} bytes announced, {end - position} left")
        part = view[position:stop]
        return part if as_view else bytes(part), stop

    return read


def _read_length(view: memoryview, position: int, flexible: bool) -> tuple[int, int]:
    if flexible:
        length, position = read_uvarint(view, position)
        return length - 1, position
    (length,) = _INT32.unpack_from(view, position)
    return length, position + 4


def _nullable_struct(read_struct: Read) -> Read:
    """KIP-893: one byte says whether the struct is there; negative means null."""

    def read(view: memoryview, position: int, end: int, budget: Budget) -> tuple[Any, int]:
        if view[position] > 0x7F:
            return None, position + 1
        return read_struct(view, position + 1, end, budget)

    return read


def _array_reader(read_item: Read, flexible: bool, nullable: bool) -> Read:
    def read(view: memoryview, position: int, end: int, budget: Budget) -> tuple[Any, int]:
        count, position = _read_length(view, position, flexible)
        if count < 0:
            if not nullable:
                raise DecodeError("null where the message has no null array")
            return None, position
        if count > end - position:
            raise DecodeError(f"array of {count} items in {end - position} bytes")
        budget.spend(count)
        items = []
        for _ in range(count):
            item, position = read_item(view, position, end, budget)
            items.append(item)
        return tuple(items), position

    return read
