"""A log as it grows: append, roll, read, flush, and what happens when the disk refuses.

Synchronous and owned by one thread; only `Flush.sync` and `LogSlice.bytes` run on others. What opens, shrinks
and ends a log is partition_log.py. Read next: segment.py (files), log_reader.py, flush.py.
"""

from __future__ import annotations

import errno
from pathlib import Path
from uuid import UUID

from crc32c import crc32c

from headrace.errors import DiskFullError, StorageError
from headrace.log import partition_metadata, time_lookup
from headrace.log.batch_walk import LOG_OVERHEAD
from headrace.log.descriptors import DescriptorPool
from headrace.log.flush import Flush, Unsynced
from headrace.log.index import TIME_ENTRY_BYTES
from headrace.log.log_config import LogConfig
from headrace.log.log_reader import LogReader
from headrace.log.log_slice import LogSlice
from headrace.log.markers import read_marker
from headrace.log.producer_state import NO_OFFSET
from headrace.log.recovery import LoadedLog
from headrace.log.segment import Segment
from headrace.log.segment_files import NO_ROOM
from headrace.log.time_lookup import Ask, Found, search_batch
from headrace.wire.batch import BatchHeader, assign, stamp_append_time
from headrace.world import Clock, Files

Batches = list[tuple[int, BatchHeader]]
_NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})


class GrowingLog:
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
        self._failure: str | None = None
        self._unsynced = Unsynced(files)
        if not loaded.report.clean or not loaded.segments.active.size:
            self._unsynced.add_file(directory / partition_metadata.FILE_NAME)
            self._unsynced.add_names_in(directory)
            self._unsynced.add_names_in(directory.parent)
        self._safe_snapshot = NO_OFFSET
        """The newest producer snapshot that a power cut cannot take."""
        if loaded.report.clean:
            self._safe_snapshot = loaded.snapshots.newest_offset
        elif loaded.snapshots.offsets:
            self._unsynced.add_file(loaded.snapshots.path(loaded.snapshots.newest_offset))
        for segment in loaded.unsynced_segments:
            self._unsynced.add_segment(segment)
        self._generation = 0
        self._reader = LogReader(loaded.segments)
        self.reconfigure(config)
        self._set_roll_time(self._segments.active)

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
        """Writes batches as `split_batches` gave them, in the order in which they lie in `view`.

        Returns the first offset. What lies between the batches is left out.

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
            offset += header.last_offset_delta + 1
            if header.max_timestamp > max_timestamp:
                max_timestamp = header.max_timestamp
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
        buffers, size = _pieces(view, batches)
        segment = self._segments.active
        if (
            segment.size + size > self._segment_bytes
            or max_timestamp > segment.roll_after_ms
            or end_offset > segment.largest_offset
            or segment.index_entries >= self._index_entries
        ) and segment.size:
            segment = self._roll()
        try:
            segment.write(buffers, size)
        except OSError as error:
            raise self._append_failed(segment, error) from error
        if not segment.size:
            self._set_roll_time_from(segment, batches[0][1].max_timestamp)
        self._note(segment, view, batches, base_offset)
        self.log_end_offset = end_offset

    def _note(self, segment: Segment, view: memoryview, batches: Batches, offset: int) -> None:
        for position, header in batches:
            next_offset = offset + header.last_offset_delta + 1
            segment.note(header.batch_length + LOG_OVERHEAD, next_offset - 1, header.max_timestamp)
            if header.producer_id >= 0:
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
            if error.errno not in NO_ROOM:
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

    # Flush

    def begin_flush(self) -> Flush | None:
        """What must be fsynced so that everything appended so far is safe; None when it is."""
        if self.flushed_offset >= self.log_end_offset and not self._unsynced.has_segments:
            return None
        active = self._segments.active
        self._reader.remember(self.log_end_offset, active.size)
        flush = self._unsynced.take(
            active, self.log_end_offset, self._generation, before=self.epochs.take_unsaved()
        )
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

    def begin_epoch(self, epoch: int) -> None:
        """R13: a new leader writes its epoch down, durably, before it appends. Blocks for an fsync."""
        self.epochs.assign(epoch, self.log_end_offset)
        self.epochs.save()


def _pieces(view: memoryview, batches: Batches) -> tuple[list[memoryview], int]:
    """The bytes of the batches, in one piece when nothing lies between them; (pieces, size in all)."""
    start = batches[0][0]
    last, header = batches[-1]
    end = last + header.batch_length + LOG_OVERHEAD
    if len(batches) > 1:
        size = sum(header.batch_length + LOG_OVERHEAD for _, header in batches)
        if size < end - start:
            return [view[at : at + header.batch_length + LOG_OVERHEAD] for at, header in batches], size
    return [view[start:end]], end - start
