# SPDX-License-Identifier: Apache-2.0
"""Opens a log: trusts what a clean stop or an fsync guarantees, scans the rest, rebuilds what depends on it.

R26: from the recovery point every batch is checked; the first unsound one and all behind it are cut.
R27: unsound below the recovery point is bit rot: CorruptLogError, nothing is cut.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from headrace.errors import CorruptLogError
from headrace.log.compaction.swap import STATE_FILE
from headrace.log.epochs import EpochHistory
from headrace.log.leftovers import offsets_of, tidy, unlink_segment
from headrace.log.log_config import LogConfig
from headrace.log.producers.open_transactions import EndedTransaction
from headrace.log.producers.snapshot import SNAPSHOT_SUFFIX, SnapshotFiles
from headrace.log.producers.state import ProducerState
from headrace.log.segments.batch_walk import corrupt
from headrace.log.segments.descriptors import DescriptorPool
from headrace.log.segments.files import LOG_SUFFIX, TRANSACTION_INDEX_SUFFIX, file_stem
from headrace.log.segments.scan import NO_EPOCH, ScanEnd, scan
from headrace.log.segments.segment import Segment
from headrace.log.segments.segment_list import SegmentList
from headrace.log.state_fold import StateFold
from headrace.log.transaction_indexes import TransactionFold, TransactionIndexes, fold_from
from headrace.world import Files


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReport:
    """What opening the log had to do."""

    clean: bool
    batches_scanned: int = 0
    bytes_cut: int = 0
    segments_dropped: int = 0
    fault: str | None = None
    """Why the log was cut where it was."""
    missing_offsets: int = 0
    """How far the log ends below the recovery point: the checkpoint is another topic's, or a file was cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedLog:
    segments: SegmentList
    log_start_offset: int
    producers: ProducerState
    snapshots: SnapshotFiles
    epochs: EpochHistory
    transactions: TransactionIndexes
    report: RecoveryReport
    flushed_offset: int
    """What is above it was found sound, but may not be on disk yet."""
    unsynced_segments: tuple[Segment, ...] = ()
    """Sealed ones among them."""


def load_log(
    files: Files,
    pool: DescriptorPool,
    directory: Path,
    config: LogConfig,
    *,
    is_new: bool = False,
    clean: bool,
    recovery_point: int,
    log_start_offset: int,
    now_ms: int,
) -> LoadedLog:
    """Reads and repairs the directory of one partition. Raises CorruptLogError, OSError."""
    names = [] if is_new else tidy(files, directory)
    loader = _Loader(files, pool, directory, config, now_ms, names)
    loader.find_segments(log_start_offset)
    if is_new:
        pass
    elif clean:
        loader.load_clean(recovery_point)
    else:
        loader.recover(recovery_point)
    return loader.finish(log_start_offset)


class _Loader:
    def __init__(
        self,
        files: Files,
        pool: DescriptorPool,
        directory: Path,
        config: LogConfig,
        now_ms: int,
        names: list[str],
    ) -> None:
        self._files = files
        self._pool = pool
        self._directory = directory
        self._config = config
        self._names = names
        self._segments: list[Segment] = []
        self._gapless = not config.compacts and STATE_FILE not in names
        self._producers = ProducerState(expiration_ms=config.producer_id_expiration_ms, now_ms=now_ms)
        self._snapshots = SnapshotFiles(files, directory, offsets_of(names, SNAPSHOT_SUFFIX))
        self._epochs = EpochHistory(files, directory)
        self._fold = StateFold(self._producers, self._epochs)
        self._report = RecoveryReport(clean=True)
        self._unsynced: list[Segment] = []
        self._scanned: Segment | None = None
        self._sealed_unsynced: Segment | None = None
        """It ends at the recovery point: it may have been sealed after it was flushed, its index with it."""
        self._flushed_offset: int | None = None
        """What is above it was found sound but may not be on disk: the next flush sees to that."""

    # Segments

    def find_segments(self, log_start_offset: int) -> None:
        bases = offsets_of(self._names, LOG_SUFFIX)
        if not bases:
            bases = [log_start_offset]
            self._create_segment(log_start_offset)
        self._segments = [self._segment(base) for base in bases]
        for segment in self._segments:
            segment.load(segment.pooled.get().size(), segment.base_offset)

    def _segment(self, base_offset: int) -> Segment:
        interval = self._config.index_interval_bytes
        return Segment(self._files, self._pool, self._directory, base_offset, interval)

    def _create_segment(self, base_offset: int) -> None:
        path = self._directory / (file_stem(base_offset) + LOG_SUFFIX)
        self._files.open(path, "create").close()

    # A clean stop

    def load_clean(self, recovery_point: int) -> None:
        for segment, following in pairwise(self._segments):
            segment.next_offset = following.base_offset
        active = self._segments[-1]
        end = active.find_end()
        if end < recovery_point:
            raise corrupt(active.pooled.path, active.size, end, "the file ends too early")
        self._restore_state(self._segments, end)

    # After an unclean stop

    def recover(self, recovery_point: int) -> None:
        self._report = replace(self._report, clean=False)
        bases = [segment.base_offset for segment in self._segments]
        first = max(bisect_right(bases, recovery_point) - 1, 0)
        doubtful = self._segments[first:]
        trusted = self._trust(self._segments[:first], doubtful)
        if trusted and doubtful[0].base_offset == recovery_point:
            self._sealed_unsynced = trusted[-1]
        # A snapshot up to the recovery point is as good as the log, and knows more than a compacted one.
        self._restore_state(trusted, max(recovery_point, doubtful[0].base_offset))
        # The transaction indexes of scanned segments need the state where the first of them begins.
        transactions = fold_from(doubtful[0].base_offset, trusted, self._snapshots, self._note_ended)
        scanned = self._scan_all(doubtful, recovery_point, transactions)
        self._segments = [*trusted, *scanned]
        end_offset = scanned[-1].next_offset
        if end_offset < recovery_point:
            self._report = replace(self._report, missing_offsets=recovery_point - end_offset)
            self._fold.restore(self._segments, self._snapshots, end_offset)
        for segment in scanned[:-1]:
            segment.seal()
        self._unsynced = scanned
        self._flushed_offset = min(recovery_point, end_offset)
        if self._report.fault is not None:
            self._make_durable(scanned[-1:])  # lest what was cut comes back behind what takes its place

    def _trust(self, segments: list[Segment], doubtful: list[Segment]) -> list[Segment]:
        """Segments below the recovery point; only their ends are looked at."""
        trusted: list[Segment] = []
        for segment, following in pairwise([*segments, doubtful[0]]):
            if trusted and segment.base_offset < trusted[-1].next_offset:
                self._drop(segment)
                continue
            self._find_end(segment, following.base_offset)
            trusted.append(segment)
        if trusted:
            self._drop_replaced(trusted[-1].next_offset, doubtful)
        return trusted

    def _find_end(self, segment: Segment, following: int) -> None:
        """Bytes behind the last batch before the next segment are no batch that is missed: a write failed
        there, and a power cut undid its removal. They are cut; anything else is bit rot (R27)."""
        try:
            segment.find_end()
        except CorruptLogError:
            end = scan(segment.pooled.get(), size=segment.size, expected_offset=segment.base_offset)
            if end.next_offset != following:
                raise
            segment.size = end.position
            segment.cut_file()
            segment.find_end()

    def _drop_replaced(self, end_offset: int, following: list[Segment]) -> None:
        """A compaction put one segment in the place of several; the others may still have their names."""
        while len(following) > 1 and following[0].base_offset < end_offset:
            self._drop(following.pop(0))

    def _scan_all(
        self, doubtful: list[Segment], recovery_point: int, transactions: TransactionFold
    ) -> list[Segment]:
        scanned: list[Segment] = []
        epoch = NO_EPOCH
        while doubtful:
            segment = doubtful.pop(0)
            scanned.append(segment)
            end = self._scan_segment(segment, recovery_point, epoch, transactions)
            self._drop_replaced(end.next_offset, doubtful)
            fault, epoch = end.fault, end.leader_epoch
            if fault is None and doubtful and doubtful[0].base_offset != end.next_offset:
                fault = f"offset {end.next_offset} is missing"
            if fault is not None:
                self._cut(segment, fault, doubtful)
                break
            if doubtful:
                self._snapshots.write(end.next_offset, self._producers.active())
        return scanned

    def _scan_segment(
        self, segment: Segment, recovery_point: int, leader_epoch: int, transactions: TransactionFold
    ) -> ScanEnd:
        def visit(fields: tuple[int, ...], batch: memoryview) -> None:
            self._fold.visit(fields, batch)
            transactions.visit(fields, batch)

        size = segment.size
        segment.reset()
        segment.forget_aborted()
        self._scanned = segment
        end = scan(
            segment.pooled.get(),
            size=size,
            expected_offset=segment.base_offset,
            leader_epoch=leader_epoch,
            note=segment.note,
            visit=visit,
            gapless=self._gapless,
            largest_offset=segment.largest_offset,
        )
        if end.fault is not None:
            if end.next_offset < recovery_point:
                raise corrupt(segment.pooled.path, end.position, end.next_offset, end.fault)
            self._report = replace(self._report, bytes_cut=size - end.position)
        self._report = replace(self._report, batches_scanned=self._report.batches_scanned + end.batches)
        return end

    def _note_ended(self, ended: EndedTransaction) -> None:
        """Those that ended below the scanned segments are in indexes that are trusted."""
        if ended.aborted is not None and self._scanned is not None:
            self._scanned.note_aborted(ended.aborted)

    def _cut(self, segment: Segment, fault: str, following: list[Segment]) -> None:
        segment.cut_file()
        lost = self._report.bytes_cut + sum(later.size for later in following)
        self._report = replace(self._report, fault=fault, bytes_cut=lost, segments_dropped=len(following))
        for later in following:
            self._drop(later)

    def _drop(self, segment: Segment) -> None:
        segment.pooled.retire()
        unlink_segment(self._files, self._directory, segment.base_offset)

    def _make_durable(self, segments: list[Segment]) -> None:
        for segment in segments:
            segment.pooled.get().fsync()
        for segment in segments[:-1]:
            segment.seal(durable=True)
        self._files.sync_directory(self._directory)
        self._files.sync_directory(self._directory.parent)

    # Producers and epochs

    def _restore_state(self, segments: list[Segment], end_offset: int) -> None:
        """The state at `end_offset`, from files as far as they are sound, then from the segments."""
        known = EpochHistory.load(self._files, self._directory)
        if known is not None:
            self._epochs = known
        self._fold = StateFold(self._producers, self._epochs)
        self._fold.restore(segments, self._snapshots, end_offset, fold_epochs=known is None)
        self._epochs.truncate_from_end(end_offset)

    # The result

    def finish(self, log_start_offset: int) -> LoadedLog:
        if self._segments[-1].next_offset < log_start_offset:
            self._start_over(log_start_offset)
        while len(self._segments) > 1 and self._segments[1].base_offset <= log_start_offset:
            if not self._producers_outlive(self._segments[1].base_offset):
                break  # retention deletes it later
            self._drop(self._segments.pop(0))  # its deletion was interrupted
        segments = SegmentList(self._segments)
        transactions = self._find_transaction_indexes(segments)
        segments.active.load_as_active()
        end_offset = segments.active.next_offset
        start = max(log_start_offset, segments.first.base_offset)
        self._snapshots.remove_above(end_offset)
        self._snapshots.keep_only(segments.base_offsets)
        self._epochs.truncate_from_start(start)
        unsynced = [segment for segment in self._segments if segment in self._unsynced]
        if self._flushed_offset is not None and self._flushed_offset < start:
            self._make_durable(unsynced)
            unsynced, self._flushed_offset = [], None
        return LoadedLog(
            segments=segments,
            log_start_offset=start,
            producers=self._producers,
            snapshots=self._snapshots,
            epochs=self._epochs,
            transactions=transactions,
            report=self._report,
            flushed_offset=end_offset if self._flushed_offset is None else self._flushed_offset,
            unsynced_segments=tuple(unsynced[:-1]),
        )

    def _producers_outlive(self, offset: int) -> bool:
        """Whether a durable snapshot has the producer state of the segments below `offset` (R28).

        One beyond the flushed offset does not count: a power cut makes the log end before it.
        """
        if not len(self._producers):
            return True
        flushed = self._segments[-1].next_offset if self._flushed_offset is None else self._flushed_offset
        snapshot = self._snapshots.at_or_below(flushed)
        if snapshot is None or snapshot[0] < offset:
            return False
        self._snapshots.make_durable(snapshot[0])
        return True

    def _find_transaction_indexes(self, segments: SegmentList) -> TransactionIndexes:
        """A missing one is rebuilt, unless an earlier version wrote the log (decision 29)."""
        indexes = TransactionIndexes(self._files, segments, self._snapshots)
        named = set(offsets_of(self._names, TRANSACTION_INDEX_SUFFIX))
        missing = [
            segment
            for segment in segments
            if segment.aborted_from is None and segment.base_offset not in named
        ]
        if missing and not named and not self._mentions_transactions():
            for segment in missing:
                segment.forget_aborted()
                segment.save_aborted()
        for segment in (*missing, segments.active):
            indexes.of(segment)
        if self._sealed_unsynced is not None and self._sealed_unsynced in self._segments:
            indexes.rebuild(self._sealed_unsynced)
        return indexes

    def _mentions_transactions(self) -> bool:
        """Versions that know no transaction index write no transactions, but may have fetched some."""
        return self._producers.has_transactions or self._snapshots.mention_transactions()

    def _start_over(self, log_start_offset: int) -> None:
        """All that is left was deleted by its owner; the offsets up to the log start are used up."""
        self._create_segment(log_start_offset)
        for segment in self._segments:
            self._drop(segment)
        self._segments = [self._segment(log_start_offset)]
        self._unsynced, self._flushed_offset = [], None
        self._epochs.clear()
