# SPDX-License-Identifier: Apache-2.0
"""Reads and changes the offset log of a Spark checkpoint.

Spark writes `offsets/N` before it runs batch N and `commits/N` after. A change of
offsets is a batch without rows: Spark runs it through state and sink like any other and continues from its
end. Independent of Kafka. Read next: checkpoint_status.py, docs/decisions/0016-moving-a-checkpoint.md.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.client.errors import ClientError
from pyspark_headrace.reading.offsets import VERSION, Offsets, read_document
from pyspark_headrace.reading.query_lock import try_exclusive

_FORMAT = "v1"
_STOPPED_AFTER_S = 60
"""A checkpoint without writes for this long is assumed to be stopped on other machines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One file of the log: Spark's batch metadata and one line per source."""

    metadata: str
    sources: tuple[str, ...]

    def text(self) -> str:
        return "\n".join([_FORMAT, self.metadata, *self.sources])


class Checkpoint:
    """A query's checkpoint; ClientError when the directory is not one or has no batch yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not (folder / "offsets").is_dir():
            raise ClientError(
                f"{folder} is not a checkpoint of a Spark query: it has no directory 'offsets'",
                next_step="use the checkpointLocation of the query; `headrace pipeline run` names it",
            )
        begun, done = _numbers(folder / "offsets"), _numbers(folder / "commits")
        if not begun:
            raise ClientError(f"the query of {folder} has not started a batch yet")
        self.last = begun[-1]
        self.finished = self.last in done
        """Whether the last batch was finished; if not, Spark runs it again first."""

    def current_offsets(self) -> Offsets:
        """End offsets of the last finished batch, or of the first batch when none is finished."""
        number = self.last if self.finished or self.last == 0 else self.last - 1
        return self._ours(self._entry(number))[1]

    def next_watermark_ms(self) -> int:
        """The watermark at the end of the last batch, which is finished; 0: there is none yet."""
        commit = self.folder / "commits" / str(self.last)
        committed = json.loads(commit.read_text(encoding="utf-8").splitlines()[1] or "{}")
        return int(committed.get("nextBatchWatermarkMs", 0))

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Hold the query's lock; ClientError while it runs, as far as this machine can tell."""
        with try_exclusive(self.current_offsets().query) as free:
            if free is False:
                raise ClientError(
                    f"the query of {self.folder} is running",
                    next_step="stop it first",
                )
            age_s = time.time() - self._last_written()
            if free is None and age_s < _STOPPED_AFTER_S:
                raise ClientError(
                    f"the checkpoint {self.folder} was written to {age_s:.0f} s ago from another machine, "
                    "where the query may be running",
                    next_step=f"stop it, and retry {_STOPPED_AFTER_S} s later",
                )
            yield

    def move(self, new: Offsets) -> None:
        """Set the offsets from which the query continues. Call it while `stopped`."""
        if self.finished:
            self._add_empty_batch(new)
        else:
            self._empty_the_last_batch(new)

    # -- private -------------------------------------------------------------------------------------------

    def _add_empty_batch(self, new: Offsets) -> None:
        """A driver that is running after all finds its next batch id taken and fails."""
        before = self._entry(self.last)
        moved = self._advance(before, new)
        self._rewrite(self.last, moved)
        try:
            self._create(self.last + 1, replace(moved, metadata=self._next_metadata(moved.metadata)))
        except FileExistsError:
            self._rewrite(self.last, before)
            raise ClientError(
                f"the query of {self.folder} is running: it started batch {self.last + 1} just now",
                next_step="stop it first",
            ) from None

    def _empty_the_last_batch(self, new: Offsets) -> None:
        if self.last == 0:
            raise ClientError(
                f"the first batch of {self.folder} is not finished, so there are no offsets to change yet",
                next_step="run the query until it is, or start with a new checkpoint and startingOffsets",
            )
        for number in (self.last - 1, self.last):
            self._rewrite(number, self._advance(self._entry(number), new))

    def _advance(self, entry: Entry, new: Offsets) -> Entry:
        place, _ = self._ours(entry)
        sources = list(entry.sources)
        sources[place] = json.dumps(new.to_document())
        return replace(entry, sources=tuple(sources))

    def _next_metadata(self, metadata: str) -> str:
        """Metadata of the next batch; it starts with the watermark at the end of the last one."""
        document = json.loads(metadata)
        key = "batchWatermarkMs"
        document[key] = max(int(document.get(key, 0)), self.next_watermark_ms())
        return json.dumps(document, separators=(",", ":"))

    def _ours(self, entry: Entry) -> tuple[int, Offsets]:
        """The line of our source, unchanged: Spark compares offsets as text."""
        found = [
            (place, json.loads(line))
            for place, line in enumerate(entry.sources)
            if line.startswith("{") and json.loads(line).get("version") == VERSION
        ]
        if len(found) != 1:
            raise ClientError(
                f"the query of {self.folder} has {len(found)} sources of format 'headrace', not one",
                next_step="choose offsets with startingOffsets and a new checkpoint",
            )
        place, document = found[0]
        return place, read_document(document)

    def _entry(self, number: int) -> Entry:
        path = self.folder / "offsets" / str(number)
        try:
            version, metadata, *sources = path.read_text(encoding="utf-8").splitlines()
        except (FileNotFoundError, ValueError):
            raise ClientError(f"{path} is missing or damaged") from None
        if version != _FORMAT:
            raise ClientError(
                f"{path} has format {version!r}, but only {_FORMAT!r} is supported",
                next_step="a later version of Headrace may read it",
            )
        return Entry(metadata=metadata, sources=tuple(sources))

    def _rewrite(self, number: int, entry: Entry) -> None:
        folder = self.folder / "offsets"
        with suppress(FileNotFoundError):
            (folder / f".{number}.crc").unlink()  # Hadoop's checksum of the old file
        os.replace(self._written(entry), folder / str(number))

    def _create(self, number: int, entry: Entry) -> None:
        """Create a file; FileExistsError when it exists."""
        written = self._written(entry)
        try:
            os.link(written, self.folder / "offsets" / str(number))
        finally:
            written.unlink()

    def _written(self, entry: Entry) -> Path:
        path = self.folder / "offsets" / f".headrace-{os.getpid()}.tmp"
        with path.open("w", encoding="utf-8") as file:
            file.write(entry.text())
            file.flush()
            os.fsync(file.fileno())
        return path

    def _last_written(self) -> float:
        paths = [each for name in ("offsets", "commits") for each in (self.folder / name).glob("[0-9]*")]
        return max(path.stat().st_mtime for path in paths)


def _numbers(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.glob("*") if path.name.isdecimal())
