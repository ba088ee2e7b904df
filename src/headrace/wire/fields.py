# SPDX-License-Identifier: Apache-2.0
"""Reads and builds fields in Kafka's two encodings, plain and compact, for messages without a kio schema.

Used for coordinator records (group_records.py) and the consumer protocol (consumer_protocol.py). Not for hot
paths: offset commits have straight-line code in group_records.py.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from headrace.errors import DecodeError
from headrace.wire.primitives import (
    compact_string,
    read_compact_count,
    read_compact_string,
    read_count,
    read_string,
    read_tagged_fields,
    read_uvarint,
    string,
    uuid_from_bytes,
    uvarint,
)

T = TypeVar("T")

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


class Reader:
    """Reads fields one after the other. Runs off the end with IndexError or struct.error."""

    __slots__ = ("_end", "_position", "_view")

    def __init__(self, data: bytes | memoryview, position: int = 0, end: int | None = None) -> None:
        self._view = memoryview(data)
        self._position = position
        self._end = len(self._view) if end is None else end

    def _number(self, layout: struct.Struct) -> int:
        (value,) = layout.unpack_from(self._view, self._position)
        self._position += layout.size
        return int(value)

    def int8(self) -> int:
        return self._number(_INT8)

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def int64(self) -> int:
        return self._number(_INT64)

    def uuid(self) -> uuid.UUID:
        return uuid_from_bytes(self._take(16))

    def _take(self, size: int) -> bytes:
        stop = self._position + size
        if size < 0 or stop > self._end:
            raise DecodeError(f"{size} bytes wanted, {self._end - self._position} left")
        raw = bytes(self._view[self._position : stop])
        self._position = stop
        return raw

    def nullable_bytes(self) -> bytes | None:
        """In the plain encoding."""
        size = self.int32()
        return None if size < 0 else self._take(size)

    def nullable_string(self, *, compact: bool) -> str | None:
        read = read_compact_string if compact else read_string
        text, self._position = read(self._view, self._position, self._end)
        return text

    def string(self, *, compact: bool) -> str:
        text = self.nullable_string(compact=compact)
        if text is None:
            raise DecodeError("a string that may not be null is null")
        return text

    def bytes(self, *, compact: bool) -> bytes:
        count = read_compact_count if compact else read_count
        size, self._position = count(self._view, self._position, self._end)
        return self._take(size)

    def array(self, item: Callable[[Reader], T], *, compact: bool) -> tuple[T, ...]:
        count = read_compact_count if compact else read_count
        length, self._position = count(self._view, self._position, self._end)
        return tuple(item(self) for _ in range(length))

    def nullable_array(self, item: Callable[[Reader], T], *, compact: bool) -> tuple[T, ...] | None:
        if compact:
            length, after = read_uvarint(self._view, self._position)
            null = length == 0
        else:
            after = self._position + _INT32.size
            null = _INT32.unpack_from(self._view, self._position)[0] < 0
        if null:
            self._position = after
            return None
        return self.array(item, compact=compact)

    def int32s(self, *, compact: bool = False) -> tuple[int, ...]:
        """An array of them, all at once."""
        count = read_compact_count if compact else read_count
        length, start = count(self._view, self._position, self._end)
        self._position = start + 4 * length
        if self._position > self._end:
            raise DecodeError(f"{length} numbers in {self._end - start} bytes")
        return struct.unpack_from(f">{length}i", self._view, start)

    def tagged_fields(self) -> dict[int, Reader]:
        """Each known or unknown tag with a reader of its bytes."""
        fields, self._position = read_tagged_fields(self._view, self._position, self._end)
        return {tag: Reader(self._view, start, end) for tag, (start, end) in fields.items()}


def int8(value: int) -> bytes:
    return _INT8.pack(value)


def int16(value: int) -> bytes:
    return _INT16.pack(value)


def int32(value: int) -> bytes:
    return _INT32.pack(value)


def int64(value: int) -> bytes:
    return _INT64.pack(value)


def plain_bytes(raw: bytes) -> bytes:
    return _INT32.pack(len(raw)) + raw


def compact_bytes(raw: bytes) -> bytes:
    return uvarint(len(raw) + 1) + raw


def plain_array(items: Sequence[bytes]) -> bytes:
    return _INT32.pack(len(items)) + b"".join(items)


def compact_array(items: Iterable[bytes]) -> bytes:
    made = list(items)
    return uvarint(len(made) + 1) + b"".join(made)


def compact_int32s(values: Sequence[int]) -> bytes:
    return uvarint(len(values) + 1) + struct.pack(f">{len(values)}i", *values)


def tagged_fields(fields: Iterable[tuple[int, bytes]] = ()) -> bytes:
    made = sorted(fields)
    return uvarint(len(made)) + b"".join(uvarint(tag) + uvarint(len(raw)) + raw for tag, raw in made)


__all__ = [
    "Reader",
    "compact_array",
    "compact_bytes",
    "compact_int32s",
    "compact_string",
    "int8",
    "int16",
    "int32",
    "int64",
    "plain_array",
    "plain_bytes",
    "string",
    "tagged_fields",
]
