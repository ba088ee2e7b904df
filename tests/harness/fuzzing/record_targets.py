# SPDX-License-Identifier: Apache-2.0
"""Targets: record batches, their records and codecs. ApiError and DecodeError may come out, nothing else.

Where two readers exist, compiled and plain or whole and partial, they must agree.
Read next: catalog.py, headrace/wire/records.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import TypeVar

from headrace.broker.partition.validation.record_validation import DeepCheck, check_batch, check_by_kernels
from headrace.errors import ApiError, DecodeError
from headrace.kernels.walk import load_walk
from headrace.wire.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    read_header,
    read_sound_batch,
    split_batches,
    write_crc,
)
from headrace.wire.compression import PRODUCER_CAPS, Caps, Codec, compress, decompress
from headrace.wire.error_codes import ErrorCode
from headrace.wire.key_values import iter_key_values
from headrace.wire.record_keys import read_keys
from headrace.wire.record_layout import check_in_turn, layouts_in_turn
from headrace.wire.records import Record, build_batch, read_records, recompress, validate_records
from tests.harness.fuzzing.target import Target

CAPS = Caps(max_bytes=1 << 20, max_ratio=100, free_bytes=1 << 16)
REFUSALS = {
    ErrorCode.corrupt_message,
    ErrorCode.invalid_record,
    ErrorCode.invalid_timestamp,
    ErrorCode.message_too_large,
    ErrorCode.unsupported_for_message_format,
}
_SOUND_RECORDS = DeepCheck(validates=True, requires_key=False, codec=None)
_MAGIC_AT = 16
T = TypeVar("T")


def read_batch(data: bytes) -> None:
    """Bytes of a partition in a Produce request: as they are, and with length and CRC put right."""
    check_batches(bytearray(data))
    if len(data) > HEADER_SIZE:
        check_batches(mended(data))


def mended(data: bytes) -> bytearray:
    batch = bytearray(data)
    batch[8:12] = (len(batch) - LOG_OVERHEAD).to_bytes(4, "big")
    write_crc(memoryview(batch), 0, len(batch))
    return batch


def check_batches(batch: bytearray) -> None:
    view = memoryview(batch)
    sound = read_sound_batch(view, 0, len(view), CAPS.max_bytes) if len(view) >= HEADER_SIZE else None
    split = _refused(lambda: split_batches(view, 0, len(view), max_batch_bytes=CAPS.max_bytes, single=True))
    assert sound is None or split == [(0, sound)], "the quick check accepts what the full one refuses"
    _refused(lambda: split_batches(view, 0, len(view), max_batch_bytes=None, producer=False))
    _refused(lambda: validate_records(view, require_key=True, caps=CAPS))
    _refused(lambda: recompress(view, Codec.LZ4, caps=CAPS))
    _compare_readers(view)


def _refused(call: Callable[[], T]) -> T | None:
    try:
        return call()
    except ApiError as error:
        assert error.code in REFUSALS, error  # noqa: PT017 - it may, and then with one of these
    except DecodeError:
        pass
    return None


def _compare_readers(view: memoryview) -> None:
    """Whole records, keys and values, and keys alone."""
    records = _refused(lambda: read_records(view, max_bytes=CAPS.max_bytes))
    pairs = _refused(lambda: list(iter_key_values(view)))
    keys = _refused(lambda: read_keys(view))
    if records is not None:
        assert pairs == [(record.offset, record.key, record.value) for record in records]
        assert keys is not None
        assert [key for _, key, _ in keys] == [record.key for record in records]


def walk_records(data: bytes) -> None:
    """The body of an uncompressed batch behind its number of records: kernels and plain code agree."""
    walk = load_walk()
    if walk is None or not data:
        return
    count, body = data[0], memoryview(bytearray(data[1:]))
    plain = _sound(lambda: check_in_turn(body, count, 0, needs_key=False))
    assert (walk.check(body, count, 0, needs_key=False) is None) == plain
    if plain:
        assert [tuple(each) for each in walk.layouts(body, count)] == [
            tuple(each) for each in layouts_in_turn(body, count)
        ]


def check_compressed(data: bytes) -> None:
    """A batch of any codec: what a thread finds sound with the kernels is what plain code finds sound."""
    if len(data) <= HEADER_SIZE:
        return
    batch = mended(data)
    batch[_MAGIC_AT] = MAGIC
    header = read_header(batch)
    checked = check_by_kernels(_SOUND_RECORDS, batch, header)
    if checked is None:  # snappy in too many pieces: for the worker process
        checked = check_batch(_SOUND_RECORDS, batch, header)
    assert checked.error_code in (0, ErrorCode.invalid_record)

    def plain() -> None:
        body = decompress(header.codec, memoryview(batch)[HEADER_SIZE:], PRODUCER_CAPS)
        check_in_turn(memoryview(body), header.record_count, header.base_timestamp, needs_key=False)

    assert (checked.error_code == 0) == _sound(plain)


def _sound(check: Callable[[], None]) -> bool:
    try:
        check()
    except DecodeError:
        return False
    return True


def expand(data: bytes) -> None:
    """The first byte names the codec: damaged data is refused, and no output is longer than its cap."""
    if data:
        with suppress(DecodeError):
            assert len(decompress(data[0] & 0x07, data[1:], CAPS)) <= CAPS.max_bytes


def sound_batches() -> Sequence[bytes]:
    chance = Random(3)
    return [
        bytes(
            build_batch(
                _records(chance), codec=codec, producer_id=producer, producer_epoch=0, base_sequence=0
            )
        )
        for codec in Codec
        for producer in (-1, 7)
        for _ in range(4)
    ]


def _records(chance: Random) -> list[Record]:
    return [
        Record(
            number,
            chance.choice((0, -1, 1_700_000_000_000, 2**62)),
            chance.choice((None, b"", b"key")),
            chance.choice((None, b"", b"value" * 30)),
            tuple((f"h{n}", chance.choice((None, b"x"))) for n in range(chance.randrange(3))),
        )
        for number in range(chance.randint(1, 5))
    ]


def _bodies() -> Sequence[bytes]:
    batches = [batch for batch in sound_batches() if not read_header(batch).codec]
    return [bytes([read_header(batch).record_count]) + batch[HEADER_SIZE:] for batch in batches]


def _compressed() -> Sequence[bytes]:
    bodies = [b"", b"abc", b"a" * 5000, Random(4).randbytes(300), b"a" * (2 << 20)]
    framed = [bytes([codec]) + compress(codec, body) for codec in Codec for body in bodies]
    return [each for each in framed if len(each) < 20_000]


RECORD_TARGETS = (
    Target(name="batches", run=read_batch, sound=sound_batches),
    Target(name="validation", run=check_compressed, sound=sound_batches),
    Target(name="kernels", run=walk_records, sound=_bodies),
    Target(name="compression", run=expand, sound=_compressed),
)
