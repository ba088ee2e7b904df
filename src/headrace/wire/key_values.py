# SPDX-License-Identifier: Apache-2.0
"""Keys and values of a batch, without timestamps and headers: for loading internal topics.

Half the time of records.py; 100,000 offsets are read while groups wait. Read
next: records.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.errors import DecodeError
from headrace.wire.compression import STORED_CAPS
from headrace.wire.record_layout import read_varint, read_varlong
from headrace.wire.records import batch_payload

KeyValue = tuple[int, bytes | None, bytes | None]


def iter_key_values(batch: memoryview) -> Iterator[KeyValue]:
    """(offset, key, value) of each record of a batch; DecodeError when it is malformed."""
    header, payload = batch_payload(batch, STORED_CAPS.max_bytes)
    data = bytes(payload)
    position = 0
    try:
        for _ in range(header.record_count):
            offset_delta, key, value, position = _read_record(data, position)
            yield header.base_offset + offset_delta, key, value
    except IndexError:
        raise DecodeError("records end in the middle of one") from None
    if position != len(data):
        raise DecodeError(f"{len(data) - position} bytes left after {header.record_count} records")


def _read_record(data: bytes, position: int) -> tuple[int, bytes | None, bytes | None, int]:
    """(offset delta, key, value, position after it). Varints of one byte, most of all, are read in place."""
    length, position = read_varint(data, position)
    stop = position + length
    if length < 0 or stop > len(data):
        raise DecodeError(f"record of {length} bytes, {len(data) - position} left")
    position += 1  # attributes
    if data[position] < 0x80:
        position += 1
    else:
        _, position = read_varlong(data, position)
    byte = data[position]
    if byte < 0x80:
        offset_delta, position = (byte >> 1) ^ -(byte & 1), position + 1
    else:
        offset_delta, position = read_varint(data, position)
    key, position = _read_bytes(data, position)
    value, position = _read_bytes(data, position)
    if data[position] == 0:
        position += 1
        if position != stop:
            raise DecodeError(f"{stop - position} bytes left in a record")
    elif position >= stop:
        raise DecodeError("a record runs past its end")
    return offset_delta, key, value, stop


def _read_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    byte = data[position]
    if byte < 0x80:
        size, position = (byte >> 1) ^ -(byte & 1), position + 1
    else:
        size, position = read_varint(data, position)
    if size < 0:
        return None, position
    end = position + size
    if end >= len(data):  # a count of headers follows
        raise DecodeError(f"{size} bytes run past the batch")
    return data[position:end], end
