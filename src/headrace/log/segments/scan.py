# SPDX-License-Identifier: Apache-2.0
"""Reading a whole segment file batch by batch with every check that recovery asks for (R26).

One tight loop over large reads: a log of small batches has millions of them. It judges bytes and reports
where they stop being sound; what that means (torn tail or bit rot) is recovery.py's to say.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from headrace.log.segments.batch_walk import LOG_OVERHEAD
from headrace.wire.batch import HEADER_SIZE, MAGIC
from headrace.world import File

CHUNK_BYTES = 1 << 20

_HEADER = Struct(">qiibIhiqqqhii")
_ATTRIBUTES_AT = 21  # what the CRC covers begins here
NO_EPOCH = -1
_ANY_OFFSET = 2**63 - 1

Note = Callable[[int, int, int], None]
"""(batch size, last offset, max timestamp) of every sound batch, in order: Segment.note."""
Visit = Callable[[tuple[int, ...], memoryview], None]
"""(header fields, the batch's bytes) of batches that matter to producer state or epochs."""


class ScanEnd(NamedTuple):
    position: int
    next_offset: int
    leader_epoch: int
    batches: int
    fault: str | None
    """Why the batch at `position` is not sound; None at the end of the file."""


def scan(
    file: File,
    *,
    size: int,
    position: int = 0,
    expected_offset: int,
    leader_epoch: int = NO_EPOCH,
    note: Note | None = None,
    visit: Visit | None = None,
    visit_all: bool = False,
    gapless: bool = False,
    until: int | None = None,
    largest_offset: int = _ANY_OFFSET,
) -> ScanEnd:
    """Checks magic, length, CRC32C, rising offsets and epochs that do not fall, from `position` to `size`.

    `largest_offset`: no batch of the segment can begin behind it.
    `until`: ends at the first batch that begins there or later.
    `visit` is called for batches of producers and for the first batch of a leader epoch; with `visit_all` for
    every batch. `gapless`: no compaction has been here, so each offset follows the last.
    """
    unpack, checksum = _HEADER.unpack_from, crc32c
    chunk, at, available, batches = memoryview(b""), 0, 0, 0
    end = size if until is None else min(size, until)
    while position < end:
        if available - at < HEADER_SIZE:
            chunk, at, available = _refill(file, position, size, CHUNK_BYTES)
            if available < HEADER_SIZE:
                return ScanEnd(position, expected_offset, leader_epoch, batches, "a batch header is cut off")
        fields = unpack(chunk, at)
        batch_size = fields[1] + LOG_OVERHEAD
        if (
            fields[3] != MAGIC
            or batch_size < HEADER_SIZE
            or not expected_offset <= fields[0] <= largest_offset
            or (gapless and fields[0] != expected_offset)
            or fields[6] < 0
            or fields[2] < leader_epoch
            or batch_size > size - position
        ):
            fault = _fault(fields, batch_size, size - position, expected_offset, leader_epoch)
            return ScanEnd(position, expected_offset, leader_epoch, batches, fault)
        if batch_size > available - at:
            chunk, at, available = _refill(file, position, size, max(batch_size, CHUNK_BYTES))
            if batch_size > available:
                return ScanEnd(position, expected_offset, leader_epoch, batches, "a batch is cut off")
        if checksum(chunk[at + _ATTRIBUTES_AT : at + batch_size]) != fields[4]:
            fault = "a batch does not match its CRC"
            return ScanEnd(position, expected_offset, leader_epoch, batches, fault)
        last_offset = fields[0] + fields[6]
        if visit is not None and (visit_all or fields[9] >= 0 or fields[2] != leader_epoch):
            visit(fields, chunk[at : at + batch_size])
        if note is not None:
            note(batch_size, last_offset, fields[8])
        leader_epoch = fields[2]
        expected_offset = last_offset + 1
        position += batch_size
        at += batch_size
        batches += 1
    return ScanEnd(position, expected_offset, leader_epoch, batches, None)


def _refill(file: File, position: int, size: int, wanted: int) -> tuple[memoryview, int, int]:
    data = file.pread(min(wanted, size - position), position)
    return memoryview(data), 0, len(data)


def _fault(
    fields: tuple[int, ...], batch_size: int, remaining: int, expected_offset: int, leader_epoch: int
) -> str:
    if fields[3] != MAGIC:
        return f"magic byte {fields[3]} instead of {MAGIC}"
    if batch_size < HEADER_SIZE or fields[6] < 0:
        return f"an impossible batch of {batch_size} bytes and {fields[6] + 1} offsets"
    if fields[2] < leader_epoch:
        return f"leader epoch {fields[2]} falls below {leader_epoch}"
    if batch_size <= remaining:
        return f"offset {fields[0]} does not follow"
    return f"a batch of {batch_size} bytes is cut off after {remaining}"
