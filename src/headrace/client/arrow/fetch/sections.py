# SPDX-License-Identifier: Apache-2.0
"""Splits fetched bytes into batches, checks CRCs, and skips control batches and aborted transactions.

Reads headers only; records are decoded by the kernels. Read next: read/decode.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headrace.errors import DecodeError
from headrace.wire.batch import (
    CONTROL_BIT,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    crc_of,
    read_header,
)
from headrace.wire.records import read_records

_ABORT_MARKER = b"\0\0"


class Section(NamedTuple):
    """One batch; of its records those from `first_offset` to before `end_offset` are wanted."""

    partition: int
    header: BatchHeader
    batch: memoryview
    first_offset: int
    end_offset: int


class Fetched(NamedTuple):
    """Records of one partition from one Fetch. `aborted`: (producer id, first offset) of transactions."""

    partition: int
    records: bytes | memoryview
    first_offset: int
    end_offset: int
    aborted: Sequence[tuple[int, int]] = ()


def sections_of(fetched: Fetched) -> Iterator[Section]:
    """DecodeError when a batch is damaged. A last batch that is cut off is left for the next fetch."""
    return (section for section, aborted in all_sections_of(fetched) if not aborted)


def all_sections_of(fetched: Fetched) -> Iterator[tuple[Section, bool]]:
    """The same with batches of aborted transactions; True for these."""
    view = memoryview(fetched.records)
    aborts = _Aborts(fetched.aborted)
    for position, header in whole_batches(view):
        if header.next_offset <= fetched.first_offset and not header.is_control:
            continue
        if header.base_offset >= fetched.end_offset:
            return
        batch = view[position : position + header.size]
        _check(batch, header, fetched.partition)
        aborted = aborts.holds(header, batch)
        if not header.is_control:
            section = Section(fetched.partition, header, batch, fetched.first_offset, fetched.end_offset)
            yield section, aborted


def whole_batches(view: memoryview) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of every batch that is there to its end."""
    position, end = 0, len(view)
    while end - position >= HEADER_SIZE:
        header = read_header(view, position)
        size = header.batch_length + LOG_OVERHEAD
        if size < HEADER_SIZE:
            raise DecodeError(f"batch at offset {header.base_offset} claims {size} bytes")
        if size > end - position:
            return
        yield position, header
        position += size


def _check(batch: memoryview, header: BatchHeader, partition: int) -> None:
    if header.magic == MAGIC and crc_of(batch) == header.crc:
        return
    where = f"batch at offset {header.base_offset} of partition {partition}"
    if header.magic != MAGIC:
        raise DecodeError(f"{where}: magic byte {header.magic}, not {MAGIC}")
    raise DecodeError(f"{where} does not match its CRC")


class _Aborts:
    """Which producers' transactions are inside an aborted range, while batches go by in order."""

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._coming = sorted(aborted, key=lambda entry: entry[1], reverse=True)
        self._open: set[int] = set()

    def holds(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether the batch belongs to an aborted transaction."""
        if not header.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT):
            return False
        while self._coming and self._coming[-1][1] <= header.last_offset:
            self._open.add(self._coming.pop()[0])
        if header.is_control:
            if is_abort_marker(batch):
                self._open.discard(header.producer_id)
            return False
        return header.is_transactional and header.producer_id in self._open


def is_abort_marker(batch: memoryview) -> bool:
    """A marker's key holds its version and its type, two bytes each."""
    return any((record.key or b"")[2:4] == _ABORT_MARKER for record in read_records(batch))
