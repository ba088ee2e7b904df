# SPDX-License-Identifier: Apache-2.0
"""The records inside a batch: read, build, check, recompress.

For clients, compaction, time lookup, record validation and tools; never on the fetch path.
Read next: batch.py (the header), record_layout.py, compression.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from headrace.errors import ApiError, DecodeError
from headrace.wire.batch import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    HEADER_STRUCT,
    MAGIC,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    read_header,
    write_crc,
)
from headrace.wire.compression import PRODUCER_CAPS, STORED_CAPS, Caps, compress, decompress
from headrace.wire.error_codes import ErrorCode
from headrace.wire.primitives import varint
from headrace.wire.record_layout import (
    INT64_MAX,
    SMALLEST_RECORD,
    Span,
    check_records,
    count_outside,
    in_span,
    key_of,
    layouts,
    read_headers,
)
from headrace.wire.scratch import SCRATCH

NO_TIMESTAMP = -1
_LOG_OVERHEAD = 12
_new = tuple.__new__


class Record(NamedTuple):
    """One record. Bytes of a header's name that are not UTF-8 are kept by surrogateescape."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def read_records(batch: memoryview, *, max_bytes: int = STORED_CAPS.max_bytes) -> list[Record]:
    """All records of the batch that starts at the view's first byte. DecodeError when it is malformed."""
    return list(iter_records(batch, max_bytes=max_bytes))


def iter_records(batch: memoryview, *, max_bytes: int = STORED_CAPS.max_bytes) -> Iterator[Record]:
    """The same, one by one: a batch of many tiny records is held only as bytes."""
    header = _checked_header(batch)
    view = _expanded(batch, header, Caps(max_bytes=max_bytes))
    append_time = header.max_timestamp if header.timestamp_type else None
    base_timestamp, base_offset = header.base_timestamp, header.base_offset
    for layout in layouts(view, header.record_count):
        timestamp_delta, offset_delta, key_start, key_size, value_start, value_size, header_count = layout[:7]
        timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
        if not -INT64_MAX <= timestamp <= INT64_MAX:
            raise DecodeError(f"timestamp {timestamp} does not fit 64 bits")
        key = bytes(view[key_start : key_start + key_size]) if key_size >= 0 else None
        value = bytes(view[value_start : value_start + value_size]) if value_size >= 0 else None
        headers = read_headers(view, layout) if header_count else ()
        yield _new(Record, (base_offset + offset_delta, timestamp, key, value, headers))


def batch_payload(batch: memoryview, max_bytes: int) -> tuple[BatchHeader, memoryview]:
    """The header of a stored batch, and the bytes of its records, decompressed."""
    header = _checked_header(batch)
    view = _expanded(batch, header, Caps(max_bytes=max_bytes))
    if not 0 <= header.record_count * SMALLEST_RECORD <= len(view):
        raise DecodeError(f"{header.record_count} records in {len(view)} bytes")
    return header, view


def validate_records(
    batch: memoryview, *, require_key: bool, span: Span | None = None, caps: Caps = PRODUCER_CAPS
) -> int:
    """Checks every record of a producer's batch whose header and CRC are checked already (batch.py).

    Returns the size of the records, expanded.
    `span`: the keys that are allowed; `keys_outside` tells which others there are.
    INVALID_RECORD, never CORRUPT_MESSAGE: the CRC matches, so a retry of the same bytes cannot help, and
    producers retry CORRUPT_MESSAGE.
    """
    try:
        header = _checked_header(batch)
        view = _in_scratch(batch, header, caps)
        check_records(view, header.record_count, header.base_timestamp, needs_key=require_key)
        if span is not None and (outside := count_outside(view, header.record_count, span)):
            raise ApiError(ErrorCode.invalid_record, f"{outside} records are in the wrong partition")
    except DecodeError as error:
        raise ApiError(ErrorCode.invalid_record, str(error)) from error
    return len(view)


def keyless_records(batch: memoryview, *, caps: Caps = PRODUCER_CAPS) -> list[int]:
    """Positions of records that lack a key; none when the batch has any other fault."""
    try:
        header = _checked_header(batch)
        view = _in_scratch(batch, header, caps)
        check_records(view, header.record_count, header.base_timestamp, needs_key=False)
        return [place for place, layout in enumerate(layouts(view, header.record_count)) if layout[3] < 0]
    except DecodeError:
        return []


def keys_outside(batch: memoryview, span: Span, *, caps: Caps = PRODUCER_CAPS) -> dict[int, bytes | None]:
    """The keys that are not in the span, by position; none when the batch has any other fault."""
    try:
        header = _checked_header(batch)
        view = _in_scratch(batch, header, caps)
        check_records(view, header.record_count, header.base_timestamp, needs_key=False)
        keys = enumerate(key_of(view, layout) for layout in layouts(view, header.record_count))
        return {place: key for place, key in keys if not in_span(key, span)}
    except DecodeError:
        return {}


def recompress(batch: memoryview, codec: int, *, caps: Caps = PRODUCER_CAPS) -> bytearray:
    """The same batch under another codec, for topics whose `compression.type` names one."""
    header = _checked_header(batch)
    try:
        payload = compress(codec, _in_scratch(batch, header, caps))
    except DecodeError as error:
        raise ApiError(ErrorCode.invalid_record, str(error)) from error
    attributes = header.attributes & ~0x07 | codec
    return _assemble(header._replace(attributes=attributes), payload)


def build_batch(
    records: Iterable[Record],
    *,
    codec: int = 0,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    timestamp_type: int = 0,
    is_transactional: bool = False,
    is_control: bool = False,
    last_offset_delta: int | None = None,
    max_timestamp: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytearray:
    """A whole batch. A record's offset delta is its offset less `base_offset`; gaps are kept.

    `last_offset_delta` and `max_timestamp` default to those of the records; compaction gives the original
    ones, so that a batch keeps its range when its last record is gone. `delete_horizon_ms` takes the place
    of the base timestamp and marks the batch so.
    """
    records = list(records)
    base_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    if delete_horizon_ms is not None:
        base_timestamp = delete_horizon_ms
    if max_timestamp is None:
        max_timestamp = max((record.timestamp for record in records), default=NO_TIMESTAMP)
    if last_offset_delta is None:
        last_offset_delta = records[-1].offset - base_offset if records else 0
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=codec
        | (TIMESTAMP_TYPE_BIT if timestamp_type else 0)
        | (TRANSACTIONAL_BIT if is_transactional else 0)
        | (CONTROL_BIT if is_control else 0)
        | (DELETE_HORIZON_BIT if delete_horizon_ms is not None else 0),
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    payload = encode_records(records, base_offset=base_offset, base_timestamp=base_timestamp)
    return _assemble(header, compress(codec, payload) if payload else b"")


def encode_records(records: Sequence[Record], *, base_offset: int, base_timestamp: int) -> bytes:
    """The records one after the other, as they stand in an uncompressed batch."""
    out: list[bytes] = []
    for offset, timestamp, key, value, headers in records:
        body = b"".join(
            (
                b"\0",  # attributes, unused
                varint(timestamp - base_timestamp),
                varint(offset - base_offset),
                b"\1" if key is None else varint(len(key)) + key,
                b"\1" if value is None else varint(len(value)) + value,
                _headers(headers) if headers else b"\0",
            )
        )
        out += (varint(len(body)), body)
    return b"".join(out)


def _headers(headers: tuple[tuple[str, bytes | None], ...]) -> bytes:
    out = [varint(len(headers))]
    for name, value in headers:
        out += (_sized(name.encode(errors="surrogateescape")), _sized(value))
    return b"".join(out)


def _assemble(header: BatchHeader, payload: bytes) -> bytearray:
    size = HEADER_SIZE + len(payload)
    out = bytearray(HEADER_STRUCT.pack(*header._replace(batch_length=size - _LOG_OVERHEAD, crc=0)))
    out += payload
    with memoryview(out) as view:
        write_crc(view, 0, size)
    return out


def _checked_header(batch: memoryview) -> BatchHeader:
    header = read_header(batch)
    if header.magic != MAGIC:
        raise DecodeError(f"magic byte {header.magic}, not {MAGIC}")
    if not HEADER_SIZE <= header.size <= len(batch):
        raise DecodeError(f"batch of {header.size} bytes in {len(batch)}")
    return header


def _expanded(batch: memoryview, header: BatchHeader, caps: Caps) -> memoryview:
    """The bytes of the records, decompressed."""
    payload = batch[HEADER_SIZE : header.size]
    if not header.codec or not payload:
        return payload
    return memoryview(decompress(header.codec, payload, caps))


def _in_scratch(batch: memoryview, header: BatchHeader, caps: Caps) -> memoryview:
    """The same, until the next call of this thread."""
    payload = batch[HEADER_SIZE : header.size]
    if not header.codec or not payload:
        return payload
    return SCRATCH.expand(header.codec, payload, caps.limit(len(payload)))


def _sized(data: bytes | None) -> bytes:
    return b"\1" if data is None else varint(len(data)) + data
