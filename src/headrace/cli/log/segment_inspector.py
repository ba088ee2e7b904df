# SPDX-License-Identifier: Apache-2.0
"""Reads one segment with its indexes and reports corruption; for `headrace log dump`.

Opens files for reading only and trusts nothing in them. Needs no node: it works on a copy, on a live node's
files, and on Apache Kafka's. Read next: commands.py, wire/batch.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from headrace.errors import DecodeError
from headrace.log.producers.markers import EndTransactionMarker, read_marker
from headrace.log.segments.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, OffsetIndex, TimeIndex
from headrace.log.segments.transaction_index import (
    TRANSACTION_ENTRY_BYTES,
    AbortedTransaction,
    read_entries,
)
from headrace.wire.batch import HEADER_SIZE, HIGHEST_CODEC, MAGIC, BatchHeader, crc_ok, read_header
from headrace.wire.records import Record, iter_records

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Batch(NamedTuple):
    position: int
    header: BatchHeader
    sound: bool
    data: memoryview

    @property
    def codec(self) -> str:
        return CODECS[self.header.codec] if self.header.codec <= HIGHEST_CODEC else str(self.header.codec)

    @property
    def marker(self) -> EndTransactionMarker | None:
        """The end of a transaction, if the batch is one."""
        return read_marker(self.data) if self.header.is_control and self.sound else None

    def records(self) -> Iterator[Record]:
        """Raises DecodeError when they cannot be read."""
        return iter_records(self.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A corruption: the file, the position in it and the offset."""

    file: Path
    what: str
    position: int | None = None
    offset: int | None = None

    def __str__(self) -> str:
        where = "" if self.position is None else f" position {self.position}"
        if self.offset is not None:
            where += f" (offset {self.offset})"
        return f"{self.file}:{where} {self.what}"


class SegmentInspector:
    """Iterate over `batches()` once; totals and `problems` are complete afterwards."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.base_offset = int(path.stem)
        self.problems: list[Problem] = []
        self.batch_count = 0
        self.record_count = 0
        self.first_offset: int | None = None
        self.next_offset = self.base_offset
        self.size = 0
        self.index_entries: int | None = None
        self.time_entries: int | None = None
        self.aborted: list[AbortedTransaction] | None = None
        """The transaction index; None without a file."""

    def batches(self) -> Iterator[Batch]:
        positions = self._load_offset_index()
        times = self._load_time_index()
        aborted = self._load_transaction_index()
        with self.path.open("rb") as file:
            self.size = file.seek(0, 2)
            for batch in self._walk(file):
                self._check_offset_entry(batch, positions.pop(batch.position, None))
                self._check_time_entries(batch, times)
                self._check_aborted(batch, aborted.pop(batch.header.base_offset, None))
                yield batch
        for position, offset in positions.items():
            self._index_problem(".index", offset, f"points at position {position}, where no batch begins")
        for offset, _ in times:
            self._index_problem(".timeindex", offset, "points past the last batch")
        for offset in aborted:
            self._index_problem(".txnindex", offset, "points where no batch begins")

    def _walk(self, file: IO[bytes]) -> Iterator[Batch]:
        position = 0
        while position < self.size:
            file.seek(position)
            head = file.read(HEADER_SIZE)
            fault = self._fault_of(head, position)
            if fault is not None:
                self._problem(position, fault)
                return
            header = read_header(head)
            data = memoryview(head + file.read(header.size - HEADER_SIZE))
            sound = crc_ok(data, 0, header.size)
            if not sound:
                self._problem(position, "the batch does not match its CRC", header.base_offset)
            elif header.base_offset < self.next_offset:
                what = f"offset out of order, expected {self.next_offset}"
                self._problem(position, what, header.base_offset)
            self._count(header)
            yield Batch(position, header, sound, data)
            position += header.size

    def _fault_of(self, head: bytes, position: int) -> str | None:
        """Why the rest of the segment cannot be read."""
        left = self.size - position
        if len(head) < HEADER_SIZE:
            return f"a batch header is truncated after {left} bytes"
        header = read_header(head)
        if header.magic != MAGIC:
            return f"no batch starts here: magic byte {header.magic} instead of {MAGIC}"
        if header.size < HEADER_SIZE or header.last_offset_delta < 0:
            return f"impossible batch of {header.size} bytes and {header.last_offset_delta + 1} offsets"
        if header.size > left:
            return f"a batch of {header.size} bytes is truncated after {left}"
        return None

    def _count(self, header: BatchHeader) -> None:
        self.batch_count += 1
        self.record_count += header.record_count
        if self.first_offset is None:
            self.first_offset = header.base_offset
        self.next_offset = max(self.next_offset, header.next_offset)

    def _load_offset_index(self) -> dict[int, int]:
        data = self._index_bytes(".index", OFFSET_ENTRY_BYTES)
        if data is None:
            return {}
        index = OffsetIndex.decode(data, 1 << 62)
        assert index is not None
        self.index_entries = len(index)
        positions: dict[int, int] = {}
        last = -1
        for relative, position in map(index.entry, range(len(index))):
            if position <= last:
                self._index_problem(".index", self.base_offset + relative, "positions do not increase")
            last = position
            positions[position] = self.base_offset + relative
        return positions

    def _load_time_index(self) -> list[tuple[int, int]]:
        """(offset, timestamp) entries, in reverse order."""
        data = self._index_bytes(".timeindex", TIME_ENTRY_BYTES)
        if data is None:
            return []
        index = TimeIndex.decode(data)
        assert index is not None
        self.time_entries = len(index)
        entries = [
            (self.base_offset + relative, timestamp)
            for timestamp, relative in map(index.entry, range(len(index)))
        ]
        return sorted(entries, reverse=True)

    def _load_transaction_index(self) -> dict[int, AbortedTransaction]:
        """By the offset of the marker."""
        data = self._index_bytes(".txnindex", TRANSACTION_ENTRY_BYTES)
        if data is None:
            return {}
        self.aborted = []
        last = -1
        for version, entry in read_entries(data):
            if version:
                self._index_problem(".txnindex", entry.last_offset, f"has the unknown version {version}")
            if entry.last_offset <= last:
                self._index_problem(".txnindex", entry.last_offset, "does not follow the one before it")
            last = entry.last_offset
            self.aborted.append(entry)
        return {entry.last_offset: entry for entry in self.aborted}

    def _check_aborted(self, batch: Batch, entry: AbortedTransaction | None) -> None:
        if entry is None or not batch.sound:
            return
        marker = batch.marker
        if marker is None or marker.commits or batch.header.producer_id != entry.producer_id:
            text = f"points at no ABORT marker of producer {entry.producer_id}"
            self._index_problem(".txnindex", entry.last_offset, text)

    def _index_bytes(self, suffix: str, entry_size: int) -> bytes | None:
        """The index without Kafka's zero padding of active segments; None without a file."""
        path = self.path.with_suffix(suffix)
        if not path.exists():
            return None
        data = path.read_bytes()
        if len(data) % entry_size:
            text = f"{len(data)} bytes are not whole entries of {entry_size}"
            self.problems.append(Problem(file=path, what=text))
        entries = len(data) // entry_size
        while entries and not any(data[(entries - 1) * entry_size : entries * entry_size]):
            entries -= 1
        return data[: entries * entry_size]

    def _check_offset_entry(self, batch: Batch, offset: int | None) -> None:
        if offset is not None and offset < batch.header.base_offset:
            text = f"points at position {batch.position}, where offset {batch.header.base_offset} begins"
            self._index_problem(".index", offset, text)

    def _check_time_entries(self, batch: Batch, entries: list[tuple[int, int]]) -> None:
        while entries and entries[-1][0] <= batch.header.last_offset:
            offset, timestamp = entries.pop()
            if offset < batch.header.base_offset:
                self._index_problem(".timeindex", offset, "points between two batches")
            elif timestamp != batch.header.max_timestamp:
                text = f"says {timestamp}, the batch says {batch.header.max_timestamp}"
                self._index_problem(".timeindex", offset, text)

    def _index_problem(self, suffix: str, offset: int, what: str) -> None:
        problem = Problem(file=self.path.with_suffix(suffix), offset=offset, what=f"the entry {what}")
        self.problems.append(problem)

    def _problem(self, position: int, what: str, offset: int | None = None) -> None:
        offset = self.next_offset if offset is None else offset
        self.problems.append(Problem(file=self.path, position=position, offset=offset, what=what))

    def record_problem(self, batch: Batch, error: DecodeError) -> None:
        what = f"the records cannot be read: {error}"
        self._problem(batch.position, what, batch.header.base_offset)
