# SPDX-License-Identifier: Apache-2.0
"""The disk of one node of a test's broker: in memory, or a folder of the system. Read next: nodes.py."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Protocol

from headrace.realworld import RealFiles
from headrace.testing.memory_files import MemoryFiles
from headrace.world import Files

_IN_MEMORY = Path("/data")


class Disk(Protocol):
    directory: Path

    @property
    def files(self) -> Files: ...

    def save(self, *, power_cut: bool) -> None:
        """Remembers what a crash at this moment leaves. `power_cut`: without what was not flushed."""

    def restore(self) -> None:
        """Goes back to what was remembered, when the node has ended."""


class MemoryDisk:
    def __init__(self) -> None:
        self.directory = _IN_MEMORY
        self.files = MemoryFiles()
        self.files.make_directory(self.directory)
        self._saved = self.files

    def save(self, *, power_cut: bool) -> None:
        self._saved = self.files.clone()
        if power_cut:
            self._saved.crash()

    def restore(self) -> None:
        self.files = self._saved


class FolderDisk:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.files = RealFiles()
        self._saved = directory.with_name(f"{directory.name}.crashed")

    def save(self, *, power_cut: bool) -> None:
        if power_cut:
            raise ValueError('power_cut=True needs Broker(disk="memory"): what a folder holds survives')
        shutil.copytree(self.directory, self._saved)

    def restore(self) -> None:
        shutil.rmtree(self.directory)
        self._saved.rename(self.directory)
