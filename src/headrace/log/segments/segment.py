# SPDX-License-Identifier: Apache-2.0
"""One segment: a `.log` file with its two sparse indexes and its transaction index. Writes and finds batches.

The active segment has its indexes in memory and gets their files when it is sealed; a sealed one loads them
when it is read. A sparse index that does not match its log is rebuilt from it; a transaction index by its
owner, since it depends on earlier segments. Read next: files.py, log/transaction_indexes.py,
log/partition_log.py.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator, Sequence
from pathlib import Path

from headrace.log.segments.batch_walk import NO_LIMIT, BatchFile, BatchPlace, corrupt, place_at, seek, walk
from headrace.log.segments.cold_read import ColdIndex, HotFile
from headrace.log.segments.descriptors import DescriptorPool
from headrace.log.segments.files import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    NO_ROOM,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_stem,
    is_cached,
    mark_unknown,
    read_or_none,
    write_cache_file,
)
from headrace.log.segments.index import (
    LARGEST_RELATIVE_OFFSET,
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    IndexEntry,
    OffsetIndex,
    TimeEntry,
    TimeIndex,
)
from headrace.log.segments.scan import Visit, scan
from headrace.log.segments.transaction_index import (
    NO_ABORTS,
    UNKNOWN_BYTES,
    AbortedTransaction,
    TransactionIndex,
)
from headrace.wire.batch import HEADER_SIZE, read_header
from headrace.world import Bytes, Files, replace_file

NO_TIMESTAMP = -1
NEVER_MS = 2**63 - 1
NotedBatch = tuple[int, int, int]
"""Size, last offset and largest timestamp of a batch."""


class Segment:
    __slots__ = (
        "_aborted",
        "_aborted_saved",
        "_bytes_since_index",
        "_files",
        "_index",
        "_index_interval",
        "_name_suffix",
        "_pool",
        "_times",
        "_timestamps_known",
        "aborted_from",
        "base_offset",
        "directory",
        "first_timestamp",
        "index_entries",
        "largest_offset",
        "max_timestamp",
        "max_timestamp_offset",
        "next_offset",
        "pooled",
        "roll_after_ms",
        "size",
    )

    def __init__(
        self,
        files: Files,
        pool: DescriptorPool,
        directory: Path,
        base_offset: int,
        index_interval_bytes: int,
        name_suffix: str = "",
    ) -> None:
        """Empty; what its file already holds comes in through `load` or `note`."""
        self._name_suffix = name_suffix
        self._files = files
        self._pool = pool
        self.directory = directory
        self.base_offset = base_offset
        self.largest_offset = base_offset + LARGEST_RELATIVE_OFFSET
        self.next_offset = base_offset
        self.size = 0
        self.pooled = pool.file(self.path(LOG_SUFFIX))
        self.roll_after_ms = NEVER_MS
        """Set by the log once the first timestamp is known: a batch after it starts a new segment."""
        self._index_interval = index_interval_bytes
        self._aborted: TransactionIndex | None = None
        self.aborted_from: int | None = None
        """Where the earliest aborted transaction began, NO_ABORTS without any; None until it is known."""
        self._forget()
        self.forget_aborted()

    def __repr__(self) -> str:
        return f"Segment({self.base_offset}..{self.next_offset}, {self.size} bytes)"

    def path(self, suffix: str) -> Path:
        return self.directory / (file_stem(self.base_offset) + suffix + self._name_suffix)

    def create(self) -> None:
        """Makes the empty file, or empties what a failed roll left under its name."""
        file = self._files.open(self.pooled.path, "create")
        try:
            if file.size():
                file.truncate(0)
        finally:
            file.close()

    def _forget(self) -> None:
        self.first_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = self.base_offset
        self._timestamps_known = True
        self._index: OffsetIndex | None = OffsetIndex()
        self._times: TimeIndex | None = TimeIndex()
        self._bytes_since_index = 0
        self.index_entries = 0

    def load(self, size: int, next_offset: int) -> None:
        """A segment whose file is sound: sizes now, indexes and timestamps when they are needed."""
        self.size = size
        self.next_offset = next_offset
        if size:
            self._index = None
            self._times = None
            self._timestamps_known = False
            self._aborted = None
            self.aborted_from = None

    def reset(self) -> None:
        """Nothing is known of the file but that it exists; `note` will tell."""
        self._forget()
        self.size, self.next_offset = 0, self.base_offset

    def load_as_active(self) -> None:
        """Makes a loaded segment ready for `note`: indexes and timestamps in memory."""
        self.ensure_timestamps()
        self.read_first_timestamp()
        self._count_index_entries()
        self._pool.indexes.keep(self)

    def _count_index_entries(self) -> None:
        self.index_entries = len(self.index)
        self._bytes_since_index = self.size - self.index.last_position

    def read_first_timestamp(self) -> int:
        if self.first_timestamp < 0 and self.size:
            header = read_header(self.pooled.get().pread(HEADER_SIZE, 0))
            self.first_timestamp = header.max_timestamp
        return self.first_timestamp

    # Writing

    def append(self, buffers: Sequence[Bytes], size: int, batches: Sequence[NotedBatch]) -> None:
        """Writes batches of `size` bytes in all. On OSError the caller truncates the file (R24)."""
        pooled = self.pooled
        pooled.used = True
        written = (pooled.file or pooled.get()).pwritev(buffers, self.size)
        if written != size:
            raise OSError(errno.ENOSPC, f"only {written} of {size} bytes were written")
        for batch_size, last_offset, max_timestamp in batches:
            self.note(batch_size, last_offset, max_timestamp)

    def note(self, size: int, last_offset: int, max_timestamp: int) -> None:
        """The `size` bytes behind the last batch are a batch now."""
        position = self.size
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self._bytes_since_index > self._index_interval:
            base = self.base_offset
            self.index.append(last_offset - base, position)
            self.times.append_if_later(self.max_timestamp, self.max_timestamp_offset - base)
            self._bytes_since_index = 0
            self.index_entries += 1
        self._bytes_since_index += size
        self.size = position + size
        self.next_offset = last_offset + 1
        if not position:
            self.first_timestamp = max_timestamp

    def cut_file(self) -> None:
        """Removes bytes behind the last batch: what a failed or torn write left."""
        self.pooled.get().truncate(self.size)

    def truncate(self, offset: int) -> None:
        """Forgets the batch that holds `offset` and all behind it, in the file too."""
        place = self.find(offset)
        if place is None:
            return
        self.pooled.get().truncate(place.position)
        self._truncate_aborted(place.base_offset)
        self.index.truncate(place.position)
        times = self.times
        times.truncate(place.base_offset - self.base_offset)
        self.size = place.position
        self.next_offset = min(offset, place.base_offset)
        self._count_index_entries()
        self._find_max_timestamp()

    def _find_max_timestamp(self) -> None:
        """The last time entry, and the batches behind the last index entry that may exceed it."""
        last, base = self.times.last, self.base_offset
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, base
        if last is not None:
            self.max_timestamp, self.max_timestamp_offset = last.timestamp, base + last.relative_offset
        entry = self.index.last_at_or_before(self.size)
        for place in self.walk(0 if entry is None else entry.position):
            timestamp = self._time_of(place)
            if timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = timestamp, place.last_offset
        self._timestamps_known = True

    # Indexes

    @property
    def index(self) -> OffsetIndex:
        return self._index if self._index is not None else self._load_indexes()[0]

    @property
    def times(self) -> TimeIndex:
        return self._times if self._times is not None else self._load_indexes()[1]

    def ensure_timestamps(self) -> None:
        """Corrects max_timestamp. A time index whose last entry does not match the log is rebuilt."""
        if self._timestamps_known:
            return
        last = self.times.last
        place = self._place_of(last)
        if last is None or place is None or self._rises_behind(place, last.timestamp):
            self.rebuild_indexes()
        else:
            self.max_timestamp, self.max_timestamp_offset = last.timestamp, place.last_offset
            self._timestamps_known = True

    @property
    def known_max_timestamp(self) -> int | None:
        """None without records, and while its indexes were not needed yet."""
        return self.max_timestamp if self._timestamps_known and self.max_timestamp >= 0 else None

    def earliest_offset_after(self, timestamp: int) -> int:
        """No record before this offset is later than `timestamp`."""
        entry = self.times.last_at_or_below(timestamp)
        if entry is None:
            return self.base_offset
        place = self._place_of(entry)
        if place is None or entry.timestamp > timestamp:
            self.rebuild_indexes()
            return self.base_offset
        return place.last_offset

    def _place_of(self, entry: TimeEntry | None) -> BatchPlace | None:
        """The batch that a time entry speaks of; None when the log has none like it."""
        if entry is None:
            return None
        offset = self.base_offset + entry.relative_offset
        place = self.find(offset)
        if place is None or place.last_offset != offset or self._time_of(place) != entry.timestamp:
            return None
        return place

    def _rises_behind(self, place: BatchPlace, timestamp: int) -> bool:
        """Whether later batches come soon behind `place`: then the end of the time index is missing."""
        limit = place.position + place.size + 2 * self._index_interval
        for following in self.walk(place.position + place.size):
            if self._time_of(following) > timestamp:
                return True
            if following.position > limit:
                break
        return False

    def _time_of(self, place: BatchPlace) -> int:
        return read_header(self.pooled.get().pread(HEADER_SIZE, place.position)).max_timestamp

    def seal(self, *, durable: bool = False) -> None:
        """No more batches: the indexes get their files and need not stay in memory.

        Those of a segment below the recovery point are trusted, so they must not be less durable than it:
        by the next flush, or at once.
        """
        if self.save_indexes(durable=durable):
            self._index_may_go()

    def save_indexes(self, *, durable: bool = False) -> bool:
        """Writes what is in memory; the last time entry holds the largest timestamp. False on a full disk."""
        self.times.append_if_later(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
        write = replace_file if durable else write_cache_file
        # First: an earlier version of it must not stay, whatever becomes of the others.
        saved = self.save_aborted(durable=durable)
        try:
            write(self._files, self.path(INDEX_SUFFIX), self.index.encode())
            write(self._files, self.path(TIME_INDEX_SUFFIX), self.times.encode())
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            self._remove_index_files()  # half an index would be trusted
            return False
        return saved

    def _remove_index_files(self) -> None:
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            with contextlib.suppress(FileNotFoundError):
                self._files.unlink(self.path(suffix))

    def _index_may_go(self) -> None:
        size = 0
        if self._index is not None and self._times is not None:
            size = len(self._index) * OFFSET_ENTRY_BYTES + len(self._times) * TIME_ENTRY_BYTES
        if self._aborted is not None:
            size += self._aborted.size_bytes
        self._pool.indexes.loaded(self, size)

    def release_indexes(self) -> None:
        """From now on they are on disk only and loaded again when needed."""
        self._index = None
        self._times = None
        if self._aborted_saved:
            self._aborted = None

    def retire(self) -> None:
        """The segment is removed; reads from its file that are under way may finish."""
        self.pooled.retire()
        self._pool.indexes.keep(self)
        self.release_indexes()

    def _load_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        data = read_or_none(self._files, self.path(INDEX_SUFFIX))
        index = None if data is None else OffsetIndex.decode(data, self.size)
        data = read_or_none(self._files, self.path(TIME_INDEX_SUFFIX))
        times = None if data is None else TimeIndex.decode(data)
        if index is None or times is None:
            return self.rebuild_indexes()
        self._index, self._times = index, times
        self._index_may_go()
        return index, times

    def rebuild_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """From the log itself; the files are rewritten. Corrupt batches are bit rot (R27)."""
        size = self.size
        self.reset()
        end = scan(
            self.pooled.get(),
            size=size,
            expected_offset=self.base_offset,
            note=self.note,
            largest_offset=self.largest_offset,
        )
        self.size = size
        if end.fault is not None:
            raise corrupt(self.pooled.path, end.position, end.next_offset, end.fault)
        self.seal(durable=True)
        return self.index, self.times

    # Aborted transactions

    @property
    def aborted(self) -> TransactionIndex | None:
        """None when they are unknown: the file is missing, damaged or marked so."""
        if self._aborted is None:
            data = read_or_none(self._files, self.path(TRANSACTION_INDEX_SUFFIX))
            if data is not None:
                self._aborted = TransactionIndex.decode(data, self.base_offset, self.next_offset)
            if self._aborted is not None:
                self._aborted_saved = True
                self.aborted_from = self._aborted.lowest_offset
                self._index_may_go()
        return self._aborted

    @property
    def aborted_at_hand(self) -> bool:
        """Whether `aborted` would not wait for the disk."""
        return self._aborted is not None or is_cached(self._files, self.path(TRANSACTION_INDEX_SUFFIX))

    def forget_aborted(self) -> None:
        """There are none, or `note_aborted` will tell."""
        self.set_aborted(TransactionIndex())

    def set_aborted(self, index: TransactionIndex) -> None:
        self._aborted = index
        self._aborted_saved = False
        self.aborted_from = index.lowest_offset

    def note_aborted(self, entry: AbortedTransaction) -> None:
        """The marker of an aborted transaction was appended."""
        index = self.aborted
        assert index is not None, "the owner has loaded it"
        index.append(entry)
        self._aborted_saved = False
        known = NO_ABORTS if self.aborted_from is None else self.aborted_from
        self.aborted_from = min(entry.first_offset, known)

    def save_aborted(self, *, durable: bool = False) -> bool:
        """Writes what is in memory. On a full disk the file is marked as unknown: False."""
        if self._aborted is None:
            return True
        path = self.path(TRANSACTION_INDEX_SUFFIX)
        try:
            (replace_file if durable else write_cache_file)(self._files, path, self._aborted.encode())
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            mark_unknown(self._files, path, UNKNOWN_BYTES)
            return False
        self._aborted_saved = True
        return True

    def _truncate_aborted(self, offset: int) -> None:
        index = self.aborted
        assert index is not None, "the owner rebuilds it first"
        index.truncate(offset)
        self.set_aborted(index)
        if self._files.exists(self.path(TRANSACTION_INDEX_SUFFIX)):
            self.save_aborted()

    # Finding

    def hot_file(self) -> HotFile:
        """For `find` and `cut` without waiting for the disk. Raises ColdIndex when the indexes would wait."""
        if self._index is None or self._times is None:
            paths = [self.path(INDEX_SUFFIX), self.path(TIME_INDEX_SUFFIX)]
            cold = [path for path in paths if not is_cached(self._files, path)]
            if cold:
                raise ColdIndex(self._files, cold)
        return HotFile(self.pooled.get())

    def find(self, offset: int, file: BatchFile | None = None) -> BatchPlace | None:
        """The batch with `offset`, or the next one where compaction removed it; None behind the last.

        `file`, here and in `cut`: the segment's own, but read in another way.
        """
        file = file or self.pooled.get()
        entry = self._confirmed(self.index.last_at_or_below(offset - self.base_offset), file)
        if entry is not None and entry.last_offset >= offset:
            return entry
        return self._seek(file, 0 if entry is None else entry.position, offset=offset)

    def cut(self, start: int, limit: int, file: BatchFile | None = None) -> tuple[int, int] | None:
        """(end, next offset) of the whole batches in [start, limit); None when not even the first fits.

        `start` is the position of a batch, `limit` any position inside the file.
        """
        file = file or self.pooled.get()
        entry = self.index.last_at_or_before(limit)
        if entry is not None and entry.position > start:
            place = self._confirmed(entry, file)
            if place is not None:
                if place.position + place.size > limit:
                    return place.position, place.base_offset
                start = place.position
        place = self._seek(file, start, limit=limit)
        if place is None:
            return self.size, self.next_offset
        return None if place.position == start else (place.position, place.base_offset)

    def find_end(self) -> int:
        """Checks the batches behind the last index entry; the offset after the last of them."""
        entry = self._confirmed(self.index.last_at_or_before(self.size), self.pooled.get())
        position, expected = (0, self.base_offset) if entry is None else (entry.position, entry.base_offset)
        end = scan(
            self.pooled.get(),
            size=self.size,
            position=position,
            expected_offset=expected,
            largest_offset=self.largest_offset,
        )
        if end.fault is not None:
            raise corrupt(self.pooled.path, end.position, end.next_offset, end.fault)
        self.next_offset = end.next_offset
        return end.next_offset

    def visit_batches(self, from_offset: int, visit: Visit) -> None:
        """Calls `visit` as `scan` does, from the batch with `from_offset` on. Raises CorruptLogError."""
        place = self.find(from_offset) if self.next_offset > from_offset else None
        if place is None:
            return
        end = scan(
            self.pooled.get(),
            size=self.size,
            position=place.position,
            expected_offset=place.base_offset,
            visit=visit,
        )
        if end.fault is not None:
            raise corrupt(self.pooled.path, end.position, end.next_offset, end.fault)

    def walk(self, position: int) -> Iterator[BatchPlace]:
        """The batches from `position`, where one must begin, to the end."""
        return walk(self.pooled.get(), self.pooled.path, position, self.size)

    def _seek(
        self, file: BatchFile, position: int, *, offset: int = NO_LIMIT, limit: int = NO_LIMIT
    ) -> BatchPlace | None:
        return seek(file, self.pooled.path, position, self.size, offset=offset, limit=limit)

    def _confirmed(self, entry: IndexEntry | None, file: BatchFile) -> BatchPlace | None:
        """The batch of an index entry. If there is no such batch, the indexes are wrong and rebuilt."""
        if entry is None:
            return None
        place = place_at(file, entry.position, self.size)
        if place is None or place.last_offset != self.base_offset + entry.relative_offset:
            self.rebuild_indexes()
            return None
        return place
