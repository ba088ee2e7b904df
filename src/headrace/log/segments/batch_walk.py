# SPDX-License-Identifier: Apache-2.0
"""Going from batch to batch in a segment file by their headers, without looking at the records.

Knows files and the batch header, not segments or indexes. For the few batches behind an index entry; whole
files are read by segment_scan.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple, Protocol

from headrace.errors import CorruptLogError
from headrace.wire.batch import HEADER_SIZE, MAGIC

LOG_OVERHEAD = 12
"""Base offset and length: the part of a batch that its length field does not count."""
NO_LIMIT = 2**63 - 1

_PLACE = Struct(">qi4xb6xi")  # base offset, length, magic, last offset delta
_PLACE_BYTES = _PLACE.size
_READ_BYTES = 8192


class BatchPlace(NamedTuple):
    position: int
    size: int
    base_offset: int
    last_offset: int


def corrupt(path: Path, position: int, offset: int, what: str) -> CorruptLogError:
    error = CorruptLogError(
        f"{path}: {what} at position {position}, where offset {offset} is expected. Nothing was cut; "
        "restore the file from a replica or a backup, or stop the node and run: "
        f"headrace log repair {path.parent}"
    )
    stem = path.name.partition(".")[0]
    error.base_offset = int(stem) if stem.isdecimal() else None
    return error


class BatchFile(Protocol):
    """What is needed of a file here."""

    def pread(self, size: int, position: int) -> bytes: ...


def seek(
    file: BatchFile, path: Path, position: int, end: int, *, offset: int = NO_LIMIT, limit: int = NO_LIMIT
) -> BatchPlace | None:
    """The first batch from `position`, the start of one, that reaches `offset` or passes position `limit`.

    None when none does before `end`. What cannot be a batch header is corruption.
    """
    chunk, chunk_start, expected = b"", position, 0
    unpack = _PLACE.unpack_from
    while position < end:
        at = position - chunk_start
        if at + _PLACE_BYTES > len(chunk):
            chunk, chunk_start, at = file.pread(min(_READ_BYTES, end - position), position), position, 0
            if len(chunk) < _PLACE_BYTES:
                raise corrupt(path, position, expected, "a batch is cut off")
        base_offset, length, magic, last_offset_delta = unpack(chunk, at)
        size = length + LOG_OVERHEAD
        following = position + size
        if (
            magic != MAGIC
            or size < HEADER_SIZE
            or following > end
            or base_offset < expected
            or last_offset_delta < 0
        ):
            raise corrupt(path, position, expected, "no valid batch header")
        last_offset = base_offset + last_offset_delta
        if last_offset >= offset or following > limit:
            return BatchPlace(position, size, base_offset, last_offset)
        expected = last_offset + 1
        position = following
    return None


def walk(file: BatchFile, path: Path, position: int, end: int) -> Iterator[BatchPlace]:
    """Every batch from `position`, the start of one, to `end`."""
    while position < end:
        place = seek(file, path, position, end, offset=0)
        assert place is not None
        yield place
        position += place.size


def place_at(file: BatchFile, position: int, end: int) -> BatchPlace | None:
    """The batch that starts at `position`, or None when no header can be read there."""
    data = file.pread(_PLACE_BYTES, position)
    if len(data) < _PLACE_BYTES:
        return None
    base_offset, length, magic, last_offset_delta = _PLACE.unpack(data)
    size = length + LOG_OVERHEAD
    if magic != MAGIC or size < HEADER_SIZE or position + size > end or last_offset_delta < 0:
        return None
    return BatchPlace(position, size, base_offset, base_offset + last_offset_delta)
