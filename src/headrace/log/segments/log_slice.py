# SPDX-License-Identifier: Apache-2.0
"""A slice of a segment file to be sent. It pins the file, which stays readable even if it is deleted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headrace.log.segments.descriptors import PooledFile
from headrace.log.segments.scan import scan
from headrace.world import File


class LogSlice:
    """Whole batches, `size` bytes at `position` of `file`. Release it exactly once."""

    __slots__ = ("_pooled", "file", "next_offset", "on_failure", "position", "size")

    def __init__(self, pooled: PooledFile, position: int, size: int, next_offset: int) -> None:
        self._pooled: PooledFile | None = pooled
        self.file: File = pooled.pin()
        self.position = position
        self.size = size
        self.next_offset = next_offset
        """The offset after the last batch: what a reader asks for next."""
        self.on_failure: Callable[[OSError], None] | None = None
        """Called when the file lacks the bytes after all, or cannot be read."""

    @property
    def path(self) -> Path | None:
        """For messages; None once it is released."""
        return None if self._pooled is None else self._pooled.path

    def bytes(self) -> bytes:
        return self.file.pread(self.size, self.position)

    def cached(self, most_bytes: int | None = None, *, thorough: bool = False) -> bool:
        """Whether `bytes`, or as much of them, would not wait for the disk; if so, call it on a thread."""
        size = self.size if most_bytes is None else min(self.size, most_bytes)
        return self.file.cached(size, self.position, thorough=thorough)

    def cut_at_fault(self, most_bytes: int) -> str | None:
        """Checks batches until `most_bytes` were read; what is wrong with the first corrupt one, if any.

        It and what comes after it are left out of the slice.
        """
        end = scan(
            self.file,
            size=self.position + self.size,
            position=self.position,
            expected_offset=0,
            until=self.position + most_bytes,
        )
        if end.fault is None:
            return None
        self.size, self.next_offset = end.position - self.position, end.next_offset
        return f"{end.fault} at position {end.position}"

    def failed(self, error: OSError) -> None:
        if self.on_failure is not None:
            self.on_failure(error)

    def release(self) -> None:
        pooled, self._pooled = self._pooled, None
        if pooled is not None:
            pooled.unpin()
