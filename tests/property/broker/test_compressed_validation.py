# SPDX-License-Identifier: Apache-2.0
"""Compressed batches with random damage and the right CRC: the way with the kernels and the way without them
accept and refuse the same ones, and what is accepted can be read."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator

import cramjam
import pytest

from headrace.broker.partition.validation.record_validation import DeepCheck, check_batch, check_by_kernels
from headrace.errors import DecodeError
from headrace.wire import record_layout
from headrace.wire.batch import HEADER_SIZE, LOG_OVERHEAD, read_header, write_crc
from headrace.wire.compression import Caps, Codec, ExpandsTooFar, compress, decompress
from headrace.wire.records import read_records
from headrace.wire.scratch import Scratch
from tests.harness.batches.damaged import damaged_batches

ROUNDS = 400
SOUND = DeepCheck(validates=True, requires_key=False, codec=None)
CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


def packed(codec: int, body: bytes, source: random.Random) -> bytes:
    """In one of the framings of the codec."""
    if codec == Codec.SNAPPY and source.random() < 0.5:
        return bytes(cramjam.snappy.compress_raw(body))
    return compress(codec, body)


def damage(data: bytearray, source: random.Random) -> bytearray:
    kind = source.randrange(4)
    if kind == 0 and len(data) > 1:
        del data[source.randrange(1, len(data)) :]
    elif kind == 1:
        data += source.randbytes(source.randrange(1, 30))
    for _ in range(source.randrange(3) if data else 0):
        data[source.randrange(len(data))] = source.randrange(256)
    return data


def compressed_batches(codec: int, source: random.Random) -> Iterator[bytearray]:
    """Wrong records soundly compressed, right ones damaged afterwards, both, and neither."""
    for plain in damaged_batches(source, ROUNDS):
        payload = bytearray(packed(codec, bytes(plain[HEADER_SIZE:]), source))
        if source.random() < 0.5:
            payload = damage(payload, source)
        batch = bytearray(plain[:HEADER_SIZE]) + payload
        struct.pack_into(">h", batch, 21, codec)
        batch[8:12] = (len(batch) - LOG_OVERHEAD).to_bytes(4, "big")
        write_crc(memoryview(batch), 0, len(batch))
        yield batch


@pytest.mark.parametrize("codec", CODECS)
def test_with_and_without_kernels_the_same_batches_are_refused(
    codec: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = 0
    for batch in compressed_batches(codec, random.Random(7 + codec)):
        header = read_header(batch)
        by_kernels = check_by_kernels(SOUND, batch, header)
        with monkeypatch.context() as patch:
            patch.setattr(record_layout, "WALK", None)
            in_turn = check_batch(SOUND, batch, header)
        assert by_kernels is not None
        assert by_kernels.error_code == in_turn.error_code
        assert (by_kernels.batch is batch) == (by_kernels.error_code == 0)
        if by_kernels.batch is not None:
            assert len(read_records(memoryview(batch))) == header.record_count
        refused += by_kernels.batch is None
    assert ROUNDS // 4 < refused < ROUNDS


@pytest.mark.parametrize("codec", CODECS)
def test_data_is_expanded_to_the_same_bytes_in_scratch_memory(codec: int) -> None:
    source, scratch = random.Random(70 + codec), Scratch()
    limit, outcomes = 2000, set()
    for _ in range(ROUNDS):
        body = source.choice((b"", b"word " * source.randrange(600), source.randbytes(source.randrange(900))))
        data = bytearray(packed(codec, body, source))
        if source.random() < 0.5:
            data = damage(data, source)
        expected = outcome(lambda: bytes(decompress(codec, data, Caps(max_bytes=limit))))  # noqa: B023
        assert outcome(lambda: bytes(scratch.expand(codec, memoryview(data), limit))) == expected  # noqa: B023
        outcomes.add(expected if isinstance(expected, type) else bytes)
    assert outcomes == {bytes, DecodeError, ExpandsTooFar}


def outcome(call: Callable[[], bytes]) -> bytes | type[DecodeError]:
    try:
        return call()
    except DecodeError as error:
        return type(error)
