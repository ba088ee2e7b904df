# SPDX-License-Identifier: Apache-2.0
"""The 61-byte header of a record batch (magic 2): read it, check it, patch offset and epoch in place.

Everything after the CRC field is covered by the CRC; offset and leader epoch stand before it, so the broker
assigns both without touching it. Records: records.py.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, NoReturn

from crc32c import crc32c

from headrace.errors import ApiError, DecodeError
from headrace.wire.error_codes import ErrorCode

HEADER_SIZE = 61
MAGIC = 2
NO_PRODUCER_ID = -1
NO_SEQUENCE = -1

CODEC_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
HIGHEST_CODEC = 4

HEADER_STRUCT = struct.Struct(">qiibIhiqqqhii")
_PRODUCER = struct.Struct(">qhi")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")

LOG_OVERHEAD = 12  # base offset and length: what batch_length does not count
_MAGIC_AT, _CRC_AT, _ATTRIBUTES_AT, _MAX_TIMESTAMP_AT, _PRODUCER_AT = 16, 17, 21, 35, 43
_SMALLEST_OLD_MESSAGE = 14  # magic 0: crc, magic, attributes, key length, value length
_BROKER_ONLY_BITS = TIMESTAMP_TYPE_BIT | CONTROL_BIT | DELETE_HORIZON_BIT
_SEQUENCE_SPACE = 1 << 31


class BatchHeader(NamedTuple):
    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        return LOG_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> int:
        """0: the producer's time; 1: the broker's append time, held in max_timestamp for all records."""
        return (self.attributes & TIMESTAMP_TYPE_BIT) >> 3

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        """Set by compaction: base_timestamp is then the delete horizon of tombstones."""
        return bool(self.attributes & DELETE_HORIZON_BIT)

    @property
    def last_sequence(self) -> int:
        """Sequences wrap from 2**31 - 1 to 0."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) % _SEQUENCE_SPACE


_new_header = tuple.__new__
_unpack_header = HEADER_STRUCT.unpack_from


def read_header(view: memoryview | bytes | bytearray, position: int = 0) -> BatchHeader:
    """The header as it stands, unchecked."""
    try:
        return _new_header(BatchHeader, _unpack_header(view, position))
    except struct.error:
        raise DecodeError(f"{max(len(view) - position, 0)} bytes are too few for a batch header") from None


def has_transactional_bit(view: memoryview, start: int, end: int) -> bool:
    """Of the first batch in [start, end), which need not be sound."""
    return end - start > _ATTRIBUTES_AT + 1 and bool(view[start + _ATTRIBUTES_AT + 1] & TRANSACTIONAL_BIT)


def codec_of(view: memoryview, start: int, end: int) -> int | None:
    """Of the first batch in [start, end), which need not be sound; None when it ends before that."""
    return view[start + _ATTRIBUTES_AT + 1] & CODEC_MASK if end - start > _ATTRIBUTES_AT + 1 else None


def crc_of(batch: memoryview) -> int:
    """The CRC of the batch that fills the view."""
    return int(crc32c(batch[_ATTRIBUTES_AT:]))


def crc_ok(view: memoryview, position: int, size: int) -> bool:
    """Whether the batch of `size` bytes at `position` carries the CRC of its bytes."""
    (stored,) = _CRC.unpack_from(view, position + _CRC_AT)
    return bool(crc32c(view[position + _ATTRIBUTES_AT : position + size]) == stored)


def read_sound_batch(view: memoryview, start: int, end: int, max_bytes: int) -> BatchHeader | None:
    """The header when [start, end) is one whole batch as producers should send it, checked with its CRC.

    None when it is not, or when it is unusual: `split_batches` reports what is wrong.
    """
    size = end - start
    if not HEADER_SIZE <= size <= max_bytes:
        return None
    header = _unpack_header(view, start)
    offset, length, _, magic, crc, attributes, delta, _, _, producer_id, _, sequence, count = header
    if (
        magic != MAGIC
        or offset
        or length != size - LOG_OVERHEAD
        or not 0 < count == delta + 1
        or not 0 <= attributes & ~TRANSACTIONAL_BIT <= HIGHEST_CODEC
        or (sequence < 0 <= producer_id)
        or crc32c(view[start + _ATTRIBUTES_AT : end]) != crc
    ):
        return None
    return _new_header(BatchHeader, header)


def split_batches(
    view: memoryview,
    position: int,
    end: int,
    *,
    max_batch_bytes: int | None,
    single: bool = False,
    producer: bool = True,
) -> list[tuple[int, BatchHeader]]:
    """(position, header) of every batch in [position, end), all checked, or the ApiError of Kafka 4.

    `single`: what a Produce request must hold for a partition: exactly one batch, numbered from offset 0.
    `producer`: what a client may write: no control batch, as many records as offsets. Batches from a
    leader (compacted, markers) are checked without it. A truncated last batch is an error, never dropped.
    """
    batches: list[tuple[int, BatchHeader]] = []
    while position < end:
        if end - position < HEADER_SIZE:
            _refuse_short(view, position, end)
        header = _new_header(BatchHeader, _unpack_header(view, position))
        if header[3] != MAGIC:
            _refuse_magic(header[3])
        size = LOG_OVERHEAD + header[1]
        if size < HEADER_SIZE or position + size > end:
            _refuse_length(size, end - position)
        if single and (header[0] or position + size != end):
            _refuse_for_produce(header[0])
        if max_batch_bytes is not None and size > max_batch_bytes:
            raise ApiError(
                ErrorCode.message_too_large, f"batch of {size} bytes is larger than {max_batch_bytes} bytes"
            )
        if crc32c(view[position + _ATTRIBUTES_AT : position + size]) != header[4]:
            raise ApiError(ErrorCode.corrupt_message, "the batch does not match its CRC")
        if producer:
            _check_producer_batch(header)
        elif header[5] & CODEC_MASK > HIGHEST_CODEC:
            _refuse_codec(header[5] & CODEC_MASK)
        batches.append((position, header))
        position += size
    if single and not batches:
        raise ApiError(ErrorCode.invalid_record, "a produce request needs one record batch per partition")
    return batches


def _check_producer_batch(header: BatchHeader) -> None:
    attributes, count = header[5], header[12]
    if count <= 0 or header[6] != count - 1:
        raise ApiError(
            ErrorCode.invalid_record, f"{count} records do not fill offsets 0 to {header[6]} of the batch"
        )
    if attributes & _BROKER_ONLY_BITS:
        _refuse_broker_only_bits(attributes)
    if attributes & CODEC_MASK > HIGHEST_CODEC:
        _refuse_codec(attributes & CODEC_MASK)
    if header[9] > NO_PRODUCER_ID and header[11] < 0:
        raise ApiError(
            ErrorCode.invalid_record, f"producer {header[9]} sent a batch with sequence {header[11]}"
        )


def _refuse_short(view: memoryview, position: int, end: int) -> NoReturn:
    """Too few bytes for a header of magic 2: an old message set, or a batch cut off."""
    remaining = end - position
    if remaining > _MAGIC_AT and view[position + _MAGIC_AT] != MAGIC:
        (length,) = struct.unpack_from(">i", view, position + 8)
        if _SMALLEST_OLD_MESSAGE <= length <= remaining - LOG_OVERHEAD:
            _refuse_magic(view[position + _MAGIC_AT])
    raise ApiError(ErrorCode.invalid_record, f"{remaining} bytes are too few for a record batch")


def _refuse_magic(magic: int) -> NoReturn:
    """As Kafka 4: INVALID_RECORD for the old formats, corruption for other values."""
    if magic in (0, 1):
        raise ApiError(
            ErrorCode.invalid_record, f"message format {magic} is no longer supported; send record batches"
        )
    raise ApiError(ErrorCode.corrupt_message, f"unknown magic byte {magic}")


def _refuse_length(size: int, remaining: int) -> NoReturn:
    if size < HEADER_SIZE:
        raise ApiError(ErrorCode.corrupt_message, f"batch length gives {size} bytes, less than its header")
    raise ApiError(ErrorCode.invalid_record, f"batch of {size} bytes is cut off after {remaining}")


def _refuse_for_produce(base_offset: int) -> NoReturn:
    if base_offset:
        raise ApiError(ErrorCode.invalid_record, f"base offset must be 0, not {base_offset}")
    raise ApiError(ErrorCode.invalid_record, "a produce request holds exactly one batch per partition")


def _refuse_broker_only_bits(attributes: int) -> NoReturn:
    if attributes & TIMESTAMP_TYPE_BIT:
        raise ApiError(ErrorCode.invalid_timestamp, "a producer may not set the type to LogAppendTime")
    if attributes & CONTROL_BIT:
        raise ApiError(ErrorCode.invalid_record, "clients may not write control records")
    raise ApiError(ErrorCode.invalid_record, "clients may not set a delete horizon")


def _refuse_codec(codec: int) -> NoReturn:
    """Not CORRUPT_MESSAGE, which producers retry."""
    raise ApiError(ErrorCode.invalid_record, f"unknown compression codec {codec}")


assign = struct.Struct(">qii").pack_into
"""assign(view, position, base_offset, batch_length, leader_epoch): all that lies outside the CRC."""


def sign(
    view: memoryview,
    position: int,
    producer_id: int,
    epoch: int,
    base_sequence: int,
    *,
    is_transactional: bool = True,
) -> None:
    """Sets producer id, epoch and sequence, and updates the CRC."""
    header = read_header(view, position)
    attributes = header.attributes & ~TRANSACTIONAL_BIT | (TRANSACTIONAL_BIT if is_transactional else 0)
    _ATTRIBUTES.pack_into(view, position + _ATTRIBUTES_AT, attributes)
    _PRODUCER.pack_into(view, position + _PRODUCER_AT, producer_id, epoch, base_sequence)
    write_crc(view, position, header.size)


def stamp_append_time(view: memoryview, position: int, now_ms: int) -> None:
    """Marks the batch as stamped by the broker at `now_ms` and updates its CRC."""
    header = read_header(view, position)
    _ATTRIBUTES.pack_into(view, position + _ATTRIBUTES_AT, header.attributes | TIMESTAMP_TYPE_BIT)
    _MAX_TIMESTAMP.pack_into(view, position + _MAX_TIMESTAMP_AT, now_ms)
    write_crc(view, position, header.size)


def write_crc(view: memoryview, position: int, size: int) -> None:
    _CRC.pack_into(view, position + _CRC_AT, crc32c(view[position + _ATTRIBUTES_AT : position + size]))
