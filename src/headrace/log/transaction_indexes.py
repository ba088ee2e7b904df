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
from headrace.log.segments.batch_walk import corrupt
from headrace.log.segments.cold_read import ColdIndex
from headrace.log.segments.files import TRANSACTION_INDEX_SUFFIX
from headrace.log.segments.scan import scan
from headrace.log.segments.segment import Segment
from headrace.log.segments.segment_list import SegmentList
from headrace.log.segments.transaction_index import AbortedTransaction, TransactionIndex
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
            place = segment.find(self._from_offset) if segment.next_offset > self._from_offset else None
            if place is None:
                continue
            end = scan(
                segment.pooled.get(),
                size=segment.size,
                position=place.position,
                expected_offset=place.base_offset,
                visit=self.visit,
            )
            if end.fault is not None:
                raise corrupt(segment.pooled.path, end.position, end.next_offset, end.fault)


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

    def overlapping(
        self, start_offset: int, end_offset: int, *, wait: bool = True
    ) -> list[AbortedTransaction]:
        """Aborted transactions with batches in the range, in the order of their markers.

        Their markers may lie in later segments. Raises ColdRead when the disk would be waited for, unless
        `wait`.
        """
        segments = self._segments
        candidates = []
        for slot in range(max(segments.slot_of(start_offset), 0), len(segments)):
            segment = segments[slot]
            if segment.aborted_from is None or segment.aborted_from < end_offset:
                candidates.append(segment)
        if not wait:
            self._check_at_hand(candidates)
        found: list[AbortedTransaction] = []
        for segment in candidates:
            entries, complete = self.of(segment).overlapping(start_offset, end_offset)
            found += entries
            if complete:
                break
        return found

    def _check_at_hand(self, segments: list[Segment]) -> None:
        cold = [segment for segment in segments if not segment.aborted_at_hand]
        if cold:
            raise ColdIndex(self._files, [segment.path(TRANSACTION_INDEX_SUFFIX) for segment in cold])

    def ended_from(self, offset: int) -> list[EndedTransaction]:
        """Transactions whose markers are not below `offset`."""
        ended: list[EndedTransaction] = []
        slot = max(self._segments.slot_of(offset), 0)
        base = self._segments[slot].base_offset
        fold = fold_from(base, self._segments, self._snapshots, ended.append)
        fold.replay(self._segments[number] for number in range(slot, len(self._segments)))
        return [each for each in ended if each.marker_offset >= offset]
