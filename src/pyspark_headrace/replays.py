# SPDX-License-Identifier: Apache-2.0
"""Decides whether a sink has a batch already: by its number, and by a fingerprint of its offsets.

Spark repeats a batch that it has not marked as committed: with the same number and the same entry
`offsets/<number>` in its checkpoint. When an older checkpoint is restored, a number comes again for other
rows; skipping them as a replay would lose them. Knows neither topics nor tables. Read next:
writing/ledger.py, pyspark_headrace_delta/commit.py; docs/decisions/0033-a-replay-has-the-same-offsets.md.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shlex
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from headrace.client.errors import ClientError
from headrace.pipelines.delta.table import local_path

_log = logging.getLogger(__name__)

ReplayCheck = Literal["offsets", "number"]
REPLAY_CHECKS: tuple[ReplayCheck, ...] = ("offsets", "number")
_FINGERPRINT_BYTES = 7
"""A positive number in the 64 bits that a Delta table has for it."""
_MAX_SOURCES_CHARS = 256 << 10
"""Some thousand partitions; a record of the ledger must fit into a batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchIdentity:
    """`offsets`: a fingerprint of the checkpoint's entry for this batch; None: unknown.

    `sources`: where the batch ends, a line of that entry for each source of the query. Sinks record it with
    the rows, so that a checkpoint can be rebuilt and a table knows its place in the topic; replays are
    recognised by the fingerprint alone. Empty: unknown.
    """

    number: int
    offsets: int | None = None
    sources: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRule:
    """How a sink recognises a batch that it has. `sink` names it in errors, like "sink 'orders'".

    `repair` is the command that repairs a restored checkpoint, for batches numbered by one.
    """

    sink: str
    numbered_by: Literal["checkpoint", "batchId", "txnVersion"]
    check: ReplayCheck = "offsets"
    repair: str = ""

    def is_replay(self, batch: BatchIdentity, last: BatchIdentity) -> bool:
        """Whether the batch is the last one of the sink, again. ClientError when the sink has later ones."""
        if batch.number > last.number:
            return False
        if batch.number < last.number:
            raise self._behind(batch, last)
        if self.numbered_by != "checkpoint" or self.check == "number" or last.offsets is None:
            return True
        if batch.offsets is None:
            raise self._unverified(batch)
        if batch.offsets != last.offsets:
            raise self._differs(batch)
        return True

    def check_empty(self, batch: BatchIdentity, last: BatchIdentity, *, advances: bool) -> None:
        """A batch without rows is not recorded, but must not carry an older checkpoint past the last one.

        `advances`: it read something. One that moves offsets by hand, or only closes windows, does not.
        """
        if batch.number < last.number:
            raise self._behind(batch, last)
        if batch.number == last.number and advances and None not in (batch.offsets, last.offsets):
            self.is_replay(batch, last)

    def _behind(self, batch: BatchIdentity, last: BatchIdentity) -> ClientError:
        if self.numbered_by != "checkpoint":
            name = self.numbered_by
            return ClientError(
                f"{self.sink} has {name} {last.number} already: the rows of {name} {batch.number} would be "
                "skipped as a repeated write",
                next_step=f"count {name} upwards, and repeat a write only with its own {name}",
            )
        return ClientError(
            f"{self.sink} has batch {last.number} of this query, but the checkpoint goes on with batch "
            f"{batch.number}: an older checkpoint was restored, or another driver runs this query. The rows "
            f"of batches {batch.number} to {last.number} would be skipped as already written",
            next_step=self._repair(),
        )

    def _differs(self, batch: BatchIdentity) -> ClientError:
        return ClientError(
            f"{self.sink} has a batch {batch.number} of this query whose offsets differ from those in the "
            "checkpoint: an older checkpoint was restored. Its rows would be skipped as already written",
            next_step=self._repair(),
        )

    def _repair(self) -> str:
        return (
            "stop other drivers of this query, then let it go on behind the last batch of its sink: "
            f"`{self.repair}`; or restore the newest checkpoint"
        )

    def _unverified(self, batch: BatchIdentity) -> ClientError:
        return ClientError(
            f"{self.sink} has a batch {batch.number} of this query, and whether this is the same one is "
            "unknown: its entry in the checkpoint could not be read",
            next_step='name the checkpoint in the query, .option("checkpointLocation", …), where the driver '
            'can read it; or, if no older checkpoint was restored, set .option("replayCheck", "number")',
        )


def repair_command(checkpoint: str | None, *words: str) -> str:
    """The command line that repairs a checkpoint from its sink, which `words` name."""
    try:
        folder = "CHECKPOINT" if checkpoint is None else str(local_path(checkpoint))
    except ClientError:  # not on a file system of this machine
        folder = str(checkpoint)
    return " ".join(["headrace pipeline checkpoint", *map(shlex.quote, (folder, *words)), "--repair"])


def identify_batch(number: int, checkpoint: str | None) -> BatchIdentity:
    """A micro-batch, with the fingerprint of its offsets where the checkpoint is given and can be read."""
    if checkpoint is None and number == 0:
        _log.warning(
            'the query does not name its checkpoint, .option("checkpointLocation", …): a repeated batch is '
            "recognised by its number alone, and rows after an older checkpoint was restored are skipped"
        )
    entry = None if checkpoint is None else _read(checkpoint, f"offsets/{number}")
    if entry is None:
        return BatchIdentity(number=number)
    return BatchIdentity(number=number, offsets=fingerprint(entry), sources=_sources(entry))


def advances(number: int, checkpoint: str | None) -> bool:
    """Whether a batch ends elsewhere than the one before; False where that cannot be told."""
    if checkpoint is None or number == 0:
        return False
    before, entry = (_read(checkpoint, f"offsets/{each}") for each in (number - 1, number))
    return before is not None and entry is not None and before.splitlines()[2:] != entry.splitlines()[2:]


class Course:
    """The last batch of each sink that this process has seen; the next one needs no look into the sink."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, str], int] = {}

    def follows(self, sink: str, number: int) -> bool:
        return self._last.get((os.getpid(), sink)) == number - 1

    def note(self, sink: str, number: int) -> None:
        self._last[os.getpid(), sink] = number


def _sources(entry: bytes) -> tuple[str, ...]:
    """The lines after the format's version and Spark's own metadata; none where they would be too long."""
    lines = tuple(entry.decode(errors="replace").splitlines()[2:])
    return lines if sum(map(len, lines)) <= _MAX_SOURCES_CHARS else ()


def fingerprint(entry: bytes) -> int:
    return int.from_bytes(hashlib.sha256(entry).digest()[:_FINGERPRINT_BYTES])


def _read(location: str, name: str) -> bytes | None:
    """None: it could not be read."""
    from pyarrow import ArrowInvalid  # planning a query does not load Arrow
    from pyarrow.fs import FileSystem, LocalFileSystem

    try:
        if urlsplit(location).scheme.lower() in ("", "file"):
            files, folder = LocalFileSystem(), str(local_path(location))
        else:
            files, folder = FileSystem.from_uri(location)
        with files.open_input_stream(f"{folder}/{name}", compression=None) as stream:
            return bytes(stream.read())
    except (ClientError, OSError, ArrowInvalid, NotImplementedError):
        return None
