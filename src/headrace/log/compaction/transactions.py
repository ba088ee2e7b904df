# SPDX-License-Identifier: Apache-2.0
"""Which batches and markers of transactions a compaction may remove, as Kafka's CleanedTransactionMetadata.

Records of aborted transactions count for nothing. A marker stays as long as a batch of its transaction is
found before it, even an emptied one: without its marker that batch would begin a transaction that never ends.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from pathlib import Path

from headrace.log.producers.markers import EndTransactionMarker
from headrace.log.producers.snapshot import SnapshotFiles
from headrace.log.producers.state import NO_OFFSET
from headrace.log.segments.transaction_index import AbortedTransaction
from headrace.wire.batch import BatchHeader
from headrace.world import Files


class AbortedBatches:
    """Tells batches of aborted transactions by producer and offset."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._by_producer: dict[int, list[AbortedTransaction]] = {}
        for entry in sorted(aborted, key=lambda entry: entry.first_offset):
            self._by_producer.setdefault(entry.producer_id, []).append(entry)

    def transaction_of(self, header: BatchHeader) -> AbortedTransaction | None:
        """The aborted transaction that the batch, or the marker, belongs to."""
        if not header.is_transactional:
            return None
        entries = self._by_producer.get(header.producer_id, ())
        slot = bisect_right(entries, header.base_offset, key=lambda entry: entry.first_offset) - 1
        if slot < 0 or header.base_offset > entries[slot].last_offset:
            return None
        return entries[slot]


class FoundTransactions:
    """The transactions of which batches were found, from the start of the log on, until their markers are."""

    def __init__(self) -> None:
        self._producers: set[int] = set()

    def batch(self, header: BatchHeader) -> None:
        if header.is_transactional:
            self._producers.add(header.producer_id)

    def end(self, header: BatchHeader, marker: EndTransactionMarker | None) -> bool:
        """Whether there were batches of the transaction that this control batch ends.

        None: the batch was emptied before, when there were none any more.
        """
        if marker is None or header.producer_id not in self._producers:
            return False
        self._producers.discard(header.producer_id)
        return True


class SnapshotTransactions:
    """The transactions that are open in producer snapshots; read when they are first asked for."""

    def __init__(self, files: Files, directory: Path, offsets: Iterable[int]) -> None:
        self._snapshots = SnapshotFiles(files, directory, offsets)
        self._open_at: dict[int, int] | None = None
        """By producer id: the offset of the first snapshot in which it has an open transaction."""

    def is_open_before(self, producer_id: int, offset: int) -> bool:
        if self._open_at is None:
            self._open_at = self._read()
        return self._open_at.get(producer_id, offset + 1) <= offset

    def _read(self) -> dict[int, int]:
        open_at: dict[int, int] = {}
        for offset in self._snapshots.offsets:
            for entry in self._snapshots.read(offset) or ():
                if entry.transaction_start != NO_OFFSET:
                    open_at.setdefault(entry.producer_id, offset)
        return open_at
