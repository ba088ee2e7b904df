# SPDX-License-Identifier: Apache-2.0
"""The aborted transactions of one log, by the indexes of its segments, and what they are rebuilt from.

An index that is damaged or marked as unknown is rebuilt: from the producer snapshot at or below the segment's
base offset (which transactions were open there) and the batches behind it. Why a missing file is not an empty
one: decision 29. Read next: segments/transaction_index.py, producers/open_transactions.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headrace.log.producers.markers import read_marker
from headrace.log.producers.open_transactions import EndedTransaction, OpenTransactions
from headrace.log.producers.snapshot import SnapshotFiles
from headrace.log.producers.state import open_transactions
from headrace.log.segments.cold_read import ColdIndex
from headrace.log.segments.files import TRANSACTION_INDEX_SUFFIX
from headrace.log.segments.segment import Segment
from headrace.log.segments.segment_list import SegmentList
from headrace.log.segments.transaction_index import NO_ABORTS, AbortedTransaction, TransactionIndex
from headrace.wire.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from headrace.world import Files

_OF_TRANSACTIONS = CONTROL_BIT | TRANSACTIONAL_BIT


class TransactionFold:
    """Goes through batches and calls `on_end` for every transaction that one of them ends."""

    def __init__(
        self, transactions: OpenTransactions, from_offset: int, on_end: Callable[[EndedTransaction], None]
    ) -> None:
        self._open = transactions
        self._from_offset = from_offset
        self._on_end = on_end

    def visit(self, fields: tuple[int, ...], batch: memoryview) -> None:
        """For segments/scan.py: one batch further."""
        if not fields[5] & _OF_TRANSACTIONS or fields[0] < self._from_offset:
            return
        header = tuple.__new__(BatchHeader, fields)
        marker = read_marker(batch) if header.is_control else None
        ended = self._open.update(header, header.base_offset, marker)
        if ended is not None:
            self._on_end(ended)

    def replay(self, segments: Iterable[Segment]) -> None:
        """What lies behind the offset from which this began. Raises CorruptLogError."""
        for segment in segments:
            segment.visit_batches(self._from_offset, self.visit)


def fold_from(
    offset: int,
    segments: Iterable[Segment],
    snapshots: SnapshotFiles,
    on_end: Callable[[EndedTransaction], None],
) -> TransactionFold:
    """A fold that has gone as far as `offset`, where one of the segments begins, or the one behind them."""
    snapshot = snapshots.at_or_below(offset)
    from_offset, entries = (0, []) if snapshot is None else snapshot
    fold = TransactionFold(open_transactions(entries), from_offset, on_end)
    fold.replay(segment for segment in segments if segment.base_offset < offset)
    return fold


class TransactionIndexes:
    def __init__(self, files: Files, segments: SegmentList, snapshots: SnapshotFiles) -> None:
        self._files = files
        self._segments = segments
        self._snapshots = snapshots
        self._none_from = NO_ABORTS
        """No marker of an aborted transaction lies at or above this offset, so that readers of a log without
        aborted transactions need no index. Truncation, compaction and retention only remove markers."""

    def of(self, segment: Segment) -> TransactionIndex:
        """Of one of the log's segments; rebuilt where it is not known."""
        index = segment.aborted
        return self.rebuild(segment) if index is None else index

    def rebuild(self, segment: Segment) -> TransactionIndex:
        """From the log, whatever the file says."""
        ended: list[EndedTransaction] = []
        fold_from(segment.base_offset, self._segments, self._snapshots, ended.append).replay([segment])
        index = TransactionIndex(
            each.aborted
            for each in ended
            if each.aborted is not None and each.marker_offset >= segment.base_offset
        )
        segment.set_aborted(index)
        segment.save_aborted(durable=True)
        return index

    def note_aborted(self, segment: Segment, entry: AbortedTransaction) -> None:
        """The marker of an aborted transaction was appended to the segment."""
        segment.note_aborted(entry)
        if self._none_from <= entry.last_offset:
            self._none_from = entry.last_offset + 1

    def overlapping(
        self, start_offset: int, end_offset: int, *, wait: bool = True
    ) -> list[AbortedTransaction]:
        """Aborted transactions with batches in the range, in the order of their markers.

        Their markers may lie in later segments. Raises ColdRead when the disk would be waited for, unless
        `wait`.
        """
        if start_offset >= self._none_from:
            return []
        segments = self._segments
        found: list[AbortedTransaction] = []
        none_behind = True
        for slot in range(max(segments.slot_of(start_offset), 0), len(segments)):
            segment = segments[slot]
            lowest = segment.aborted_from
            if lowest is not None and lowest >= end_offset:
                none_behind = none_behind and lowest == NO_ABORTS
                continue
            if not (wait or segment.aborted_at_hand):
                raise self._cold_from(slot, end_offset)
            index = self.of(segment)
            entries, complete = index.overlapping(start_offset, end_offset)
            found += entries
            if complete:
                return found
            none_behind = none_behind and index.last_offset < start_offset
        if none_behind:
            self._none_from = start_offset
        return found

    def _cold_from(self, slot: int, end_offset: int) -> ColdIndex:
        """All that the read may need, so that it has to be tried again only once."""
        later = (self._segments[number] for number in range(slot, len(self._segments)))
        return ColdIndex(
            self._files,
            [
                segment.path(TRANSACTION_INDEX_SUFFIX)
                for segment in later
                if (segment.aborted_from is None or segment.aborted_from < end_offset)
                and not segment.aborted_at_hand
            ],
        )

    def ended_from(self, offset: int) -> list[EndedTransaction]:
        """Transactions whose markers are not below `offset`."""
        ended: list[EndedTransaction] = []
        slot = max(self._segments.slot_of(offset), 0)
        base = self._segments[slot].base_offset
        fold = fold_from(base, self._segments, self._snapshots, ended.append)
        fold.replay(self._segments[number] for number in range(slot, len(self._segments)))
        return [each for each in ended if each.marker_offset >= offset]
