# SPDX-License-Identifier: Apache-2.0
"""Batches that a node writes itself: records with one timestamp, uncompressed and without headers.

Records are packed as they come, the batch around them when it is written. Read next: records.py (any batch).
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.wire.batch import (
    CONTROL_BIT,
    HEADER_SIZE,
    HEADER_STRUCT,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    write_crc,
)
from headrace.wire.primitives import varint


def plain_record(number: int, key: bytes, value: bytes | None) -> bytes:
    """The bytes of one record with this offset delta."""
    if value is None:
        body = b"\0\0%b%b%b\1\0" % (varint(number), varint(len(key)), key)
    else:
        body = b"\0\0%b%b%b%b%b\0" % (varint(number), varint(len(key)), key, varint(len(value)), value)
    return varint(len(body)) + body


def plain_batch(
    packed: Iterable[bytes],
    count: int,
    timestamp: int,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    is_control: bool = False,
) -> bytearray:
    """The batch of these `count` records, numbered from 0 on.

    With a producer id it is part of that producer's transaction. It has no sequence: a coordinator that
    writes for a producer does not count the producer's batches.
    """
    payload = b"".join(packed)
    header = BatchHeader(
        base_offset=0,
        batch_length=HEADER_SIZE - LOG_OVERHEAD + len(payload),
        leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=(0 if producer_id < 0 else TRANSACTIONAL_BIT) | (CONTROL_BIT if is_control else 0),
        last_offset_delta=count - 1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=-1,
        record_count=count,
    )
    out = bytearray(HEADER_STRUCT.pack(*header))
    out += payload
    with memoryview(out) as view:
        write_crc(view, 0, len(out))
    return out
