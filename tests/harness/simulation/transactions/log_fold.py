# SPDX-License-Identifier: Apache-2.0
"""The transactions in the log of one replica, by nothing but its batches: what the replica must know of them.

Follows the log as it grows and is cut, and reads every batch once; no producer state, no index, no snapshot.
Read next: invariants.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headrace.broker.partition.partition import Partition
from headrace.log.producers.markers import EndTransactionMarker, read_marker
from headrace.log.segments.transaction_index import AbortedTransaction
from headrace.wire.batch import BatchHeader, read_header

_READ_BYTES = 1 << 20


class Ended(NamedTuple):
    first_offset: int
    marker_offset: int


class Batch(NamedTuple):
    """One of a transaction."""

    header: BatchHeader
    marker: EndTransactionMarker | None
    data: bytes


class Ending(NamedTuple):
    """A marker, and the batches that it ended."""

    marker: Batch
    batches: tuple[Batch, ...]


class LogFold:
    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.end = partition.log_start_offset
        self.aborted: list[AbortedTransaction] = []
        self._batches: list[Batch] = []
        self._open: dict[int, list[Batch]] = {}
        self._ended: list[Ended] = []

    def follow(self) -> list[Ending]:
        """Takes what was appended or cut since the last call; the transactions that ended by it."""
        end = self.partition.log_end_offset
        if end < self.end:
            self._cut(end)
        endings = []
        for header, data in batches_of(self.partition, self.end, end):
            if header.is_transactional:
                marker = read_marker(memoryview(data)) if header.is_control else None
                ending = self._take(Batch(header, marker, data))
                if ending is not None:
                    endings.append(ending)
        self.end = end
        return endings

    def _cut(self, end: int) -> None:
        batches = [batch for batch in self._batches if batch.header.base_offset < end]
        self._batches, self._open, self._ended, self.aborted = [], {}, [], []
        for batch in batches:
            self._take(batch)
        self.end = end

    def _take(self, batch: Batch) -> Ending | None:
        self._batches.append(batch)
        header, marker = batch.header, batch.marker
        if not header.is_control:
            self._open.setdefault(header.producer_id, []).append(batch)
            return None
        ended = self._open.pop(header.producer_id, None) if marker is not None else None
        if ended is None or marker is None:
            return None
        first, offset = ended[0].header.base_offset, header.base_offset
        self._ended.append(Ended(first, offset))
        if not marker.commits:
            stable = min((each[0].header.base_offset for each in self._open.values()), default=offset + 1)
            self.aborted.append(AbortedTransaction(header.producer_id, first, offset, stable))
        return Ending(batch, tuple(ended))

    def last_stable_offset(self) -> int:
        """By its definition, from the high watermark that the replica has now."""
        high_watermark = self.partition.high_watermark
        undecided = [each[0].header.base_offset for each in self._open.values()]
        for ended in reversed(self._ended):
            if ended.marker_offset < high_watermark:
                break
            undecided.append(ended.first_offset)
        first = min(undecided, default=high_watermark)
        return min(high_watermark, max(self.partition.log_start_offset, first))


def batches_of(partition: Partition, start: int, end: int) -> Iterator[tuple[BatchHeader, bytes]]:
    """Everything between two offsets of a replica's log."""
    while start < end:
        piece = partition.log.read(start, _READ_BYTES, end, at_least_one=True, wait=True)
        if piece is None:
            return
        data = bytes(piece.bytes())
        start = piece.next_offset
        piece.release()
        position = 0
        while position < len(data):
            header = read_header(data, position)
            yield header, data[position : position + header.size]
            position += header.size
