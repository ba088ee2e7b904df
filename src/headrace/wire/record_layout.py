# SPDX-License-Identifier: Apache-2.0
"""Parses and validates the layout of a batch's records, with the kernels or in Python.

Both give the same results and refuse the same bytes; the kernels are many times faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headrace.errors import DecodeError
from headrace.kernels.walk import Fault, load_walk

SMALLEST_RECORD = 7  # length, attributes, two deltas, key, value, headers: a byte each
INT64_MAX = (1 << 63) - 1
WALK = load_walk()
"""The kernels; None without a compiler."""
_FEW = 2
"""Fewer records than this are parsed faster in Python."""
_new = tuple.__new__

Span = tuple[bytes, bytes | None]
"""Keys from the first one on, before the second; None: to the last key."""


class Layout(NamedTuple):
    """Positions and sizes of one record's parts. A negative size is null."""

    timestamp_delta: int
    offset_delta: int
    key_start: int
    key_size: int
    value_start: int
    value_size: int
    header_count: int
    headers_start: int
    end: int


def layouts(view: memoryview, count: int) -> Iterator[Layout]:
    """The layout of each of `count` records, which must fill the view exactly."""
    _check_count(view, count)
    position = 0
    for layout in _layouts(view, count):
        yield layout
        position = layout[-1]
    if position != len(view):
        raise DecodeError(f"{len(view) - position} bytes left after {count} records")


def _check_count(view: memoryview, count: int) -> None:
    if not 0 <= count * SMALLEST_RECORD <= len(view):
        raise DecodeError(f"{count} records in {len(view)} bytes")


def _layouts(view: memoryview, count: int) -> Iterator[Layout]:
    if WALK is None or count <= _FEW:
        yield from layouts_in_turn(view, count)
        return
    for layout in WALK.layouts(view, count):
        if isinstance(layout, Fault):
            raise DecodeError(str(layout))
        yield _new(Layout, layout)


def check_records(view: memoryview, count: int, base_timestamp: int, *, needs_key: bool) -> None:
    """DecodeError unless the view holds exactly `count` valid records, with offset deltas from 0 on."""
    if WALK is None:
        check_in_turn(view, count, base_timestamp, needs_key=needs_key)
        return
    fault = WALK.check(view, count, base_timestamp, needs_key=needs_key)
    if fault is not None:
        _check_count(view, count)
        raise DecodeError(f"bytes left after {count} records" if fault.record == count else str(fault))


def check_in_turn(view: memoryview, count: int, base_timestamp: int, *, needs_key: bool) -> None:
    for number, layout in enumerate(layouts(view, count)):
        if layout.offset_delta != number:
            raise DecodeError(f"record {number} has offset delta {layout.offset_delta}")
        if needs_key and layout.key_size < 0:
            raise DecodeError(f"record {number} has no key, which a compacted topic needs")
        timestamp = base_timestamp + layout.timestamp_delta
        if not -INT64_MAX <= timestamp <= INT64_MAX:
            raise DecodeError(f"timestamp {timestamp} of record {number} does not fit 64 bits")
        if layout.header_count:
            read_headers(view, layout)


def count_outside(view: memoryview, count: int, span: Span) -> int:
    """How many of the `count` records, which are valid, have no key or one outside the span."""
    if WALK is not None:
        return WALK.count_outside(view, count, *span)
    return sum(not in_span(key_of(view, layout), span) for layout in layouts_in_turn(view, count))


def in_span(key: bytes | None, span: Span) -> bool:
    low, end = span
    return key is not None and low <= key and (end is None or key < end)


def key_of(view: memoryview, layout: Layout) -> bytes | None:
    start, size = layout.key_start, layout.key_size
    return bytes(view[start : start + size]) if size >= 0 else None


def layouts_in_turn(view: memoryview, count: int) -> Iterator[Layout]:
    end = len(view)
    position = 0
    try:
        for _ in range(count):
            layout = _read_layout(view, position, end)
            yield layout
            position = layout.end
    except IndexError:
        raise DecodeError("records end in the middle of one") from None


def _read_layout(view: memoryview, position: int, end: int) -> Layout:
    length, position = read_varint(view, position)
    stop = position + length
    if length < SMALLEST_RECORD - 1 or stop > end:
        raise DecodeError(f"record of {length} bytes, {end - position} left")
    timestamp_delta, position = read_varlong(view, position + 1)
    offset_delta, position = read_varint(view, position)
    key_size, key_start = read_varint(view, position)
    position = key_start + key_size if key_size > 0 else key_start
    if position > stop:
        raise DecodeError(f"key of {key_size} bytes runs past its record")
    value_size, value_start = read_varint(view, position)
    position = value_start + value_size if value_size > 0 else value_start
    if position > stop:
        raise DecodeError(f"value of {value_size} bytes runs past its record")
    header_count, headers_start = read_varint(view, position)
    if header_count < 0 or header_count * 2 > stop - headers_start:
        raise DecodeError(f"{header_count} headers in {stop - headers_start} bytes")
    if header_count == 0 and headers_start != stop:
        raise DecodeError(f"{stop - headers_start} bytes left in a record")
    keys = (key_start, key_size, value_start, value_size)
    return _new(Layout, (timestamp_delta, offset_delta, *keys, header_count, headers_start, stop))


def read_headers(view: memoryview, layout: Layout) -> tuple[tuple[str, bytes | None], ...]:
    try:
        return _read_all_headers(view, layout)
    except IndexError:
        raise DecodeError("headers end in the middle of one") from None


def _read_all_headers(view: memoryview, layout: Layout) -> tuple[tuple[str, bytes | None], ...]:
    position, end = layout.headers_start, layout.end
    view = view[:end]
    headers = []
    for _ in range(layout.header_count):
        size, start = read_varint(view, position)
        position = start + size
        if size < 0 or position > end:
            raise DecodeError(f"header name of {size} bytes, {end - start} left")
        name = str(view[start:position], "utf-8", "surrogateescape")
        size, start = read_varint(view, position)
        position = start + size if size > 0 else start
        if position > end:
            raise DecodeError(f"header value of {size} bytes, {end - start} left")
        headers.append((name, bytes(view[start:position]) if size >= 0 else None))
    if position != end:
        raise DecodeError(f"{end - position} bytes left in a record")
    return tuple(headers)


def read_varint(view: memoryview | bytes, position: int) -> tuple[int, int]:
    """(value, position after it) of a signed 32-bit varint."""
    byte = view[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    second = view[position + 1]
    if second < 0x80:
        raw = byte & 0x7F | second << 7
        return (raw >> 1) ^ -(raw & 1), position + 2
    return _read_long_varint(view, position, 32)


def read_varlong(view: memoryview | bytes, position: int) -> tuple[int, int]:
    """The same of 64 bits."""
    byte = view[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    return _read_long_varint(view, position, 64)


def _read_long_varint(view: memoryview | bytes, position: int, bits: int) -> tuple[int, int]:
    raw = shift = 0
    while shift < bits:
        byte = view[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw >> bits:
                break
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7
    raise DecodeError(f"varint does not fit {bits} bits")
