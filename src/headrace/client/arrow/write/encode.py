# SPDX-License-Identifier: Apache-2.0
"""Arrow columns to record batches, as Kafka's Java client would send them.

Read next: columns.py (which Arrow types can be written), ../kernels.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.client.arrow.kernels.available import kernels
from headrace.client.arrow.kernels.types import Int64s, Kernels, RowColumns
from headrace.wire.batch import (
    HEADER_SIZE,
    HEADER_STRUCT,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    write_crc,
)
from headrace.wire.compression import compress

DEFAULT_BATCH_BYTES = 1_000_000
"""Uncompressed, header included: below max.message.bytes of brokers, 1,048,588 by default."""


class Producer(NamedTuple):
    """Producer id and epoch in batch headers; those of an idempotent producer come from InitProducerId."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = -1
    is_transactional: bool = False


NOBODY = Producer()


class EncodedBatch(NamedTuple):
    batch: bytearray
    rows: int


def encode_batch(
    columns: RowColumns,
    rows: Int64s,
    *,
    codec: int = 0,
    max_bytes: int = DEFAULT_BATCH_BYTES,
    producer: Producer = NOBODY,
    base_sequence: int = NO_SEQUENCE,
    code: Kernels | None = None,
) -> EncodedBatch:
    """One batch of as many of these rows as fit, in this order; at least one, even if too large alone."""
    encoded = (code or kernels()).encode(columns, rows, limit=max_bytes - HEADER_SIZE, free=HEADER_SIZE)
    batch = encoded.buffer
    if codec:
        with memoryview(batch) as view:
            payload = compress(codec, view[HEADER_SIZE:])
        batch[HEADER_SIZE:] = payload
    header = BatchHeader(
        base_offset=0,
        batch_length=len(batch) - LOG_OVERHEAD,
        leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=codec | (TRANSACTIONAL_BIT if producer.is_transactional else 0),
        last_offset_delta=encoded.rows - 1,
        base_timestamp=encoded.base_timestamp,
        max_timestamp=encoded.max_timestamp,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=base_sequence,
        record_count=encoded.rows,
    )
    HEADER_STRUCT.pack_into(batch, 0, *header)
    with memoryview(batch) as view:
        write_crc(view, 0, len(batch))
    return EncodedBatch(batch, encoded.rows)
