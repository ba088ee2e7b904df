# SPDX-License-Identifier: Apache-2.0
"""Which segments are too old or too much, and the slow end of their files (R29b).

Age is the largest record timestamp, never a file time. A deleted file is renamed first and unlinked after a
delay; a reader that holds it reads on. Read next: leftovers.py (what a crash in between means).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from headrace.log.leftovers import DELETED_SUFFIX, unlink_if_there
from headrace.log.log_config import LogConfig
from headrace.log.segments.files import SEGMENT_SUFFIXES, file_stem
from headrace.log.segments.segment import Segment
from headrace.log.segments.segment_list import SegmentList
from headrace.world import Files


def expired_segments(segments: SegmentList, config: LogConfig, *, now_ms: int, high_watermark: int) -> int:
    """How many of the oldest segments to delete; all of them only if the active one has expired too."""
    if not config.deletes:
        return 0
    by_time = _expired_by_time(segments, config, now_ms, high_watermark)
    return max(by_time, _expired_by_size(segments, config, high_watermark))


def _expired_by_time(segments: SegmentList, config: LogConfig, now_ms: int, high_watermark: int) -> int:
    if config.retention_ms < 0:
        return 0
    for slot, segment in enumerate(segments):
        if segments.end_of(slot) > high_watermark or not segment.size:
            return slot
        segment.ensure_timestamps()
        if segment.max_timestamp < 0 or now_ms - segment.max_timestamp <= config.retention_ms:
            return slot
    return len(segments)


def _expired_by_size(segments: SegmentList, config: LogConfig, high_watermark: int) -> int:
    if config.retention_bytes < 0:
        return 0
    surplus = segments.size_bytes - config.retention_bytes
    for slot, segment in enumerate(segments.sealed):
        if segments.end_of(slot) > high_watermark or surplus < segment.size:
            return slot
        surplus -= segment.size
    return len(segments) - 1


class Removals:
    """Files on their way out."""

    def __init__(self, files: Files, directory: Path) -> None:
        self._files = files
        self._directory = directory
        self._due: list[tuple[float, list[Path]]] = []
        self._replaced: list[Path] = []
        self._after_sync: Callable[[], None] | None = None
        self.swap_pending = False
        """Segments were replaced, and not all that belongs to it is on disk and done."""

    def delete(self, segments: Sequence[Segment], due: float) -> None:
        """Renames the files of deleted segments, the log's oldest; they are unlinked when they are due."""
        paths = [segment.path(suffix) for segment in segments for suffix in SEGMENT_SUFFIXES]
        for segment in segments:
            segment.retire()
        # Segments that compaction replaced are deleted too, or a restart would load them.
        gone = {path for path in self._replaced if path.name < file_stem(segments[-1].next_offset)}
        self._replaced = [path for path in self._replaced if path not in gone]
        self._due.append((due, [self._rename(path) for path in (*paths, *gone)]))

    def _rename(self, path: Path) -> Path:
        target = path.with_name(path.name + DELETED_SUFFIX)
        with contextlib.suppress(FileNotFoundError):
            self._files.rename(path, target)
        return target

    def replaced(self, paths: Iterable[Path], after_sync: Callable[[], None]) -> None:
        """Files whose content is kept under another name, which only has to become durable."""
        self._replaced += paths
        self._after_sync = after_sync
        self.swap_pending = True

    def collect(self, now: float) -> Callable[[], None] | None:
        """Takes out what is due; the returned call does it and blocks for the disk."""
        unlinked = [path for due, paths in self._due if due <= now for path in paths] + self._replaced
        after_sync = self._after_sync
        if not unlinked and after_sync is None:
            return None
        self._due = [(due, paths) for due, paths in self._due if due > now]
        self._replaced, self._after_sync = [], None
        return lambda: self._remove(unlinked, after_sync)

    def _remove(self, paths: list[Path], after_sync: Callable[[], None] | None) -> None:
        """First every rename must be durable: a power cut must not bring back only some of the segments."""
        self._files.sync_directory(self._directory)
        for path in paths:
            unlink_if_there(self._files, path)
        if after_sync is not None:
            after_sync()
            self.swap_pending = False
