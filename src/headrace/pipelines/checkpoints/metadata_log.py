# SPDX-License-Identifier: Apache-2.0
"""Files of a Spark metadata log (`offsets/`, `commits/`): one for each batch, replaced atomically.

Knows nothing of their contents but the format's version. Read next: checkpoint.py, checkpoint_repair.py.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


class MetadataLog:
    """One folder of the checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def numbers(self) -> list[int]:
        return sorted(int(path.name) for path in self.folder.glob("*") if path.name.isdecimal())

    def path(self, number: int) -> Path:
        return self.folder / str(number)

    def replace(self, number: int, text: str) -> None:
        """Write a file, whether there is one or not."""
        self._drop_checksum(number)
        os.replace(self._written(text), self.path(number))

    def create(self, number: int, text: str) -> None:
        """Write a file; FileExistsError when there is one."""
        written = self._written(text)
        try:
            os.link(written, self.path(number))
        finally:
            written.unlink()

    def remove(self, number: int) -> None:
        self._drop_checksum(number)
        self.path(number).unlink()

    def _drop_checksum(self, number: int) -> None:
        """Hadoop's checksum of the file as it was."""
        with suppress(FileNotFoundError):
            (self.folder / f".{number}.crc").unlink()

    def _written(self, text: str) -> Path:
        path = self.folder / f".headrace-{os.getpid()}.tmp"
        with path.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        return path
