"""What the log hands out: a slice of a segment file to be sent, and a flush to be done on another thread.

Both pin their files: they stay open and readable even if the segment is deleted meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headrace.log.descriptors import PooledFile
from headrace.world import File, Files


class LogSlice:
    """Whole batches, `size` bytes at `position` of `file`. Release it exactly once."""

    __slots__ = ("_pooled", "file", "next_offset", "position", "size")

    def __init__(self, pooled: PooledFile, position: int, size: int, next_offset: int) -> None:
        self._pooled: PooledFile | None = pooled
        self.file: File = pooled.pin()
        self.position = position
        self.size = size
        self.next_offset = next_offset
        """The offset after the last batch: what a reader asks for next."""

    def bytes(self) -> bytes:
        return self.file.pread(self.size, self.position)

    def cached(self) -> bool:
        """Whether `bytes` would not wait for the disk; if it would, call it on a thread."""
        return self.file.cached(self.size, self.position)

    def release(self) -> None:
        pooled, self._pooled = self._pooled, None
        if pooled is not None:
            pooled.unpin()


class Flush:
    """Everything that must reach the disk before `end_offset` is safe (R23)."""

    __slots__ = ("_caches", "_directories", "_files", "_pooled", "end_offset", "generation", "synced")

    def __init__(
        self,
        files: Files,
        *,
        end_offset: int,
        generation: int,
        pooled: Sequence[PooledFile],
        caches: Sequence[Path],
        directories: Sequence[Path],
    ) -> None:
        self.end_offset = end_offset
        self.generation = generation
        """Of the log when the flush began; a truncation in between makes its news worthless."""
        self.synced = False
        self._files = files
        self._pooled = [(handle, handle.pin()) for handle in pooled]
        self._caches = caches
        self._directories = directories

    def sync(self) -> None:
        """Blocks for the disk: runs on a thread. Raises OSError, which must not be retried (R24)."""
        for _, file in self._pooled:
            file.fsync()
        for path in self._caches:
            self._sync_cache(path)
        for directory in self._directories:
            self._files.sync_directory(directory)
        self.synced = True

    def _sync_cache(self, path: Path) -> None:
        """Indexes and snapshots of sealed segments; whatever removed one meanwhile was right to."""
        try:
            file = self._files.open(path, "read")
        except FileNotFoundError:
            return
        try:
            file.fsync()
        finally:
            file.close()

    def release(self) -> None:
        for handle, _ in self._pooled:
            handle.unpin()
        self._pooled = []
