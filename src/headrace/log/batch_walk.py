"""Going from batch to batch in a segment file by their headers, without looking at the records.

Knows files and the batch header, not segments or indexes. `walk` is for the few batches after an index entry;
`read_chunks` feeds whole-file scans (recovery.py, compaction.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from headrace.errors import CorruptLogError
from headrace.wire.batch import HEADER_SIZE, MAGIC
from headrace.world import File

LOG_OVERHEAD = 12
"""Base offset and length: the part of a batch that its length field does not count."""

_PLACE = Struct(">qi4xb6xi")  # base offset, length, magic, last offset delta
_WALK_BYTES = 8192
CHUNK_BYTES = 1 << 20


class BatchPlace(NamedTuple):
    position: int
    size: int
    base_offset: int
    last_offset: int


def corrupt(path: Path, position: int, offset: int, what: str) -> CorruptLogError:
    return CorruptLogError(
        f"{path}: {what} at position {position}, where offset {offset} is expected. Nothing was cut; "
        "restore the file from a replica or a backup, or delete the partition"
    )


def walk(file: File, path: Path, position: int, end: int) -> Iterator[BatchPlace]:
    """The batches from `position`, the start of one, up to `end`. What cannot be a header is corruption."""
    chunk, chunk_start = b"", position
    expected = 0
    while position < end:
        at = position - chunk_start
        if at + HEADER_SIZE > len(chunk):
            chunk, chunk_start, at = file.pread(min(_WALK_BYTES, end - position), position), position, 0
        if len(chunk) - at < HEADER_SIZE:
            raise corrupt(path, position, expected, "a batch is cut off")
        base_offset, length, magic, last_offset_delta = _PLACE.unpack_from(chunk, at)
        size = length + LOG_OVERHEAD
        if (
            magic != MAGIC
            or size < HEADER_SIZE
            or position + size > end
            or base_offset < expected
            or last_offset_delta < 0
        ):
            raise corrupt(path, position, expected, "no valid batch header")
        yield BatchPlace(position, size, base_offset, base_offset + last_offset_delta)
        expected = base_offset + last_offset_delta + 1
        position += size


def place_at(file: File, position: int, end: int) -> BatchPlace | None:
    """The batch that starts at `position`, or None when no header can be read there."""
    data = file.pread(_PLACE.size, position)
    if len(data) < _PLACE.size:
        return None
    base_offset, length, magic, last_offset_delta = _PLACE.unpack_from(data)
    size = length + LOG_OVERHEAD
    if magic != MAGIC or size < HEADER_SIZE or position + size > end or last_offset_delta < 0:
        return None
    return BatchPlace(position, size, base_offset, base_offset + last_offset_delta)
