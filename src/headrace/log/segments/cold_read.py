# SPDX-License-Identifier: Apache-2.0
"""Reads that must not wait for the disk: what is not in memory is named, so that a thread can fetch it first.

Read next: log/log_reader.py (which raises ColdRead), broker/handlers/fetch.py (which runs it on a thread).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headrace.log.segments.descriptors import PooledFile
from headrace.world import File, Files, read_file

_MOST_BYTES = 1 << 20


class ColdRead(Exception):
    """Call `warm` on a thread and `release` on the loop, then try again."""

    def __init__(self, pooled: PooledFile, start: int, end: int) -> None:
        super().__init__(f"{pooled.path} is not in memory from {start} to {end}")
        self._pooled = pooled
        self._file = pooled.pin()
        self._start = max(start, end - _MOST_BYTES)
        self._end = end

    def warm(self) -> None:
        self._file.pread(self._end - self._start, self._start)

    def release(self) -> None:
        self._pooled.unpin()


class ColdIndex(ColdRead):
    """The same for the small files of a segment, which are read as a whole."""

    def __init__(self, files: Files, paths: Sequence[Path]) -> None:
        Exception.__init__(self, f"{paths[0]} is not in memory")
        self._files = files
        self._paths = paths

    def warm(self) -> None:
        for path in self._paths:
            read_file(self._files, path)

    def release(self) -> None:
        pass


class NotAtHand(Exception):
    """Raised by HotFile, with the range that was asked for."""

    def __init__(self, start: int, end: int) -> None:
        super().__init__(start, end)
        self.start = start
        self.end = end


class HotFile:
    """A file of which only that is read which need not be waited for."""

    __slots__ = ("_file",)

    def __init__(self, file: File) -> None:
        self._file = file

    def pread(self, size: int, position: int) -> bytes:
        data = self._file.pread_cached(size, position)
        if data is None:
            raise NotAtHand(position, position + size)
        return data
