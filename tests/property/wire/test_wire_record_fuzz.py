# SPDX-License-Identifier: Apache-2.0
"""Damaged batches, their CRC renewed or not: an error code or a DecodeError, never anything else (T16)."""

from __future__ import annotations

import contextlib
import random
import struct

import pytest

from headrace.errors import ApiError, DecodeError
from headrace.wire.batch import read_header, split_batches, write_crc
from headrace.wire.compression import Caps, Codec
from headrace.wire.error_codes import ErrorCode
from headrace.wire.records import Record, build_batch, read_records, recompress, validate_records

ROUNDS = 1_500
CAPS = Caps(max_bytes=1 << 20, max_ratio=100, free_bytes=1 << 16)
REFUSALS = {
    ErrorCode.corrupt_message,
    ErrorCode.invalid_record,
    ErrorCode.invalid_timestamp,
    ErrorCode.message_too_large,
}


def records(source: random.Random) -> list[Record]:
    return [
        Record(
            number,
            source.randrange(1 << 42),
            source.choice((None, b"", source.randbytes(source.randrange(90)))),
            source.choice((None, b"", source.randbytes(source.randrange(90)))),
            tuple((f"h{n}", source.choice((None, b"x"))) for n in range(source.randrange(3))),
        )
        for number in range(source.randint(1, 6))
    ]


def damage(batch: bytearray, source: random.Random) -> bytearray:
    kind = source.randrange(5)
    if kind == 0:
        del batch[source.randrange(1, len(batch)) :]
    elif kind == 1:
        batch += source.randbytes(source.randrange(1, 80))
    elif kind == 2:
        position = source.randrange(len(batch) - 4)
        struct.pack_into(">i", batch, position, source.choice((0, -1, 2**31 - 1, -(2**31), 1 << 20)))
    else:
        for _ in range(source.randint(1, 6)):
            batch[source.randrange(len(batch))] = source.randrange(256)
    if len(batch) > 61 and source.random() < 0.8:
        with contextlib.suppress(struct.error):
            size = read_header(batch).size
            write_crc(memoryview(batch), 0, size if 61 <= size <= len(batch) else len(batch))
    return batch


def try_everything(batch: bytearray) -> None:
    view = memoryview(batch)
    for options in ({"single": True}, {"producer": False}):
        try:
            split_batches(view, 0, len(view), max_batch_bytes=1 << 20, **options)
        except ApiError as error:
            assert error.code in REFUSALS  # noqa: PT017
    try:
        validate_records(view, require_key=True, caps=CAPS)
    except ApiError as error:
        assert error.code is ErrorCode.invalid_record  # noqa: PT017
    with contextlib.suppress(DecodeError):
        read_records(view, max_bytes=CAPS.max_bytes)
    with contextlib.suppress(DecodeError, ApiError):
        recompress(view, Codec.LZ4, caps=CAPS)


@pytest.mark.parametrize("codec", list(Codec))
def test_damaged_batches(codec: Codec) -> None:
    source = random.Random(1000 + codec)
    for _ in range(ROUNDS):
        try_everything(damage(build_batch(records(source), codec=codec), source))


@pytest.mark.soak
@pytest.mark.parametrize("codec", list(Codec))
def test_very_many_damaged_batches(codec: Codec) -> None:
    source = random.Random()
    for _ in range(40_000):
        try_everything(damage(build_batch(records(source), codec=codec), source))
