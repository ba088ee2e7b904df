# SPDX-License-Identifier: Apache-2.0
"""Open files within a limit: the files of all segments of all partitions share one pool.

A segment has one `PooledFile`; the pool closes the least used ones and opens them again on demand. A pinned
file is never closed: it is being sent or fsynced.
"""

from __future__ import annotations

import errno
from collections import OrderedDict
from pathlib import Path
from typing import Protocol

from headrace.world import File, Files, OpenMode


class PooledFile:
    __slots__ = ("_mode", "_pins", "_pool", "_retired", "file", "path", "used")

    def __init__(self, pool: DescriptorPool, path: Path, mode: OpenMode) -> None:
        self.path = path
        self.file: File | None = None
        self.used = False
        """Set at each use, cleared by the pool's sweep: cheaper than an exact LRU on every append."""
        self._pool = pool
        self._mode = mode
        self._pins = 0
        self._retired = False

    def get(self) -> File:
        """The open file, safe until the pool is asked for another one. Raises OSError."""
        self.used = True
        return self.file or self._pool.reopen(self, self._mode)

    def pin(self) -> File:
        self.used = True
        file = self.file or self.get()
        self._pins += 1
        if self._pins == 1:
            self._pool.pinned_count += 1
        return file

    def unpin(self) -> None:
        self._pins -= 1
        if not self._pins:
            self._pool.pinned_count -= 1
            if self._retired:
                self._pool.close(self)

    @property
    def pinned(self) -> bool:
        return self._pins > 0

    def retire(self) -> None:
        """Closes the file now, or when the last pin goes."""
        self._retired = True
        if not self._pins:
            self._pool.close(self)


class HasIndexes(Protocol):
    def release_indexes(self) -> None: ...


class LoadedIndexes:
    """Bounds the memory for the indexes of sealed segments: the one loaded first goes first."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._sizes: dict[HasIndexes, int] = {}
        self._total = 0

    def loaded(self, owner: HasIndexes, size: int) -> None:
        self.keep(owner)
        self._sizes[owner] = size
        self._total += size
        while self._total > self._limit_bytes and len(self._sizes) > 1:
            oldest = next(iter(self._sizes))
            self.keep(oldest)
            oldest.release_indexes()

    def keep(self, owner: HasIndexes) -> None:
        """Its indexes stay, or are gone already: not ours to release."""
        self._total -= self._sizes.pop(owner, 0)


class DescriptorPool:
    """`limit`: open files in all. `index_bytes`: loaded indexes of sealed segments in all."""

    def __init__(self, files: Files, limit: int, *, index_bytes: int = 32 << 20) -> None:
        self.limit = limit
        self.pinned_count = 0
        self._files = files
        self._open: OrderedDict[PooledFile, None] = OrderedDict()
        self.indexes = LoadedIndexes(index_bytes)

    @property
    def open_count(self) -> int:
        return len(self._open)

    @property
    def under_pressure(self) -> bool:
        """So many files are pinned that callers should pin as few as possible."""
        return self.pinned_count > self.limit // 2

    def file(self, path: Path, mode: OpenMode = "write") -> PooledFile:
        """A place in the pool; the file itself is opened at first use."""
        return PooledFile(self, path, mode)

    def reopen(self, pooled: PooledFile, mode: OpenMode) -> File:
        if len(self._open) >= self.limit:
            self._close_one()
        file = self._open_file(pooled.path, mode)
        pooled.file = file
        self._open[pooled] = None
        return file

    def _open_file(self, path: Path, mode: OpenMode) -> File:
        """When others have taken the process's last descriptor, the pool gives up some of its own."""
        while True:
            try:
                return self._files.open(path, mode)
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._close_one():
                    raise

    def close(self, pooled: PooledFile) -> None:
        file, pooled.file = pooled.file, None
        if file is not None:
            del self._open[pooled]
            file.close()

    def _close_one(self) -> bool:
        """Second chance: what was used since the last sweep goes to the back. False if all are pinned."""
        for _ in range(2 * len(self._open)):
            pooled = next(iter(self._open))
            if pooled.used or pooled.pinned:
                pooled.used = False
                self._open.move_to_end(pooled)
            else:
                self.close(pooled)
                return True
        return False
