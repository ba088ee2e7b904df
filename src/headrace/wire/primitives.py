# SPDX-License-Identifier: Apache-2.0
"""Kafka's variable-length integers, strings and tagged fields, as the hand-written readers need them.

Every reader here works on a view that ends where the frame ends, so running off the frame is an
IndexError; lengths are compared with `end` before anything is sliced. Read next: requests/produce.py.
"""

from __future__ import annotations

import struct
import uuid
from functools import lru_cache

from headrace.errors import DecodeError

MALFORMED = (IndexError, struct.error, UnicodeDecodeError)
"""Raised by readers on malformed bytes; callers turn them into DecodeError."""

MAX_TAGGED_FIELDS = 32
"""Kafka's messages have four at most; a frame of nothing but tags would waste CPU time."""

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def read_uvarint(view: memoryview, position: int) -> tuple[int, int]:
    """(value, position after it) of an unsigned varint of at most 31 bits, as Kafka's lengths are."""
    byte = view[position]
    if byte < 0x80:
        return byte, position + 1
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        position += 1
        byte = view[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0x7FFFFFFF:
                raise DecodeError(f"length {value} does not fit 31 bits")
            return value, position + 1
    raise DecodeError("varint longer than five bytes")


def uvarint(value: int) -> bytes:
    """The bytes of an unsigned varint."""
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_ONE_BYTE = [bytes((value,)) for value in range(0x80)]


def read_compact_count(view: memoryview, position: int, end: int) -> tuple[int, int]:
    """Number of items of a compact array that may not be null. Each item takes a byte at least."""
    count = view[position] - 1
    position += 1
    if not 0 <= count < 0x7F:
        count, position = read_uvarint(view, position - 1)
        count -= 1
    if count < 0:
        raise DecodeError("array may not be null")
    if count > end - position:
        raise DecodeError(f"array of {count} items in {end - position} bytes")
    return count, position


def read_count(view: memoryview, position: int, end: int) -> tuple[int, int]:
    """Number of items of an int32-counted array that may not be null."""
    (count,) = _INT32.unpack_from(view, position)
    position += 4
    if count < 0:
        raise DecodeError("array may not be null")
    if count > end - position:
        raise DecodeError(f"array of {count} items in {end - position} bytes")
    return count, position


def read_compact_string(view: memoryview, position: int, end: int) -> tuple[str | None, int]:
    length = view[position] - 1
    position += 1
    if not 0 <= length < 0x7F:
        length, position = read_uvarint(view, position - 1)
        length -= 1
        if length < 0:
            return None, position
    stop = position + length
    if stop > end:
        raise DecodeError(f"string of {length} bytes, {end - position} left")
    return str(view[position:stop], "utf-8"), stop


def read_string(view: memoryview, position: int, end: int) -> tuple[str | None, int]:
    """An int16-counted string; Kafka takes every negative length as null."""
    (length,) = _INT16.unpack_from(view, position)
    position += 2
    if length < 0:
        return None, position
    stop = position + length
    if stop > end:
        raise DecodeError(f"string of {length} bytes, {end - position} left")
    return str(view[position:stop], "utf-8"), stop


def read_tag_count(view: memoryview, position: int) -> tuple[int, int]:
    """Number of tagged fields in the section that begins here."""
    count, position = read_uvarint(view, position)
    if count > MAX_TAGGED_FIELDS:
        raise DecodeError(f"{count} tagged fields in one place; at most {MAX_TAGGED_FIELDS} are read")
    return count, position


def read_tag(view: memoryview, position: int, end: int) -> tuple[int, int, int]:
    """(tag, start, end) of one tagged field."""
    tag, position = read_uvarint(view, position)
    size, position = read_uvarint(view, position)
    if position + size > end:
        raise DecodeError(f"tagged field of {size} bytes, {end - position} left")
    return tag, position, position + size


def skip_tagged_fields(view: memoryview, position: int, end: int) -> int:
    """Position after a section of tagged fields, whatever they are."""
    count, position = read_tag_count(view, position)
    for _ in range(count):
        _tag, _start, position = read_tag(view, position, end)
    return position


def read_tagged_fields(view: memoryview, position: int, end: int) -> tuple[dict[int, tuple[int, int]], int]:
    """(tag -> (start, end) of its bytes, position after the section)."""
    count, position = read_tag_count(view, position)
    found: dict[int, tuple[int, int]] = {}
    for _ in range(count):
        tag, start, position = read_tag(view, position, end)
        found[tag] = (start, position)
    return found, position


@lru_cache(maxsize=8192)
def uuid_from_bytes(raw: bytes) -> uuid.UUID:
    """Cached: making a UUID costs more than reading the rest of a small request."""
    return uuid.UUID(bytes=raw)


def compact_string(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    raw = text.encode()
    return uvarint(len(raw) + 1) + raw


def string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    raw = text.encode()
    return _INT16.pack(len(raw)) + raw


def varint(value: int) -> bytes:
    """The bytes of a signed varint, of any width up to 64 bits."""
    if 0 <= value < _SMALL:
        return _SMALL_VARINTS[value]
    return _any_varint(value)


def _any_varint(value: int) -> bytes:
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


_SMALL = 4096
_SMALL_VARINTS = tuple(map(_any_varint, range(_SMALL)))
"""Lengths and deltas are mostly among these."""
