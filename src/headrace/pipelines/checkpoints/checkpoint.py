# SPDX-License-Identifier: Apache-2.0
"""Reads and changes the offset log of a Spark checkpoint.

Spark writes `offsets/N` before it runs batch N and `commits/N` after. A change of
offsets is a batch without rows: Spark runs it through state and sink like any other and continues from its
end. Independent of Kafka. Read next: metadata_log.py, checkpoint_status.py,
checkpoint_repair.py, docs/decisions/0016-moving-a-checkpoint.md.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.client.errors import ClientError
from headrace.pipelines.checkpoints.metadata_log import MetadataLog
from pyspark_headrace.reading.offsets import VERSION, Offsets, read_document, refuse_newer
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

    def ours(self) -> dict[int, Offsets]:
        """The sources of format "headrace", by their place in the query."""
        return ours_among(self.sources)


def ours_among(sources: Sequence[str]) -> dict[int, Offsets]:
    """Of the lines of an entry: those of format "headrace", by their place. ClientError for later formats."""
    documents = {place: json.loads(line) for place, line in enumerate(sources) if line.startswith("{")}
    for document in documents.values():
        refuse_newer(document)
    return {
        place: read_document(document)
        for place, document in documents.items()
        if document.get("version") == VERSION
    }


class Checkpoint:
    """A query's checkpoint; ClientError when the directory is not one or has no batch yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not (folder / "offsets").is_dir():
            raise ClientError(
                f"{folder} is not a checkpoint of a Spark query: it has no directory 'offsets'",
                next_step="use the checkpointLocation of the query; `headrace pipeline run` names it",
            )
        self.offsets, self.commits = MetadataLog(folder / "offsets"), MetadataLog(folder / "commits")
        begun = self.offsets.numbers()
        if not begun:
            raise ClientError(f"the query of {folder} has not started a batch yet")
        self.last = begun[-1]
        self.finished = self.last in self.commits.numbers()
        """Whether the last batch was finished; if not, Spark runs it again first."""

    def entry(self, number: int) -> Entry:
        path = self.offsets.path(number)
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

    def query_id(self) -> str:
        """Spark's id of the query, under which its sinks count batches."""
        try:
            document = json.loads((self.folder / "metadata").read_text(encoding="utf-8"))
            return str(document["id"])
        except (OSError, ValueError, KeyError, TypeError):
            raise ClientError(
                f"{self.folder / 'metadata'} is missing or damaged: it holds the id of the query",
                next_step="restore it with the rest of the checkpoint",
            ) from None

    def is_stateful(self) -> bool:
        return (self.folder / "state").is_dir()

    def current_offsets(self) -> Offsets:
        """End offsets of the last finished batch, or of the first batch when none is finished."""
        number = self.last if self.finished or self.last == 0 else self.last - 1
        return self.offsets_of(number)

    def offsets_of(self, number: int) -> Offsets:
        """End offsets of a batch; ClientError when Spark has removed its entry."""
        return self._ours(self.entry(number))[1]

    def finished_at_s(self, number: int) -> float | None:
        """When the batch was finished; None: it was not, or Spark has removed its entry."""
        try:
            return self.commits.path(number).stat().st_mtime
        except FileNotFoundError:
            return None

    def next_watermark_ms(self) -> int:
        """The watermark at the end of the last batch, which is finished; 0: there is none yet."""
        commit = self.folder / "commits" / str(self.last)
        committed = json.loads(commit.read_text(encoding="utf-8").splitlines()[1] or "{}")
        return int(committed.get("nextBatchWatermarkMs", 0))

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Hold the query's lock; ClientError while it runs, as far as this machine can tell."""
        with ExitStack() as locks:
            queries = {source.query for source in self.entry(self.last).ours().values()}
            free = [locks.enter_context(try_exclusive(query)) for query in queries]
            if False in free:
                raise ClientError(
                    f"the query of {self.folder} is running",
                    next_step="stop it first",
                )
            age_s = time.time() - self._last_written()
            if True not in free and age_s < _STOPPED_AFTER_S:
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
        before = self.entry(self.last)
        moved = self._advance(before, new)
        self.offsets.replace(self.last, moved.text())
        try:
            following = replace(moved, metadata=self._next_metadata(moved.metadata))
            self.offsets.create(self.last + 1, following.text())
        except FileExistsError:
            self.offsets.replace(self.last, before.text())
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
            self.offsets.replace(number, self._advance(self.entry(number), new).text())

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
        """Our source and its place among the sources of the query."""
        found = entry.ours()
        if len(found) != 1:
            raise ClientError(
                f"the query of {self.folder} has {len(found)} sources of format 'headrace', not one",
                next_step="choose offsets with startingOffsets and a new checkpoint",
            )
        return next(iter(found.items()))

    def _last_written(self) -> float:
        return max(
            log.path(number).stat().st_mtime
            for log in (self.offsets, self.commits)
            for number in log.numbers()
        )
