"""Keeps the node out of a full disk (R25): producing stops while there is still room to tidy up.

A small ballast file is given back when even that room is gone, so that checkpoints can be written.
Read next: housekeeping.py (who looks once a second).
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

    def look(self) -> bool:
        """Whether there is room for records; logs each change."""
        free = self._files.free_bytes(self._directory)
        if free < _ALMOST_NOTHING and self._files.exists(self._ballast):
            self._files.unlink(self._ballast)
        roomy = free >= self.reserve_bytes
        if roomy != self.roomy:
            self.roomy = roomy
            self._tell(free)
        return roomy

    def _tell(self, free: int) -> None:
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
