# SPDX-License-Identifier: Apache-2.0
"""What is written but not yet on disk, and the fsyncs that change it (R23).

A `Flush` is begun and ended by the log's owner. In between `sync` blocks and runs on a thread; where there is
an `only_file`, its fsync does the same.
Read next: partition_log.py, broker/partition/flusher.py (group commit).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headrace.log.segments.descriptors import PooledFile
from headrace.log.segments.files import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX
from headrace.log.segments.segment import Segment
from headrace.world import File, Files


@dataclass(slots=True, kw_only=True, eq=False)
class Flush:
    """Everything that must reach the disk before `end_offset` is safe (R23)."""

    files: Files
    end_offset: int
    generation: int
    """Of the log when the flush began; a truncation in between makes its news worthless."""
    caches: Sequence[Path]
    directories: Sequence[Path]
    before: Callable[[], None] | None
    pinned: list[tuple[PooledFile, File]] = field(default_factory=list)
    snapshot_offset: int = -1
    """The newest producer snapshot that is on disk once this flush is."""
    synced: bool = False
    """Set by `sync`, or by who has fsynced `only_file`: nothing counts as on disk without it."""

    @property
    def only_file(self) -> File | None:
        """The file whose fsync is all that this flush needs, as for most; None when it needs more."""
        if self.before is not None or self.caches or self.directories or len(self.pinned) != 1:
            return None
        return self.pinned[0][1]

    def sync(self) -> None:
        """Blocks for the disk: runs on a thread. Raises OSError, which must not be retried (R24)."""
        if self.before is not None:
            self.before()
        for _, file in self.pinned:
            file.fsync()
        for path in self.caches:
            self._sync_cache(path)
        for directory in self.directories:
            self.files.sync_directory(directory)
        self.synced = True

    def _sync_cache(self, path: Path) -> None:
        """Indexes and snapshots of sealed segments; whatever removed one meanwhile was right to."""
        try:
            file = self.files.open(path, "read")
        except FileNotFoundError:
            return
        try:
            file.fsync()
        finally:
            file.close()

    def release(self) -> None:
        for handle, _ in self.pinned:
            handle.unpin()
        self.pinned = []


class Unsynced:
    """Collects what the next flush has to cover besides the active segment's batches."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._segments: list[Segment] = []
        self._caches: list[Path] = []
        self._directories: list[Path] = []

    @property
    def has_segments(self) -> bool:
        return bool(self._segments)

    def add_segment(self, segment: Segment) -> None:
        """Its batches, and its indexes, which are trusted once they are below the recovery point."""
        self._segments.append(segment)
        self._caches += map(segment.path, (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX))

    def add_file(self, path: Path) -> None:
        self._caches.append(path)

    def add_names_in(self, directory: Path) -> None:
        if directory not in self._directories:
            self._directories.append(directory)

    def remove_segments(self, segments: Iterable[Segment]) -> None:
        gone = set(segments)
        self._segments = [segment for segment in self._segments if segment not in gone]

    def take(
        self, active: Segment, end_offset: int, generation: int, before: Callable[[], None] | None
    ) -> Flush:
        """A flush of all this and of the active segment; nothing is left to do but that and `before`."""
        flush = Flush(
            files=self._files,
            end_offset=end_offset,
            generation=generation,
            caches=self._caches,
            directories=self._directories,
            before=before,
        )
        try:
            for segment in dict.fromkeys((*self._segments, active)):
                flush.pinned.append((segment.pooled, segment.pooled.pin()))
        except OSError:
            flush.release()
            raise
        self._segments, self._caches, self._directories = [], [], []
        return flush
