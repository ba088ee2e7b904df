# SPDX-License-Identifier: Apache-2.0
"""Stops producing before the disk is full (R25), so that checkpoints and retention still have room.

A small ballast file is deleted when even that room is gone, so that checkpoints can be written.
Read next: housekeeping.py (which checks once a second).
"""

from __future__ import annotations

import logging
from pathlib import Path

from headrace.world import Files, write_all

logger = logging.getLogger(__name__)

BALLAST_BYTES = 4 << 20
_ALMOST_NOTHING = 1 << 20
_GIB = 1 << 30


class DiskGuard:
    def __init__(self, files: Files, directory: Path, reserve_bytes: int) -> None:
        self._files = files
        self._directory = directory
        self._ballast = directory / "ballast"
        if reserve_bytes < 0:
            reserve_bytes = min(files.total_bytes(directory) // 20, _GIB)
        self.reserve_bytes = reserve_bytes
        self.roomy = True

    def has_room(self) -> bool:
        """Whether there is room for records; logs each change."""
        free = self._files.free_bytes(self._directory)
        if free < _ALMOST_NOTHING and self._files.exists(self._ballast):
            self._files.unlink(self._ballast)
        roomy = free >= self.reserve_bytes
        if roomy != self.roomy:
            self.roomy = roomy
            self._log_change(free)
        return roomy

    def _log_change(self, free: int) -> None:
        if self.roomy:
            logger.warning("disk: %d bytes free again in %s; producing resumes", free, self._directory)
        else:
            logger.error(
                "disk: only %d bytes free in %s, less than headrace.disk.reserve.bytes=%d; producing stops "
                "until space is freed or retention removes segments",
                free,
                self._directory,
                self.reserve_bytes,
            )

    def keep_ballast(self) -> None:
        """Blocking; on a thread."""
        free = self._files.free_bytes(self._directory)
        if self._files.exists(self._ballast) or free < self.reserve_bytes + 2 * BALLAST_BYTES:
            return
        file = self._files.open(self._ballast, "create")
        try:
            write_all(file, bytes(BALLAST_BYTES), 0)
        finally:
            file.close()
