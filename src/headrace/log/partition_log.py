# SPDX-License-Identifier: Apache-2.0
"""The log of one partition on one disk: record batches in segments, appended at the end, read by offset.

Synchronous and owned by one thread; only `Flush.sync`, `LogSlice.bytes` and the file removals that methods
return run on other threads. Independent of the cluster and of requests.
Read next: segments/segment.py (files), log_reader.py, flush.py, recovery.py (opening), retention.py,
compaction/compaction.py.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from uuid import UUID

from crc32c import crc32c

from headrace.errors import DiskFullError, StorageError
from headrace.log import partition_metadata, retention, time_lookup
from headrace.log.compaction import swap
from headrace.log.compaction.plan import CleanerState, CompactionPlan, CompactionResult, make_plan
from headrace.log.directory_names import deleted_name
from headrace.log.flush import Flush, Unsynced
from headrace.log.leftovers import unlink_segment
from headrace.log.log_config import LogConfig
from headrace.log.log_reader import LogReader
from headrace.log.producers.markers import read_marker
from headrace.log.producers.state import NO_OFFSET
from headrace.log.recovery import LoadedLog, load_log
from headrace.log.scrub import ScrubPlan, plan_scrub
from headrace.log.segments.batch_walk import LOG_OVERHEAD
from headrace.log.segments.descriptors import DescriptorPool
from headrace.log.segments.files import NO_ROOM
from headrace.log.segments.index import TIME_ENTRY_BYTES
from headrace.log.segments.log_slice import LogSlice
from headrace.log.segments.segment import NotedBatch, Segment
from headrace.log.segments.transaction_index import AbortedTransaction
from headrace.log.state_fold import StateFold
from headrace.log.time_lookup import Ask, Found, search_batch
from headrace.wire.batch import BatchHeader, assign, stamp_append_time
from headrace.world import Clock, Files

Batches = list[tuple[int, BatchHeader]]
_NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})


class PartitionLog:
    def __init__(
        self,
        files: Files,
        clock: Clock,
        directory: Path,
        config: LogConfig,
        descriptors: DescriptorPool,
        loaded: LoadedLog,
        topic_id: UUID | None,
    ) -> None:
        self.directory = directory
        self.topic_id = topic_id
        self.recovery = loaded.report
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.segments.active.next_offset
        self.flushed_offset = loaded.flushed_offset
        """Everything below is fsynced: the recovery point of the next start."""
        self.producers = loaded.producers
        self.epochs = loaded.epochs
        self.fenced = False
        """After a failed write: reads go on, appends are refused until `recover_in_place` (R24)."""
        self._files = files
        self._clock = clock
        self._descriptors = descriptors
        self._segments = loaded.segments
        self._snapshots = loaded.snapshots
        self._transactions = loaded.transactions
        self._failure: str | None = None
        self._unsynced = Unsynced(files)
        self._safe_snapshot = NO_OFFSET
        """The newest producer snapshot that a power cut cannot take."""
        self._note_unsynced(loaded)
        self._generation = 0
        self._reader = LogReader(loaded.segments)
        self._removals = retention.Removals(files, directory)
        self._cleaner = swap.load_state(files, directory)
        self._saved_offset = self._saved_at_open(loaded)
        """The log end offset when indexes and producer state were last saved by a clean stop."""
        self.reconfigure(config)

    @classmethod
    def open(
        cls,
        files: Files,
        clock: Clock,
        directory: Path,
        config: LogConfig,
        *,
        descriptors: DescriptorPool,
        clean: bool,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        topic_id: UUID | None,
    ) -> PartitionLog:
        """Makes the directory when it is missing. Raises CorruptLogError, StorageError, OSError."""
        is_new = not files.exists(directory)
        if is_new:
            files.make_directory(directory)
            # Offsets that were written down for this name belong to a partition that is gone.
            clean, recovery_point, log_start_offset = True, 0, 0
            partition_metadata.write(files, directory, topic_id)
        else:
            partition_metadata.check(files, directory, topic_id)
        loaded = load_log(
            files,
            descriptors,
            directory,
            config,
            is_new=is_new,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            now_ms=clock.wall_ms(),
        )
        return cls(files, clock, directory, config, descriptors, loaded, topic_id)

    def _note_unsynced(self, loaded: LoadedLog) -> None:
        """Files that recovery wrote or found, and that the first flush must fsync."""
        if not loaded.report.clean or not loaded.segments.active.size:
            self._unsynced.add_file(self.directory / partition_metadata.FILE_NAME)
            self._unsynced.add_names_in(self.directory)
            self._unsynced.add_names_in(self.directory.parent)
        if loaded.report.clean:
            self._safe_snapshot = loaded.snapshots.newest_offset
        elif loaded.snapshots.offsets:
            self._unsynced.add_file(loaded.snapshots.path(loaded.snapshots.newest_offset))
        for segment in loaded.unsynced_segments:
            self._unsynced.add_segment(segment)

    def _saved_at_open(self, loaded: LoadedLog) -> int | None:
        end_offset = self.log_end_offset
        empty = not self._segments.size_bytes
        saved = loaded.report.clean and loaded.snapshots.offsets[-1:] == (end_offset,)
        return end_offset if empty or saved else None

    def reconfigure(self, config: LogConfig) -> None:
        self.config = config
        self.producers.expiration_ms = config.producer_id_expiration_ms
        self._segment_bytes = config.segment_bytes
        self._append_time = config.append_time
        # The time index is the larger one, and its last entry is reserved for the roll.
        self._index_entries = max(config.segment_index_bytes // TIME_ENTRY_BYTES - 1, 1)
        self._set_roll_time(self._segments.active)

    @property
    def size_bytes(self) -> int:
        return self._segments.size_bytes

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    def segments_from_oldest(self, most: int) -> list[tuple[int, int, int | None]]:
        """Base offset, bytes, largest timestamp where it is known."""
        oldest = islice(self._segments, most)
        return [(each.base_offset, each.size, each.known_max_timestamp) for each in oldest]

    @property
    def wants_flush(self) -> bool:
        """A segment was sealed and is not on disk yet: worth a flush even where none is asked for."""
        return self._unsynced.has_segments

    # Append

    def append(self, view: memoryview, batches: Batches, leader_epoch: int) -> int:
        """Writes batches as `split_batches` gave them, in the order in which they lie in `view`.

        Returns the first offset. What lies between the batches is left out.

        Offset, epoch and (for append-time topics) timestamp are set inside `view`. When it raises
        DiskFullError or StorageError nothing was appended, no offset was used, and the log is fenced.
        """
        if self.fenced:
            raise self._fenced_error()
        base_offset = offset = self.log_end_offset
        if self._append_time:
            batches = self._stamp(view, batches)
        noted = []
        for position, header in batches:
            length = header.batch_length
            assign(view, position, offset, length, leader_epoch)
            offset += header.last_offset_delta + 1
            noted.append((length + LOG_OVERHEAD, offset - 1, header.max_timestamp))
        if leader_epoch > self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        self._write(view, batches, noted)
        return base_offset

    def _stamp(self, view: memoryview, batches: Batches) -> Batches:
        """Gives every record the time of its append; the headers with it."""
        now_ms = self._clock.wall_ms()
        for position, _ in batches:
            stamp_append_time(view, position, now_ms)
        return [(position, header._replace(max_timestamp=now_ms)) for position, header in batches]

    def append_as_replica(self, view: memoryview, batches: Batches) -> None:
        """Writes batches with the offsets and epochs that their leader gave them."""
        if self.fenced:
            raise self._fenced_error()
        end_offset = self.log_end_offset
        for _, header in batches:
            if header.base_offset < end_offset:
                raise StorageError(
                    f"{self.directory}: batch at offset {header.base_offset} comes after offset {end_offset}"
                )
            end_offset = header.next_offset
            self.epochs.assign(header.leader_epoch, header.base_offset)
        self._write(view, batches, [(each.size, each.last_offset, each.max_timestamp) for _, each in batches])

    def _write(self, view: memoryview, batches: Batches, noted: list[NotedBatch]) -> None:
        """`noted`: the batches with their final offsets."""
        size, max_timestamp = 0, -1
        for batch_size, _, timestamp in noted:
            size += batch_size
            if timestamp > max_timestamp:
                max_timestamp = timestamp
        start, end_offset = batches[0][0], noted[-1][1] + 1
        if batches[-1][0] + noted[-1][0] - start == size:
            buffers = [view[start : start + size]]
        else:  # something lies between the batches
            buffers = [view[at : at + header.batch_length + LOG_OVERHEAD] for at, header in batches]
        segment = self._segments.active
        if (
            segment.size + size > self._segment_bytes
            or max_timestamp > segment.roll_after_ms
            or end_offset > segment.largest_offset
            or segment.index_entries >= self._index_entries
        ) and segment.size:
            segment = self._roll()
        is_first = not segment.size
        try:
            segment.append(buffers, size, noted)
        except OSError as error:
            raise self._append_failed(segment, error) from error
        if is_first:
            self._set_roll_time(segment)
        for (position, header), (_, last_offset, _) in zip(batches, noted, strict=True):
            if header.producer_id >= 0:
                marker = read_marker(view[position : position + header.size]) if header.is_control else None
                base_offset = last_offset - header.last_offset_delta
                aborted = self.producers.update(header, base_offset, marker)
                if aborted is not None:
                    self._transactions.note_aborted(segment, aborted)
        self.log_end_offset = end_offset

    def _roll(self) -> Segment:
        """Begins a new segment at the log end; the old one becomes read-only."""
        sealed = self._segments.active
        segment = self._new_segment(self.log_end_offset)
        try:
            segment.create()
            sealed.seal()
            snapshot = self._save_producers()
        except OSError as error:
            raise self._append_failed(sealed, error) from error
        self._unsynced.add_segment(sealed)
        self._unsynced.add_file(snapshot)
        self._unsynced.add_names_in(self.directory)
        self._segments.append(segment)
        return segment

    def _new_segment(self, base_offset: int) -> Segment:
        interval = self.config.index_interval_bytes
        return Segment(self._files, self._descriptors, self.directory, base_offset, interval)

    def _save_producers(self) -> Path:
        """A full disk may keep a snapshot from being written: the next one, or the log, will do."""
        try:
            self._snapshots.write(self.log_end_offset, self.producers.active())
            self._snapshots.keep_only(self._segments.base_offsets)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
        return self._snapshots.path(self.log_end_offset)

    def _set_roll_time(self, segment: Segment) -> None:
        """segment.ms counts from the first batch's timestamp, or from now when it has none."""
        if not segment.size:
            return
        start = segment.first_timestamp if segment.first_timestamp >= 0 else self._clock.wall_ms()
        config = self.config
        jitter = 0
        if config.segment_jitter_ms > 0:
            # Spread by name and offset, so that not all partitions roll at once.
            spread = crc32c(f"{self.directory.name}/{segment.base_offset}".encode())
            jitter = spread % config.segment_jitter_ms
        segment.roll_after_ms = start + config.longest_segment_ms - jitter

    # Failed writes (R24)

    def _append_failed(self, segment: Segment, error: OSError) -> StorageError:
        """Truncates what a failed write left, and fences the log."""
        self.fenced = True
        if error.errno in _NO_DESCRIPTOR:
            return DiskFullError(f"{self.directory}: too many open files (ulimit -n); nothing was appended")
        full = error.errno in NO_ROOM
        try:
            segment.cut_file()
        except OSError as cut_error:
            full, error = False, cut_error
        if full:
            return DiskFullError(f"{self.directory}: no space left on the disk; nothing was appended")
        self._failure = f"{self.directory}: {error}; the disk is not trusted any more, restart the node"
        return StorageError(self._failure)

    def _fenced_error(self) -> StorageError:
        if self._failure is not None:
            return StorageError(self._failure)
        return DiskFullError(f"{self.directory}: an append failed for lack of room; not yet recovered")

    def recover_in_place(self) -> None:
        """After room returned: checks the end of the log and lifts the fence. A failed disk stays fenced."""
        if self._failure is not None:
            raise StorageError(self._failure)
        active = self._segments.active
        try:
            active.cut_file()
            end_offset = active.find_end()
        except OSError as error:
            raise self._append_failed(active, error) from error
        if end_offset != self.log_end_offset:
            self._failure = f"{self.directory}: the log ends at {end_offset}, not at {self.log_end_offset}"
            raise StorageError(self._failure)
        self.fenced = False

    # Read

    def read(
        self, offset: int, max_bytes: int, limit_offset: int, *, at_least_one: bool = True, wait: bool = True
    ) -> LogSlice | None:
        """Whole batches from the one with `offset`, all below `limit_offset`, from one segment.

        At most `max_bytes`, unless `at_least_one` and the first batch alone is larger. None when there is
        nothing. The caller has checked that the offset is in range, and releases the slice.
        Raises ColdRead when the disk would be waited for, unless `wait`.
        """
        if limit_offset > self.log_end_offset:
            limit_offset = self.log_end_offset
        return self._reader.read(offset, max_bytes, limit_offset, at_least_one=at_least_one, wait=wait)

    def offset_for_timestamp(self, timestamp_ms: int, ask: Ask = search_batch) -> Found | None:
        """(timestamp, offset) of the first record that is not older. Reads the records of a few batches."""
        return time_lookup.offset_for_timestamp(self._segments, timestamp_ms, self.log_start_offset, ask)

    def offset_of_max_timestamp(self, ask: Ask = search_batch) -> Found | None:
        """(timestamp, offset) of the first record with the largest timestamp."""
        return time_lookup.offset_of_max_timestamp(self._segments, self.log_start_offset, ask)

    def aborted_transactions(
        self, start_offset: int, end_offset: int, *, wait: bool = True
    ) -> list[AbortedTransaction]:
        """Those with batches in the range, in the order of their markers. Raises ColdRead, unless `wait`."""
        return self._transactions.overlapping(start_offset, end_offset, wait=wait)

    def bytes_from(self, offset: int) -> int:
        """The size of the batches from `offset`, the start of one, to the log end."""
        return self._reader.bytes_from(min(offset, self.log_end_offset))

    def high_watermark_is(self, high_watermark: int) -> None:
        """Tells which transactions are decided and replicated: at the start, and when it moved back.

        Where it moves forward, `producers.high_watermark_moved` does. Reads the log only where transactions
        may have ended above it that are not known any more; not those of producers that have expired since.
        """
        producers = self.producers
        if high_watermark < producers.ended_known_from and producers.has_transactions:
            producers.recall(self._transactions.ended_from(high_watermark), high_watermark)
        else:
            producers.high_watermark_moved(high_watermark)

    # Flush

    def begin_flush(self) -> Flush | None:
        """What must be fsynced so that everything appended so far is safe; None when it is."""
        if self.flushed_offset >= self.log_end_offset and not self._unsynced.has_segments:
            return None
        active = self._segments.active
        self._reader.remember(self.log_end_offset, active.size)
        save_epochs = self.epochs.take_unsaved() if self.epochs.dirty else None
        flush = self._unsynced.take(active, self.log_end_offset, self._generation, before=save_epochs)
        flush.snapshot_offset = self._snapshots.newest_offset
        return flush

    def end_flush(self, flush: Flush) -> None:
        """Call it whether `sync` succeeded or not: after a failure the log is fenced for good (R24)."""
        flush.release()
        if not flush.synced:
            self.fenced = True
            self._failure = f"{self.directory}: fsync failed; the disk is not trusted any more"
        elif flush.generation == self._generation:
            self.flushed_offset = max(self.flushed_offset, flush.end_offset)
            self._safe_snapshot = max(self._safe_snapshot, flush.snapshot_offset)
        else:
            self.epochs.dirty = True  # the flush may have written epochs that the truncation took back

    # Retention, truncation

    def apply_retention(self, now_ms: int, high_watermark: int) -> int:
        """Deletes segments by time and size; how many. Never at or above the high watermark."""
        count = retention.expired_segments(
            self._segments, self.config, now_ms=now_ms, high_watermark=high_watermark
        )
        if not count:
            self._drop_below_start()
            return 0
        if count == len(self._segments):
            try:
                self._segments.append(self._start_segment(self.log_end_offset))
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                count -= 1  # the others make room
                if not count:
                    return 0
        if not self._producers_outlive(count):
            return 0
        self.delete_records_before(self._segments.end_of(count - 1))
        return count

    def _producers_outlive(self, count: int) -> bool:
        """Producer state of segments to be deleted must be in a durable snapshot first (R28).

        Blocks for an fsync where it is not: after a roll, or when the whole log is deleted. A snapshot beyond
        the flushed offset does not count, since a power cut makes the log end before it, unless the deleted
        segments are unflushed themselves.
        """
        end = self._segments.end_of(count - 1)
        if self._safe_snapshot >= end or not len(self.producers):
            return True
        usable = [offset for offset in self._snapshots.offsets if end <= offset <= self.flushed_offset]
        try:
            if usable:
                self._snapshots.make_durable(usable[-1])
            elif self.log_end_offset <= self.flushed_offset or end > self.flushed_offset:
                self._snapshots.write(self.log_end_offset, self.producers.active(), durable=True)
            else:
                return False
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            return False
        self._safe_snapshot = usable[-1] if usable else self.log_end_offset
        return True

    def delete_records_before(self, offset: int) -> None:
        """Moves the log start and deletes segments below it. The caller writes the log start checkpoint."""
        if offset <= self.log_start_offset:
            return
        self.log_start_offset = min(offset, self.log_end_offset)
        self._drop_below_start()
        self.epochs.truncate_from_start(self.log_start_offset)

    def _drop_below_start(self) -> None:
        """Deletes segments below the log start, once the producer state in them is saved."""
        count = max(self._segments.slot_of(self.log_start_offset), 0)
        if count and self._producers_outlive(count):
            removed = self._segments.remove_first(count)
            self._unsynced.remove_segments(removed)
            self._removals.delete(removed, self._clock.monotonic() + self.config.file_delete_delay_ms / 1000)
            self._snapshots.keep_only(self._segments.base_offsets)

    def truncate_to(self, offset: int) -> None:
        """Removes all records from `offset` on, with the whole batch that holds it. Durable when it returns.

        For replicas that diverge from their leader. The caller first writes a recovery point that is not
        above `offset` to the checkpoint: missing fsynced bytes look like a damaged disk.
        """
        if offset >= self.log_end_offset:
            return
        slot = self._segments.slot_of(offset)
        if slot < 0:
            self.truncate_fully_and_start_at(offset)
            return
        self._drop_segments(self._segments.remove_from(slot + 1))
        active = self._segments.active
        self._transactions.of(active)
        active.truncate(offset)
        active.load_as_active()
        active.pooled.get().fsync()
        self._set_roll_time(active)
        self._end_moved_to(active.next_offset)
        StateFold(self.producers, self.epochs).restore(self._segments, self._snapshots, self.log_end_offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """An empty log whose next record gets `offset`: for a replica that is too far behind."""
        self._drop_segments(list(self._segments))
        segment = self._start_segment(offset)
        self._segments.replace_all([segment])
        self._snapshots.remove_above(-1)
        self.producers.restore(())
        self.epochs.clear()
        self.log_start_offset = offset
        self._end_moved_to(offset)

    def _drop_segments(self, segments: list[Segment]) -> None:
        """The newest first: what a crash leaves is then a shorter log."""
        for segment in reversed(segments):
            segment.retire()
            unlink_segment(self._files, self.directory, segment.base_offset)
        self._unsynced.remove_segments(segments)

    def _end_moved_to(self, end_offset: int) -> None:
        self._generation += 1
        self._saved_offset = None
        self.log_end_offset = end_offset
        self.log_start_offset = min(self.log_start_offset, end_offset)
        self.flushed_offset = min(self.flushed_offset, end_offset)
        self._safe_snapshot = min(self._safe_snapshot, end_offset)
        self._snapshots.remove_above(end_offset)
        self.epochs.truncate_from_end(end_offset)
        self.epochs.save()
        self._reader.forget()
        self._files.sync_directory(self.directory)

    def _start_segment(self, base_offset: int) -> Segment:
        segment = self._new_segment(base_offset)
        segment.create()
        self._unsynced.add_names_in(self.directory)
        return segment

    # Compaction

    def plan_compaction(self, now_ms: int, limit_offset: int) -> CompactionPlan | None:
        """What the worker is to do; None when nothing is due. Only what is fsynced is touched."""
        if not self.config.compacts or self.fenced or self._removals.swap_pending:
            return None
        return make_plan(
            self._files,
            self.directory,
            self.config,
            self._segments,
            self.producers,
            self._transactions,
            self._snapshots.offsets,
            self._cleaner,
            generation=self._generation,
            log_start_offset=self.log_start_offset,
            limit_offset=min(limit_offset, self.flushed_offset),
            now_ms=now_ms,
        )

    def finish_compaction(self, plan: CompactionPlan, result: CompactionResult) -> None:
        """Swaps the cleaned segments in; those that no longer match the log are discarded."""
        superfluous: list[Path] = []
        present = set(self._segments.base_offsets)
        for group in result.groups:
            if plan.generation != self._generation or not present.issuperset(group.source_base_offsets):
                swap.discard(self._files, self.directory, group)
                continue
            superfluous += swap.swap_in(self._files, self.directory, group)
            cleaned = self._new_segment(group.source_base_offsets[0])
            cleaned.load(group.size, group.end_offset)
            for replaced in self._segments.replace(group.source_base_offsets, [cleaned]):
                replaced.retire()
        self._reader.forget()
        if plan.generation != self._generation:
            return
        state = self._cleaner = CleanerState(result.first_dirty_offset, result.next_horizon_ms)
        files, directory = self._files, self.directory
        self._removals.replaced(superfluous, lambda: swap.swap_done(files, directory, state))

    def collect_deleted(self, now_monotonic: float) -> Callable[[], None] | None:
        """The removal of files whose delay is over, to be called on a thread; None when there are none."""
        return self._removals.collect(now_monotonic)

    @property
    def compacted_below(self) -> int:
        """Batches below this offset may lack records that a later compaction of another replica keeps."""
        return self._cleaner.first_dirty_offset

    def plan_scrub(self) -> ScrubPlan:
        """For `check_segment` in the worker process: looks for bit rot in all segments."""
        gapless = not self.config.compacts and self._cleaner == CleanerState()
        return plan_scrub(self._files, self.directory, self._segments, self.epochs.entries, gapless=gapless)

    def segment_version(self, base_offset: int) -> object:
        """The same before and after a check: the bytes that were checked are those of the log.

        Another one after compaction or a truncation, None when there is no such segment any more.
        """
        slot = self._segments.slot_of(base_offset)
        if slot < 0 or self._segments[slot].base_offset != base_offset:
            return None
        return self._segments[slot], self._generation

    def segment_range(self, offset: int) -> tuple[int, int]:
        """[base offset, next base offset) of the segment that holds `offset`."""
        slot = max(self._segments.slot_of(offset), 0)
        return self._segments[slot].base_offset, self._segments.end_of(slot)

    # Close

    def close(self, *, clean: bool = True) -> None:
        """`clean`: everything is on disk afterwards, and the next open need not scan.

        Raises OSError or, after a failed write, StorageError: then the node has not stopped cleanly.
        """
        flush = None
        try:
            if clean:
                flush = self.begin_close()
                if flush is not None:
                    flush.sync()
        finally:
            self.end_close(flush)

    def begin_close(self) -> Flush | None:
        """The first half of a clean `close`: all is written, and what it returns remains to be synced.

        A log to which nothing was appended needs nothing: thousands of idle ones must stop quickly.
        """
        if self._failure is not None:
            raise StorageError(self._failure)
        if self.log_end_offset != self._saved_offset:
            active = self._segments.active
            active.save_indexes()
            self._unsynced.add_segment(active)
            self._unsynced.add_file(self._save_producers())
            self._unsynced.add_names_in(self.directory)
        remove = self._removals.collect(self._clock.monotonic())
        if remove is not None:
            remove()
        return self.begin_flush()

    def end_close(self, flush: Flush | None) -> None:
        """Raises StorageError when what was begun could not be synced."""
        if flush is not None:
            self.end_flush(flush)
        for segment in self._segments:
            segment.retire()
        if flush is not None and not flush.synced:
            raise StorageError(f"{self.directory}: not everything could be synced")

    def delete(self) -> Callable[[], None]:
        """Renames the directory; returns its removal, to be called on a thread."""
        self.close(clean=False)
        self.fenced = True
        unique = self.topic_id.hex if self.topic_id is not None else f"{self._clock.wall_ms():032x}"
        renamed = self.directory.with_name(deleted_name(self.directory.name, unique))
        self._files.rename(self.directory, renamed)
        files = self._files
        return lambda: files.remove_tree(renamed)
