"""One partition on one disk: record batches in segments, appended at the end, read from any offset.

Synchronous and owned by one thread; only `Flush.sync`, `LogSlice.bytes` and returned removals run on others.
Knows no cluster. Read next: segment.py (files), recovery.py (opening), retention.py, compaction.py.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from crc32c import crc32c

from headrace.errors import DiskFullError, StorageError
from headrace.log import compaction_swap, partition_metadata, retention, time_lookup
from headrace.log.compaction_plan import CleanerState, CompactionPlan, CompactionResult, make_plan
from headrace.log.descriptors import DescriptorPool
from headrace.log.flush import Flush, Unsynced
from headrace.log.index import TIME_ENTRY_BYTES
from headrace.log.leftovers import unlink_segment
from headrace.log.log_config import LogConfig
from headrace.log.log_reader import LogReader
from headrace.log.log_slice import LogSlice
from headrace.log.markers import read_marker
from headrace.log.recovery import LoadedLog, load_log
from headrace.log.scrub import ScrubPlan, plan_scrub
from headrace.log.segment import Segment
from headrace.log.state_fold import StateFold
from headrace.wire.batch import BatchHeader, assign, stamp_append_time
from headrace.world import Clock, Files

__all__ = ["Flush", "LogSlice", "PartitionLog"]

Batches = list[tuple[int, BatchHeader]]


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
        self.flushed_offset = self.log_end_offset
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
        self._removals = retention.Removals(files, directory)
        self._cleaner = compaction_swap.load_state(files, directory)
        self._failure: str | None = None
        self._unsynced = Unsynced(files)
        self._unsynced.add_file(directory / partition_metadata.FILE_NAME)
        self._unsynced.add_names_in(directory)
        self._unsynced.add_names_in(directory.parent)
        self._generation = 0
        self._reader = LogReader(loaded.segments)
        self.reconfigure(config)
        self._set_roll_time(self._segments.active)

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
        if not files.exists(directory):
            files.make_directory(directory)
            # Offsets that were written down for this name belong to a partition that is gone.
            clean, recovery_point, log_start_offset = True, 0, 0
        partition_metadata.check(files, directory, topic_id)
        loaded = load_log(
            files,
            descriptors,
            directory,
            config,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            now_ms=clock.wall_ms(),
        )
        return cls(files, clock, directory, config, descriptors, loaded, topic_id)

    def reconfigure(self, config: LogConfig) -> None:
        self.config = config
        self.producers.expiration_ms = config.producer_id_expiration_ms
        self._segment_bytes = config.segment_bytes
        self._append_time = config.append_time
        # The time index is the larger one, and its last entry is reserved for the roll.
        self._index_entries = max(config.segment_index_bytes // TIME_ENTRY_BYTES - 1, 1)
        self._set_roll_time(self._segments.active)

    # What others ask

    @property
    def size_bytes(self) -> int:
        return self._segments.size_bytes

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    @property
    def wants_flush(self) -> bool:
        """A segment was sealed and is not on disk yet: worth a flush even where none is asked for."""
        return self._unsynced.has_segments

    # Append

    def append(self, view: memoryview, batches: Batches, leader_epoch: int) -> int:
        """Writes batches as `split_batches` gave them, one behind the other in `view`; their first offset.

        Offset, epoch and (for append-time topics) timestamp are set inside `view`. When it raises
        DiskFullError or StorageError nothing was appended, no offset was used, and the log is fenced.
        """
        if self.fenced:
            raise self._fenced_error()
        base_offset = offset = self.log_end_offset
        now_ms = self._clock.wall_ms() if self._append_time else None
        max_timestamp = -1
        for position, header in batches:
            if now_ms is not None:
                stamp_append_time(view, position, now_ms)
            assign(view, position, offset, leader_epoch)
            offset += header[6] + 1
            if header[8] > max_timestamp:
                max_timestamp = header[8]
        if leader_epoch > self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        if now_ms is not None:
            max_timestamp = now_ms
            batches = [(position, header._replace(max_timestamp=now_ms)) for position, header in batches]
        self._write(view, batches, base_offset, offset, max_timestamp)
        return base_offset

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
        first = batches[0][1].base_offset
        self._write(view, batches, first, end_offset, max(header.max_timestamp for _, header in batches))

    def _write(
        self, view: memoryview, batches: Batches, base_offset: int, end_offset: int, max_timestamp: int
    ) -> None:
        start = batches[0][0]
        last_position, last_header = batches[-1]
        size = last_position + last_header[1] + 12 - start
        segment = self._segments.active
        if (
            segment.size + size > self._segment_bytes
            or max_timestamp > segment.roll_after_ms
            or end_offset > segment.largest_offset
            or segment.index_entries >= self._index_entries
        ) and segment.size:
            segment = self._roll()
        try:
            segment.write(view[start : start + size], size)
        except OSError as error:
            raise self._append_failed(segment, error) from error
        if not segment.size:
            self._set_roll_time_from(segment, batches[0][1][8])
        self._note(segment, view, batches, base_offset)
        self.log_end_offset = end_offset

    def _note(self, segment: Segment, view: memoryview, batches: Batches, offset: int) -> None:
        for position, header in batches:
            next_offset = offset + header[6] + 1
            segment.note(header[1] + 12, next_offset - 1, header[8])
            if header[9] >= 0:
                marker = read_marker(view[position : position + header.size]) if header.is_control else None
                self.producers.update(header, offset, marker)
            offset = next_offset

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
            if error.errno != errno.ENOSPC:
                raise
        return self._snapshots.path(self.log_end_offset)

    def _set_roll_time(self, segment: Segment) -> None:
        if segment.size:
            self._set_roll_time_from(segment, segment.first_timestamp)

    def _set_roll_time_from(self, segment: Segment, first_timestamp: int) -> None:
        """segment.ms counts from the first batch's timestamp, or from now when it has none."""
        start = first_timestamp if first_timestamp >= 0 else self._clock.wall_ms()
        config = self.config
        jitter = 0
        if config.segment_jitter_ms > 0:
            # Spread by name and offset, so that not all partitions roll at once.
            spread = crc32c(f"{self.directory.name}/{segment.base_offset}".encode())
            jitter = spread % config.segment_jitter_ms
        segment.roll_after_ms = start + config.longest_segment_ms - jitter

    # Failed writes (R24)

    def _append_failed(self, segment: Segment, error: OSError) -> StorageError:
        """Takes back what a failed write left, and fences the log."""
        self.fenced = True
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
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
        return DiskFullError(f"{self.directory}: an append failed for lack of space; not yet recovered")

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
        self, offset: int, max_bytes: int, limit_offset: int, *, at_least_one: bool = True
    ) -> LogSlice | None:
        """Whole batches from the one with `offset`, all below `limit_offset`, from one segment.

        At most `max_bytes`, unless `at_least_one` and the first batch alone is larger. None when there is
        nothing. The caller has checked that the offset is in range, and releases the slice.
        """
        if limit_offset > self.log_end_offset:
            limit_offset = self.log_end_offset
        return self._reader.read(offset, max_bytes, limit_offset, at_least_one=at_least_one)

    def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record that is not older. Reads the records of a few batches."""
        return time_lookup.offset_for_timestamp(self._segments, timestamp_ms, self.log_start_offset)

    def offset_of_max_timestamp(self) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record with the largest timestamp."""
        return time_lookup.offset_of_max_timestamp(self._segments, self.log_start_offset)

    # Flush

    def begin_flush(self) -> Flush | None:
        """What must be fsynced so that everything appended so far is safe; None when it is."""
        if self.flushed_offset >= self.log_end_offset and not self._unsynced.has_segments:
            return None
        active = self._segments.active
        self._reader.remember(self.log_end_offset, active.size)
        return self._unsynced.take(
            active, self.log_end_offset, self._generation, before=self.epochs.take_unsaved()
        )

    def end_flush(self, flush: Flush) -> None:
        """Call it whether `sync` succeeded or not: after a failure the log is fenced for good (R24)."""
        flush.release()
        if not flush.synced:
            self.fenced = True
            self._failure = f"{self.directory}: fsync failed; the disk is not trusted any more"
        elif flush.generation == self._generation:
            self.flushed_offset = max(self.flushed_offset, flush.end_offset)
        else:
            self.epochs.dirty = True  # the flush may have written epochs that the truncation took back

    def begin_epoch(self, epoch: int) -> None:
        """R13: a new leader writes its epoch down, durably, before it appends. Blocks for an fsync."""
        self.epochs.assign(epoch, self.log_end_offset)
        self.epochs.save()

    # Less and less

    def apply_retention(self, now_ms: int, high_watermark: int) -> int:
        """Deletes segments that are too old or too much; how many. Never at or above the high watermark."""
        count = retention.expired_segments(
            self._segments, self.config, now_ms=now_ms, high_watermark=high_watermark
        )
        if not count:
            return 0
        if count == len(self._segments):
            self._segments.append(self._start_segment(self.log_end_offset))
        self.delete_records_before(self._segments.end_of(count - 1))
        return count

    def delete_records_before(self, offset: int) -> None:
        """Moves the log start; segments that lie wholly below it go. The caller writes the log start down."""
        if offset <= self.log_start_offset:
            return
        self.log_start_offset = min(offset, self.log_end_offset)
        count = max(self._segments.slot_of(self.log_start_offset), 0)
        if count:
            removed = self._segments.remove_first(count)
            self._unsynced.remove_segments(removed)
            self._removals.delete(removed, self._clock.monotonic() + self.config.file_delete_delay_ms / 1000)
            self._snapshots.keep_only(self._segments.base_offsets)
        self.epochs.truncate_from_start(self.log_start_offset)

    def truncate_to(self, offset: int) -> None:
        """Takes back everything from `offset` on; a batch that holds it goes whole. Durable when it returns.

        For replicas that part from their leader. The caller first writes down a recovery point that is not
        above `offset`: fsynced bytes that are missing look like a damaged disk.
        """
        if offset >= self.log_end_offset:
            return
        slot = self._segments.slot_of(offset)
        if slot < 0:
            self.truncate_fully_and_start_at(offset)
            return
        self._drop_segments(self._segments.remove_from(slot + 1))
        active = self._segments.active
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
        self.log_end_offset = end_offset
        self.log_start_offset = min(self.log_start_offset, end_offset)
        self.flushed_offset = min(self.flushed_offset, end_offset)
        self._snapshots.remove_above(end_offset)
        self.epochs.truncate_from_end(end_offset)
        self.epochs.save()
        self._reader.forget()
        self._files.sync_directory(self.directory)

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
            self._cleaner,
            generation=self._generation,
            log_start_offset=self.log_start_offset,
            limit_offset=min(limit_offset, self.flushed_offset),
            now_ms=now_ms,
        )

    def finish_compaction(self, plan: CompactionPlan, result: CompactionResult) -> None:
        """Puts the cleaned segments in place. What no longer fits the log is thrown away."""
        superfluous: list[Path] = []
        present = set(self._segments.base_offsets)
        for group in result.groups:
            if plan.generation != self._generation or not present.issuperset(group.source_base_offsets):
                compaction_swap.discard(self._files, self.directory, group)
                continue
            superfluous += compaction_swap.swap_in(self._files, self.directory, group)
            cleaned = self._new_segment(group.source_base_offsets[0])
            cleaned.load(group.size, group.end_offset)
            for replaced in self._segments.replace(group.source_base_offsets, [cleaned]):
                replaced.retire()
        self._reader.forget()
        if plan.generation != self._generation:
            return
        state = self._cleaner = CleanerState(result.first_dirty_offset, result.next_horizon_ms)
        files, directory = self._files, self.directory
        self._removals.replaced(superfluous, lambda: compaction_swap.swap_done(files, directory, state))

    def collect_deleted(self, now_monotonic: float) -> Callable[[], None] | None:
        """The removal of files whose delay is over, to be called on a thread; None when there are none."""
        return self._removals.collect(now_monotonic)

    def _start_segment(self, base_offset: int) -> Segment:
        segment = self._new_segment(base_offset)
        segment.create()
        self._unsynced.add_names_in(self.directory)
        return segment

    def plan_scrub(self) -> ScrubPlan:
        """For `scrub` in the worker process: looks for bit rot in all segments."""
        gapless = not self.config.compacts and self._cleaner == CleanerState()
        return plan_scrub(self._files, self.directory, self._segments, gapless=gapless)

    # End

    def close(self, *, clean: bool = True) -> None:
        """`clean`: everything is on disk afterwards, and the next open need not scan. Raises OSError."""
        if clean and self._failure is None:
            self._save_all()
            remove = self._removals.collect(self._clock.monotonic())
            if remove is not None:
                remove()
        for segment in self._segments:
            segment.retire()

    def _save_all(self) -> None:
        active = self._segments.active
        active.save_indexes()
        self._unsynced.add_segment(active)
        self._unsynced.add_file(self._save_producers())
        self._unsynced.add_names_in(self.directory)
        flush = self.begin_flush()
        if flush is not None:
            try:
                flush.sync()
            finally:
                self.end_flush(flush)

    def delete(self) -> Callable[[], None]:
        """Gives the directory a name that no partition has; returns its removal, to be called on a thread."""
        self.close(clean=False)
        self.fenced = True
        unique = self.topic_id.hex if self.topic_id is not None else f"{self._clock.wall_ms():032x}"
        doomed = self.directory.with_name(f"{self.directory.name}.{unique}-delete")
        self._files.rename(self.directory, doomed)
        files = self._files
        return lambda: files.remove_tree(doomed)
