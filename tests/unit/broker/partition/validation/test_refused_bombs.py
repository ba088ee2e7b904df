# SPDX-License-Identifier: Apache-2.0
"""Refused bombs leave nothing in the memory of the threads and the worker process that unpacked them (S2)."""

from __future__ import annotations

import asyncio
import gc
import resource
import struct

import crc32c
import psutil
import pytest

from headrace.broker.partition.validation.record_validation import (
    DeepCheck,
    TurnAllowance,
    check_at_once,
    check_batch,
    check_by_kernels,
)
from headrace.errors import ApiError
from headrace.realworld import RealWorld
from headrace.wire.batch import BatchHeader, read_header
from headrace.wire.compression import PRODUCER_CAPS, compress
from headrace.wire.error_codes import ErrorCode
from headrace.wire.records import Record, build_batch

ZSTD = 4
BOMBS = 16
ROOM_BYTES = 6 * PRODUCER_CAPS.max_bytes
"""For what one bomb takes while it is unpacked, in two workers; without the mend 16 of them stay."""
SOUND = DeepCheck(validates=True, requires_key=False, codec=None)
_CRC_AT, _ATTRIBUTES_AT, _RECORDS_AT = 17, 21, 61


def _batch(expanded: bytes) -> bytearray:
    """A batch with a sound header around bytes that are no records."""
    head = build_batch([Record(0, 0, None, b"x")])[:_RECORDS_AT]
    batch = bytearray(head) + compress(ZSTD, expanded)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, _ATTRIBUTES_AT, ZSTD)
    struct.pack_into(">I", batch, _CRC_AT, crc32c.crc32c(bytes(batch[_ATTRIBUTES_AT:])))
    return batch


def _header(batch: bytearray) -> BatchHeader:
    return read_header(memoryview(batch))


def _is_refused_at_once(batch: bytearray) -> bool:
    try:
        check_at_once(SOUND, memoryview(batch), _header(batch), TurnAllowance(lambda renew: None))
    except ApiError:
        return True
    return False


def _bomb() -> bytearray:
    """Expands to the cap of producers: half of it bytes that hardly shrink the ratio."""
    noise = RealWorld().random.randbytes(100 << 10)
    return _batch(noise + bytes(PRODUCER_CAPS.max_bytes + 1))


def test_threads_that_refuse_bombs_do_not_grow_the_node() -> None:
    batch, process = _bomb(), psutil.Process()

    async def scenario() -> int:
        world = RealWorld()
        try:
            before = process.memory_info().rss
            checks = [
                world.tasks.compute(check_by_kernels, SOUND, batch, _header(batch)) for _ in range(BOMBS)
            ]
            for checked in await asyncio.gather(*checks):
                assert checked is not None
                assert checked.error_code == ErrorCode.invalid_record
        finally:
            await world.tasks.close()
        return process.memory_info().rss - before

    assert asyncio.run(scenario()) < PRODUCER_CAPS.max_bytes


def test_a_worker_that_refuses_bombs_does_not_grow() -> None:
    """What Python names record by record, and everything without kernels."""
    batch = _bomb()

    async def scenario() -> int:
        world = RealWorld()
        try:
            before = await world.tasks.bulk(resource.getrusage, resource.RUSAGE_SELF)
            for _ in range(BOMBS):
                checked = await world.tasks.bulk(check_batch, SOUND, batch, _header(batch))
                assert checked.error_code == ErrorCode.invalid_record
            after = await world.tasks.bulk(resource.getrusage, resource.RUSAGE_SELF)
        finally:
            await world.tasks.close()
        return (after.ru_maxrss - before.ru_maxrss) * 1024

    assert asyncio.run(scenario()) < ROOM_BYTES


@pytest.mark.parametrize("expanded", [bytes(200 << 10), b"\x02\x00" * 50], ids=["bomb", "no records"])
def test_a_refused_batch_leaves_no_cycle_for_the_garbage_collector(expanded: bytes) -> None:
    batch = _batch(expanded)
    header = _header(batch)
    gc.collect()
    gc.disable()
    try:
        assert check_batch(SOUND, batch, header).error_code == ErrorCode.invalid_record
        assert _is_refused_at_once(_batch(b"\x02\x00"))
        assert gc.collect() == 0
    finally:
        gc.enable()
