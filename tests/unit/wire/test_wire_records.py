# SPDX-License-Identifier: Apache-2.0
"""Records inside a batch: building, reading, checking, recompressing, and each way to be malformed (T16)."""

from __future__ import annotations

import re
import struct

import pytest

from headrace.errors import ApiError, DecodeError
from headrace.wire import record_layout
from headrace.wire.batch import BatchHeader, crc_ok, read_header, split_batches, write_crc
from headrace.wire.compression import Caps, Codec, compress
from headrace.wire.error_codes import ErrorCode
from headrace.wire.primitives import varint
from headrace.wire.record_layout import read_varint, read_varlong
from headrace.wire.records import (
    Record,
    build_batch,
    encode_records,
    iter_records,
    keyless_records,
    read_records,
    recompress,
    validate_records,
)

RECORDS = [
    Record(0, 1_700_000_000_000, b"key", b"value"),
    Record(1, 1_700_000_000_005, None, b"no key"),
    Record(2, 1_699_999_999_000, b"tombstone", None),
    Record(3, 1_700_000_000_001, b"", b"", (("id", b"abc"), ("empty", b""), ("null", None), ("id", b"2"))),
    Record(4, 1_700_000_000_002, b"k" * 300, b"v" * 70_000, (("größe", b"x"),)),
]
KEYED = [record for record in RECORDS if record.key is not None]

codecs = pytest.mark.parametrize("codec", list(Codec))


def batch_of(payload: bytes, count: int, **fields: int) -> memoryview:
    """A batch with these bytes for its records, CRC right."""
    header = read_header(build_batch([Record(0, 5, b"k", b"v")]))
    header = header._replace(
        batch_length=49 + len(payload), record_count=count, last_offset_delta=max(count - 1, 0)
    )
    out = bytearray(struct.pack(">qiibIhiqqqhii", *header._replace(**fields))) + payload
    write_crc(memoryview(out), 0, len(out))
    return memoryview(out)


@pytest.fixture(params=["kernels", "one by one"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways through the records refuse the same."""
    if request.param == "one by one":
        monkeypatch.setattr(record_layout, "WALK", None)


def refused(batch: memoryview, *, require_key: bool = False, caps: Caps | None = None) -> str:
    """Checked as a producer's batch it is an invalid record; read, it is a decode error."""
    with pytest.raises(ApiError) as caught:
        validate_records(batch, require_key=require_key, **({"caps": caps} if caps else {}))
    assert caught.value.code is ErrorCode.invalid_record
    return str(caught.value)


def unreadable(payload: bytes, count: int = 1) -> str:
    batch = batch_of(payload, count)
    message = refused(batch)
    with pytest.raises(DecodeError):
        read_records(batch)
    return message


@codecs
def test_built_records_are_read_back(codec: Codec) -> None:
    batch = memoryview(build_batch(RECORDS, codec=codec))
    assert read_records(batch) == RECORDS
    assert list(iter_records(batch)) == RECORDS
    header = read_header(batch)
    assert (header.codec, header.record_count, header.last_offset_delta) == (codec, 5, 4)
    assert header.max_timestamp == max(record.timestamp for record in RECORDS)
    assert split_batches(batch, 0, len(batch), max_batch_bytes=None, single=True)
    validate_records(batch, require_key=False)


@codecs
def test_a_batch_is_read_out_of_a_larger_buffer(codec: Codec) -> None:
    batch = build_batch(RECORDS, codec=codec)
    view = memoryview(bytearray(b"xx") + batch + batch)
    assert read_records(view[2:]) == RECORDS


def test_offsets_keep_their_gaps() -> None:
    kept = [Record(100, 5, b"a", b"1"), Record(107, 6, b"b", b"2")]
    batch = memoryview(build_batch(kept, base_offset=98, last_offset_delta=12, max_timestamp=99))
    header = read_header(batch)
    assert (header.base_offset, header.last_offset, header.max_timestamp) == (98, 110, 99)
    assert read_records(batch) == kept


def test_a_batch_may_be_left_without_records() -> None:
    """Compaction keeps it for the producer's last sequence."""
    for codec in Codec:
        batch = memoryview(
            build_batch([], codec=codec, base_offset=7, last_offset_delta=3, producer_id=1, base_sequence=0)
        )
        assert read_header(batch).last_offset == 10
        assert crc_ok(batch, 0, len(batch))
        assert read_records(batch) == []


def test_a_delete_horizon_replaces_the_base_timestamp() -> None:
    batch = memoryview(build_batch(RECORDS, delete_horizon_ms=9_999))
    header = read_header(batch)
    assert header.has_delete_horizon
    assert header.base_timestamp == 9_999
    assert read_records(batch) == RECORDS


def test_append_time_holds_for_all_records() -> None:
    batch = memoryview(build_batch(RECORDS, timestamp_type=1, max_timestamp=77))
    assert {record.timestamp for record in read_records(batch)} == {77}


def test_flags_and_producer_fields_are_set() -> None:
    header = read_header(
        build_batch(RECORDS, is_control=True, is_transactional=True, producer_id=5, producer_epoch=1)
    )
    assert isinstance(header, BatchHeader)
    assert (header.is_control, header.is_transactional) == (True, True)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 1, -1)


def test_header_names_that_are_not_utf8_survive() -> None:
    payload = encode_records([Record(0, 0, None, b"v", (("?", b"x"),))], base_offset=0, base_timestamp=0)
    batch = batch_of(payload.replace(b"?", b"\xff"), 1, base_timestamp=0)
    (record,) = read_records(batch)
    assert build_batch([record])[61:] == batch[61:]


@codecs
def test_another_codec_holds_the_same_records(codec: Codec) -> None:
    original = memoryview(
        build_batch(RECORDS, codec=Codec.GZIP, producer_id=9, producer_epoch=3, base_sequence=40)
    )
    rebuilt = memoryview(recompress(original, codec))
    before, after = read_header(original), read_header(rebuilt)
    assert after.codec == codec
    for name in ("producer_id", "producer_epoch", "base_sequence", "record_count", "max_timestamp"):
        assert getattr(after, name) == getattr(before, name)
    assert split_batches(rebuilt, 0, len(rebuilt), max_batch_bytes=None, single=True)
    assert read_records(rebuilt) == RECORDS


def test_recompressing_what_cannot_be_expanded_is_an_invalid_record() -> None:
    with pytest.raises(ApiError) as caught:
        recompress(batch_of(b"not gzip", 1, attributes=1), Codec.ZSTD)
    assert caught.value.code is ErrorCode.invalid_record


def test_a_compacted_topic_needs_keys() -> None:
    keyed = [Record(number, 5, record.key, b"v") for number, record in enumerate(KEYED)]
    validate_records(memoryview(build_batch(keyed)), require_key=True)
    assert re.search("record 1.* has no key", refused(memoryview(build_batch(RECORDS)), require_key=True))
    assert keyless_records(memoryview(build_batch(RECORDS))) == [1]
    assert keyless_records(memoryview(build_batch([*keyed, Record(9, 5, None, b"v")]))) == []  # out of order


@pytest.mark.parametrize("offsets", [(0, 2), (1, 2), (0, 0), (1, 0), (0, -1)])
def test_offsets_of_a_producer_rise_by_one_from_zero(offsets: tuple[int, int]) -> None:
    records = [Record(offset, 5, b"k", b"v") for offset in offsets]
    assert "offset delta" in refused(memoryview(build_batch(records, last_offset_delta=1)))


def test_more_or_fewer_records_than_announced_are_refused() -> None:
    payload = encode_records(RECORDS, base_offset=0, base_timestamp=0)
    assert "left after 4 records" in unreadable(payload, 4)
    assert "middle" in unreadable(payload, 6) or "record of" in unreadable(payload, 6)
    assert "records in" in unreadable(payload, 2**31 - 1)
    assert "records in" in unreadable(payload, -1)


BODY = b"\0\0\0\1\1\0"  # attributes, deltas of 0, null key, null value, no headers


@pytest.mark.parametrize(
    "body",
    [
        BODY[:-1],  # no header count
        b"\0\0\0\x08\1\0",  # key of four bytes, two left
        b"\0\0\0\1\x08\0",  # value of four bytes, one left
        b"\0\0\0\1\1\2",  # one header, no bytes
        b"\0\0\0\1\1\1",  # minus one headers
        b"\0\0\0\1\1\2\1\1",  # header name of minus one bytes
        b"\0\0\0\1\1\2\4\1",  # header name of two bytes, one left
        b"\0\0\0\1\1\2\2a\4",  # header value of two bytes, none left
        b"\0\0\0\1\1\2\2a\1z",  # a byte left after the headers
        b"\0\0\0\1\1\4\0\1\0",  # second header cut off
        BODY + b"z",  # a byte left
        b"\0\0\0\1\1\xfe\xff\xff\xff\x0f",  # two thousand million headers
        b"\0\0\0\xfe\xff\xff\xff\x0f\1\0",  # key of two thousand million bytes
        b"\0" + b"\xff" * 11,  # timestamp of more than ten bytes
        b"\0\0" + b"\xff" * 6,  # offset of more than five bytes
        b"\0\0\xff\xff\xff\xff\x1f\1\1\0",  # offset of 33 bits
    ],
)
def test_a_malformed_record_is_refused(body: bytes) -> None:
    assert unreadable(varint(len(body)) + body)


def test_a_wrong_record_length_is_refused() -> None:
    for length in (0, 5, 7, 1000, -1, -1000, 2**31 - 1):
        assert unreadable(varint(length) + BODY)


def test_records_cut_off_at_any_byte_are_refused() -> None:
    payload = encode_records(RECORDS[:4], base_offset=0, base_timestamp=RECORDS[0].timestamp)
    for size in range(len(payload)):
        assert unreadable(payload[:size], 4)


def test_a_timestamp_beyond_64_bits_is_refused() -> None:
    body = b"\0\4\0\1\1\0"
    batch = batch_of(varint(len(body)) + body, 1, base_timestamp=2**63 - 1)
    with pytest.raises(DecodeError, match="64 bits"):
        read_records(batch)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_damaged_compression_is_an_invalid_record(codec: int) -> None:
    payload = compress(codec, encode_records(RECORDS, base_offset=0, base_timestamp=0))
    assert refused(batch_of(payload[: len(payload) // 2], 5, attributes=codec))


def test_a_bomb_is_an_invalid_record() -> None:
    bomb = build_batch([Record(0, 5, b"k", bytes(8 << 20))], codec=Codec.ZSTD)
    assert "expand" in refused(memoryview(bomb))
    assert "expand" in refused(memoryview(bomb), caps=Caps(max_bytes=1 << 20))
    with pytest.raises(DecodeError, match="expand"):
        read_records(memoryview(bomb), max_bytes=1 << 20)
    assert len(read_records(memoryview(bomb))[0].value or b"") == 8 << 20


def test_compressed_records_inside_compressed_records_are_just_bytes_that_do_not_parse() -> None:
    inner = bytes(build_batch(RECORDS, codec=Codec.GZIP))
    assert refused(batch_of(compress(Codec.GZIP, inner), 5, attributes=Codec.GZIP))


@pytest.mark.parametrize("fields", [{"magic": 1}, {"batch_length": 10}, {"batch_length": 10_000}])
def test_invalid_batches_have_no_records(fields: dict[str, int]) -> None:
    with pytest.raises(DecodeError):
        read_records(batch_of(b"", 0, **fields))


@pytest.mark.parametrize("value", [0, 1, -1, 63, -64, 64, -65, 8191, 8192, 2**31 - 1, -(2**31)])
def test_varints_of_32_bits(value: int) -> None:
    encoded = varint(value)
    assert read_varint(memoryview(encoded), 0) == (value, len(encoded))
    assert read_varlong(memoryview(b"." + encoded), 1) == (value, 1 + len(encoded))


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 2**62, 2**63 - 1, -(2**63)])
def test_varints_of_64_bits(value: int) -> None:
    encoded = varint(value)
    assert read_varlong(memoryview(encoded), 0) == (value, len(encoded))
    with pytest.raises(DecodeError, match="32 bits"):
        read_varint(memoryview(encoded), 0)


def test_a_varint_of_65_bits_is_refused() -> None:
    with pytest.raises(DecodeError, match="64 bits"):
        read_varlong(memoryview(b"\xff" * 9 + b"\2"), 0)
    assert read_varlong(memoryview(b"\xff" * 9 + b"\1"), 0)[0] == -(2**63)
