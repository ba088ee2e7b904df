# SPDX-License-Identifier: Apache-2.0
"""The batch header: what is read, what is patched, and which error code each fault gets."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from headrace.errors import ApiError, DecodeError
from headrace.wire.batch import (
    HEADER_SIZE,
    BatchHeader,
    assign,
    crc_ok,
    read_header,
    split_batches,
    stamp_append_time,
    write_crc,
)
from headrace.wire.error_codes import ErrorCode
from headrace.wire.records import Record, build_batch, read_records

RECORDS = [Record(index, 1_000 + index, b"key", b"value") for index in range(3)]


def batch(**fields: Any) -> bytearray:
    """A good batch with some header fields overwritten and its CRC renewed."""
    out = build_batch(RECORDS)
    header = read_header(out)._replace(**fields)
    struct.pack_into(">qiibIhiqqqhii", out, 0, *header)
    if "crc" not in fields:
        write_crc(memoryview(out), 0, len(out))
    return out


def split(data: bytes | bytearray, **options: Any) -> list[tuple[int, BatchHeader]]:
    options.setdefault("max_batch_bytes", None)
    return split_batches(memoryview(data), 0, len(data), **options)


def refused(data: bytes | bytearray, **options: Any) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        split(data, **options)
    assert caught.value.message
    return caught.value.code


def test_a_header_reads_as_it_was_built() -> None:
    built = build_batch(
        RECORDS,
        base_offset=0,
        leader_epoch=4,
        producer_id=7,
        producer_epoch=2,
        base_sequence=10,
        is_transactional=True,
    )
    header = read_header(memoryview(built))
    assert header.size == len(built)
    assert (header.base_offset, header.last_offset, header.next_offset) == (0, 2, 3)
    assert (header.leader_epoch, header.magic, header.record_count) == (4, 2, 3)
    assert (header.base_timestamp, header.max_timestamp) == (1_000, 1_002)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 10)
    assert header.last_sequence == 12
    assert header.is_transactional
    assert (header.codec, header.timestamp_type) == (0, 0)
    assert (header.is_control, header.has_delete_horizon) == (False, False)


def test_sequences_wrap_to_zero() -> None:
    assert read_header(batch(base_sequence=2**31 - 2)).last_sequence == 0
    assert read_header(batch(base_sequence=-1)).last_sequence == -1


def test_too_few_bytes_for_a_header_are_not_a_header() -> None:
    with pytest.raises(DecodeError, match="60 bytes"):
        read_header(bytes(60))
    with pytest.raises(DecodeError, match="0 bytes"):
        read_header(bytes(60), 80)


def test_batches_are_split_at_their_positions() -> None:
    first, second = build_batch(RECORDS), build_batch(RECORDS[:1])
    data = b"before" + first + second + b"after"
    found = split_batches(memoryview(data), 6, len(data) - 5, max_batch_bytes=None)
    assert [position for position, _ in found] == [6, 6 + len(first)]
    assert [header.record_count for _, header in found] == [3, 1]


def test_nothing_splits_into_nothing_except_for_produce() -> None:
    assert split(b"") == []
    assert refused(b"", single=True) is ErrorCode.invalid_record


def test_a_produce_holds_exactly_one_batch() -> None:
    assert len(split(build_batch(RECORDS), single=True)) == 1
    assert refused(build_batch(RECORDS) + build_batch(RECORDS), single=True) is ErrorCode.invalid_record
    assert refused(build_batch(RECORDS) + b"x", single=True) is ErrorCode.invalid_record


def test_a_produce_numbers_its_batch_from_zero() -> None:
    assert refused(batch(base_offset=5), single=True) is ErrorCode.invalid_record
    assert split(batch(base_offset=5))[0][1].base_offset == 5


def test_every_flipped_bit_under_the_crc_is_noticed() -> None:
    good = build_batch(RECORDS)
    for position in range(21, len(good)):
        bad = bytearray(good)
        bad[position] ^= 0x10
        assert refused(bad, single=True) is ErrorCode.corrupt_message
        assert not crc_ok(memoryview(bad), 0, len(bad))
    assert crc_ok(memoryview(good), 0, len(good))


def test_a_wrong_crc_is_corruption() -> None:
    assert refused(batch(crc=1)) is ErrorCode.corrupt_message


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_formats_are_refused_for_good(magic: int) -> None:
    """Kafka 4 answers INVALID_RECORD, on which no client tries again."""
    assert refused(batch(magic=magic), single=True) is ErrorCode.invalid_record
    old = struct.pack(">qiIbbii", 0, 22, 0, magic, 0, -1, -1) + bytes(8)
    with pytest.raises(ApiError, match=f"format {magic}") as caught:
        split(old, single=True)
    assert caught.value.code is ErrorCode.invalid_record


@pytest.mark.parametrize("magic", [3, 127, -1])
def test_an_unknown_magic_byte_is_corruption(magic: int) -> None:
    assert refused(batch(magic=magic), single=True) is ErrorCode.corrupt_message


def test_a_batch_cut_off_at_any_byte_is_refused() -> None:
    good = build_batch(RECORDS)
    for size in range(1, len(good)):
        assert refused(good[:size], single=True) is ErrorCode.invalid_record
        assert refused(good + good[:size]) is ErrorCode.invalid_record


@pytest.mark.parametrize("length", [-1, -(2**31), 0, 13, HEADER_SIZE - 13])
def test_a_length_less_than_the_header_is_corruption(length: int) -> None:
    assert refused(batch(batch_length=length, crc=0), single=True) is ErrorCode.corrupt_message


def test_a_length_beyond_the_data_is_refused() -> None:
    assert refused(batch(batch_length=2**31 - 1, crc=0), single=True) is ErrorCode.invalid_record
    assert refused(batch(batch_length=len(batch()) - 11, crc=0), single=True) is ErrorCode.invalid_record


def test_a_batch_may_be_as_large_as_allowed_and_no_larger() -> None:
    good = build_batch(RECORDS)
    assert split(good, max_batch_bytes=len(good), single=True)
    assert refused(good, max_batch_bytes=len(good) - 1) is ErrorCode.message_too_large


@pytest.mark.parametrize(
    "fields",
    [
        {"record_count": 2},
        {"record_count": 4},
        {"record_count": 0, "last_offset_delta": -1},
        {"record_count": -1, "last_offset_delta": -2},
        {"record_count": 0},
        {"last_offset_delta": 2**31 - 1},
        {"attributes": 0x20},  # control
        {"attributes": 0x40},  # delete horizon
        {"attributes": 5},  # codec
        {"attributes": 7},
        {"producer_id": 1, "base_sequence": -1},
    ],
)
def test_what_a_producer_may_not_send_is_an_invalid_record(fields: dict[str, int]) -> None:
    assert refused(batch(**fields), single=True) is ErrorCode.invalid_record


def test_a_producer_may_not_claim_append_time() -> None:
    assert refused(batch(attributes=0x08)) is ErrorCode.invalid_timestamp


@pytest.mark.parametrize(
    "fields", [{"record_count": 1}, {"attributes": 0x20}, {"attributes": 0x48}, {"record_count": 0}]
)
def test_batches_of_a_leader_may_be_what_a_producers_may_not(fields: dict[str, int]) -> None:
    assert split(batch(**fields), producer=False)


def test_an_unknown_codec_is_refused_from_anyone() -> None:
    assert refused(batch(attributes=6), producer=False) is ErrorCode.invalid_record


def test_assigning_a_place_leaves_the_crc_right() -> None:
    data = bytearray(b"....") + build_batch(RECORDS)
    view = memoryview(data)
    assign(view, 4, 2**40, read_header(view, 4).batch_length, 9)
    header = read_header(view, 4)
    assert (header.base_offset, header.leader_epoch, header.size) == (2**40, 9, len(data) - 4)
    assert crc_ok(view, 4, header.size)
    assert data[:4] == b"...."


def test_stamping_the_append_time_covers_every_record() -> None:
    data = build_batch(RECORDS, codec=4)
    view = memoryview(data)
    stamp_append_time(view, 0, 5_555)
    header = read_header(view)
    assert (header.timestamp_type, header.max_timestamp, header.codec) == (1, 5_555, 4)
    assert header.base_timestamp == 1_000
    assert crc_ok(view, 0, len(data))
    assert {record.timestamp for record in read_records(view)} == {5_555}
