"""What a node writes down about its logs, so that the next start need not read them all.

Read next: log/checkpoints.py (the files), R21 and R22 in docs (what a clean stop means).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.log.checkpoints import (
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    read_offset_checkpoint,
    take_clean_marker,
    write_clean_marker,
    write_offset_checkpoint,
)
from headrace.types import TopicPartition
from headrace.world import Files

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOffsets:
    """Up to where each log is on disk, and where each begins."""

    recovery_points: Offsets
    log_starts: Offsets


class NodeCheckpoints:
    def __init__(self, files: Files, directory: Path, boot_id: str) -> None:
        self._files = files
        self._directory = directory
        self._boot_id = boot_id
        self.stopped_cleanly = False
        self.last = LogOffsets(recovery_points={}, log_starts={})

    def load(self) -> None:
        """The marker of a clean stop is taken away as the first act of a start (R22)."""
        self.stopped_cleanly = take_clean_marker(self._files, self._directory)
        self.last = LogOffsets(
            recovery_points=read_offset_checkpoint(self._files, self._directory / RECOVERY_POINT_FILE),
            log_starts=read_offset_checkpoint(self._files, self._directory / LOG_START_FILE),
        )

    def save(self, offsets: LogOffsets) -> None:
        """Blocking; on a thread."""
        write_offset_checkpoint(
            self._files, self._directory / RECOVERY_POINT_FILE, offsets.recovery_points
        )
        write_offset_checkpoint(self._files, self._directory / LOG_START_FILE, offsets.log_starts)

    def mark_clean(self, node_epoch: int) -> None:
        write_clean_marker(self._files, self._directory, node_epoch=node_epoch, boot_id=self._boot_id)
