"""One partition on one disk: record batches in segments, appended at the end, read from any offset.

Adds to a growing log what opens, shrinks and ends it. Knows no cluster. Returned removals are for a thread.
Read next: growing_log.py, recovery.py (opening), retention.py, compaction.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from headrace.errors import StorageError
from headrace.log import compaction_swap, partition_metadata, retention
from headrace.log.compaction_plan import CleanerState, CompactionPlan, CompactionResult, make_plan
from headrace.log.descriptors import DescriptorPool
from headrace.log.flush import Flush
from headrace.log.growing_log import GrowingLog
from headrace.log.leftovers import unlink_segment
from headrace.log.log_config import LogConfig
from headrace.log.log_slice import LogSlice
from headrace.log.recovery import LoadedLog, load_log
from headrace.log.scrub import ScrubPlan, plan_scrub
from headrace.log.segment import Segment
from headrace.log.segment_files import NO_ROOM
from headrace.log.state_fold import StateFold
from headrace.world import Clock, Files

__all__ = ["Flush", "LogSlice", "PartitionLog"]


class PartitionLog(GrowingLog):
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
        super().__init__(files, clock, directory, config, descriptors, loaded, topic_id)
        self._removals = retention.Removals(files, directory)
        self._cleaner = compaction_swap.load_state(files, directory)
        self._saved_offset = self._saved_at_open(loaded)
        """Where the log ended when indexes and producers were last saved by a clean stop."""

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

    def _saved_at_open(self, loaded: LoadedLog) -> int | None:
        end_offset = self.log_end_offset
        empty = not self._segments.size_bytes
        saved = loaded.report.clean and loaded.snapshots.offsets[-1:] == (end_offset,)
        return end_offset if empty or saved else None

    # Less and less

    def apply_retention(self, now_ms: int, high_watermark: int) -> int:
        """Deletes segments that are too old or too much; how many. Never at or above the high watermark."""
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
        """What is known of producers only from segments that go must be on disk first (R28).

        Blocks for an fsync where it is not there yet: after a roll, or when the whole log goes. A snapshot
        of more than what is flushed does not do, since a power cut makes the log end before it; but who
        deletes what is not flushed reckons with no power cut.
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
        """Moves the log start; segments that lie wholly below it go. The caller writes the log start down."""
        if offset <= self.log_start_offset:
            return
        self.log_start_offset = min(offset, self.log_end_offset)
        self._drop_below_start()
        self.epochs.truncate_from_start(self.log_start_offset)

    def _drop_below_start(self) -> None:
        """Segments that hold nothing any more; what producers need of them may keep them a while longer."""
        count = max(self._segments.slot_of(self.log_start_offset), 0)
        if count and self._producers_outlive(count):
            removed = self._segments.remove_first(count)
            self._unsynced.remove_segments(removed)
            self._removals.delete(removed, self._clock.monotonic() + self.config.file_delete_delay_ms / 1000)
            self._snapshots.keep_only(self._segments.base_offsets)

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

    def plan_scrub(self) -> ScrubPlan:
        """For `scrub` in the worker process: looks for bit rot in all segments."""
        gapless = not self.config.compacts and self._cleaner == CleanerState()
        return plan_scrub(self._files, self.directory, self._segments, gapless=gapless)

    # End

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
        """Gives the directory a name that no partition has; returns its removal, to be called on a thread."""
        self.close(clean=False)
        self.fenced = True
        unique = self.topic_id.hex if self.topic_id is not None else f"{self._clock.wall_ms():032x}"
        doomed = self.directory.with_name(f"{self.directory.name}.{unique}-delete")
        self._files.rename(self.directory, doomed)
        files = self._files
        return lambda: files.remove_tree(doomed)
