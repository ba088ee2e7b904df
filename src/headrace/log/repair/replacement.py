# SPDX-License-Identifier: Apache-2.0
"""The segment that takes the place of a damaged one: sound batches of the old file, the others fetched.

X.log.repair.tmp            is being written; a start removes it
X.log.repaired              whole, checked and durable, with its indexes; a start finishes the swap
X.log -> X.log.damaged-1    the damaged file is kept
X.log.repaired -> X.log     the log is whole again

The log is closed meanwhile. All calls block for the disk. Read next: survey.py, log/leftovers.py (`tidy`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headrace.errors import CorruptLogError
from headrace.log.checkpoints import keep_damaged
from headrace.log.epochs import UNDEFINED, EpochEntry, epoch_at
from headrace.log.leftovers import REPAIRED_SUFFIX, finish_repair, unlink_if_there, unlink_segment
from headrace.log.repair.survey import Run
from headrace.log.segments.batch_walk import corrupt
from headrace.log.segments.descriptors import DescriptorPool
from headrace.log.segments.files import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, file_stem
from headrace.log.segments.scan import scan
from headrace.log.segments.segment import Segment
from headrace.world import Bytes, Files, write_all

_WRITTEN_SUFFIX = ".repair.tmp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """Of the segment at `base_offset`."""

    files: Files
    directory: Path
    base_offset: int
    index_interval_bytes: int

    @property
    def _path(self) -> Path:
        return self.directory / (file_stem(self.base_offset) + LOG_SUFFIX)

    @property
    def _written(self) -> Path:
        return self._path.with_name(self._path.name + _WRITTEN_SUFFIX)

    def begin(self) -> None:
        self.discard()
        self.files.open(self._written, "create").close()

    def discard(self) -> None:
        unlink_segment(self.files, self.directory, self.base_offset, _WRITTEN_SUFFIX)

    def copy(self, run: Run, start: int, size: int, position: int) -> None:
        """`size` bytes of the old file, from `start` of the run on, to `position` of the new one."""
        source = self.files.open(self._path, "read")
        try:
            data = source.pread(size, run.position + start)
        finally:
            source.close()
        if len(data) != size:
            raise CorruptLogError(f"{self._path}: it has become shorter")
        self.write([data], position)

    def write(self, parts: list[Bytes], position: int) -> None:
        target = self.files.open(self._written, "write")
        try:
            for part in parts:
                write_all(target, part, position)
                position += len(part)
        finally:
            target.close()

    def complete(self, *, end_offset: int, gapless: bool, epochs: tuple[EpochEntry, ...]) -> None:
        """Checks the whole of what was written, and makes it and its indexes durable.

        For the worker process. Raises CorruptLogError.
        """
        pool = DescriptorPool(self.files, 1)
        segment = Segment(
            self.files, pool, self.directory, self.base_offset, self.index_interval_bytes, _WRITTEN_SUFFIX
        )
        wrong: list[int] = []

        def visit(fields: tuple[int, ...], batch: memoryview) -> None:
            if epoch_at(epochs, fields[0]) not in (UNDEFINED, fields[2]):
                wrong.append(fields[0])

        try:
            file = segment.pooled.get()
            end = scan(
                file,
                size=file.size(),
                expected_offset=self.base_offset,
                note=segment.note,
                visit=visit,
                gapless=gapless,
                largest_offset=segment.largest_offset,
            )
            fault = end.fault or (f"another leader epoch at offset {wrong[0]}" if wrong else None)
            if fault is None and end.next_offset != end_offset and gapless:
                fault = f"it ends before offset {end_offset}"
            if fault is not None:
                raise corrupt(self._written, end.position, end.next_offset, fault)
            file.fsync()
            segment.save_indexes(durable=True)
        finally:
            segment.retire()

    def install(self) -> Path | None:
        """Puts it in the place of the damaged segment; where that is kept, if it was there."""
        files, directory = self.files, self.directory
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            name = file_stem(self.base_offset) + suffix
            if files.exists(directory / (name + _WRITTEN_SUFFIX)):
                files.rename(directory / (name + _WRITTEN_SUFFIX), directory / (name + REPAIRED_SUFFIX))
        files.sync_directory(directory)
        files.rename(self._written, self._path.with_name(self._path.name + REPAIRED_SUFFIX))
        files.sync_directory(directory)
        kept = finish_repair(files, directory, self.base_offset)
        self.discard()
        return kept

    def set_aside(self) -> Path | None:
        """Keeps the damaged file under another name and puts nothing in its place."""
        self.discard()
        kept = keep_damaged(self.files, self._path)
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            unlink_if_there(self.files, self.directory / (file_stem(self.base_offset) + suffix))
        return kept
