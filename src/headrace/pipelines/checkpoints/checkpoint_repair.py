# SPDX-License-Identifier: Apache-2.0
"""Compares a query's checkpoint with its sink, and rebuilds the checkpoint's end from what the sink recorded.

Sinks record with each batch where its sources end. Written as the last, finished batch of the checkpoint,
that makes Spark go on exactly behind the rows that the sink has. Queries with state are refused: no sink has
their state. Read next: checkpoint.py, sinks.py; docs/decisions/0034-repairing-a-checkpoint-from-its-sink.md.
"""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from headrace.client.errors import ClientError
from headrace.pipelines.checkpoints.checkpoint import Checkpoint, Entry, ours_among
from headrace.pipelines.checkpoints.metadata_log import MetadataLog
from headrace.types import TopicPartition
from pyspark_headrace.replays import BatchIdentity, fingerprint

State = Literal["in step", "repeats", "behind", "differs", "moved", "ahead", "unknown", "no batch"]
_NO_SOURCE = "-"
_RESTORE = "restore the newest checkpoint, or start with a new one and startingOffsets after the sink's rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionEnds:
    """Where the query goes on, and where the sink's last batch ends; None: the side lacks the partition."""

    source: int
    place: TopicPartition
    checkpoint: int | None
    sink: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`explanation` says what would happen if the query went on as it is."""

    state: State
    explanation: str
    partitions: tuple[PartitionEnds, ...]

    @property
    def needs_repair(self) -> bool:
        return self.state in ("behind", "differs", "moved", "ahead")


def compare(checkpoint: Checkpoint, sink: str, last: BatchIdentity | None) -> Comparison:
    """`sink`: its name, like "sink 'orders'"; `last`: its last batch of this query."""
    partitions = _partitions(checkpoint, last)
    state = _state(checkpoint, last)
    explanation = _explanation(state, checkpoint, sink, last, partitions)
    return Comparison(state=state, explanation=explanation, partitions=partitions)


def check_repairable(checkpoint: Checkpoint, sink: str, last: BatchIdentity | None) -> BatchIdentity:
    """The batch to rebuild from; ClientError says why there is none."""
    if checkpoint.is_stateful():
        raise ClientError(
            f"the query of {checkpoint.folder} is stateful: its state is of batch {checkpoint.last}, and no "
            "sink records a state, so that a rebuilt checkpoint would count from a wrong one",
            next_step="restore the newest checkpoint as a whole; or let the query start again with a new "
            "checkpoint, from the beginning and into another table or topic",
        )
    if last is None:
        raise ClientError(f"{sink} has no batch of this query to rebuild from", next_step=_RESTORE)
    if not last.sources:
        raise ClientError(
            f"{sink} did not record where the sources of batch {last.number} end: it was written by an "
            "earlier release, by a query that does not name its checkpointLocation as an option, or has "
            "thousands of partitions",
            next_step=_RESTORE,
        )
    before = checkpoint.entry(checkpoint.last)
    if len(last.sources) != len(before.sources):
        raise ClientError(
            f"batch {last.number} in {sink} has {len(last.sources)} sources, the checkpoint has "
            f"{len(before.sources)}: it is of another version of the query",
            next_step=_RESTORE,
        )
    others = set(range(len(last.sources))) - ours_among(last.sources).keys()
    if any(last.sources[place] != _NO_SOURCE for place in others):
        raise ClientError(
            "the query has sources of other formats, which may keep more in the checkpoint than offsets",
            next_step=_RESTORE,
        )
    return last


def repair(checkpoint: Checkpoint, last: BatchIdentity) -> Path:
    """Make `last` the newest batch of the checkpoint, finished. Returns the folder with what was replaced.

    Call it while the query is `stopped`. Should it be interrupted, it can be repeated: until the last file is
    written, the sink refuses the batch that Spark would run.
    """
    number = last.number
    entry = replace(checkpoint.entry(checkpoint.last), sources=last.sources)
    commit = _newest_commit(checkpoint)
    backup = _back_up(checkpoint, from_number=number - 1)
    for log in (checkpoint.commits, checkpoint.offsets):
        for later in reversed([each for each in log.numbers() if each > number]):
            log.remove(later)
    if number > 0 and not checkpoint.offsets.path(number - 1).exists():
        checkpoint.offsets.replace(number - 1, entry.text())  # Spark looks where the last batch began
    checkpoint.offsets.replace(number, entry.text())
    checkpoint.commits.replace(number, commit)
    return backup


# -- comparing ---------------------------------------------------------------------------------------------


def _state(checkpoint: Checkpoint, last: BatchIdentity | None) -> State:
    if last is None:
        return "no batch"
    if last.number > checkpoint.last:
        return "behind"
    is_same = _is_same(checkpoint, last)
    if is_same is False:
        refused = checkpoint.last == last.number and not checkpoint.finished
        return "differs" if refused else "moved"
    if checkpoint.last > last.number:
        begun_only = not checkpoint.finished and checkpoint.last == last.number + 1
        return "in step" if begun_only else "ahead"
    if is_same is None:
        return "unknown"
    return "in step" if checkpoint.finished else "repeats"


def _is_same(checkpoint: Checkpoint, last: BatchIdentity) -> bool | None:
    """Whether the checkpoint's batch of that number is the sink's; None: it cannot be told.

    A batch that Spark will run again must have the same entry for the sink to recognise it. Of a finished one
    only the end counts: a repaired checkpoint has another entry.
    """
    path = checkpoint.offsets.path(last.number)
    if not path.exists():
        return None
    if last.offsets is not None and fingerprint(path.read_bytes()) == last.offsets:
        return True
    is_finished = checkpoint.finished or checkpoint.last > last.number
    if is_finished and last.sources:
        return checkpoint.entry(last.number).sources == last.sources
    return None if last.offsets is None else False


def _explanation(
    state: State,
    checkpoint: Checkpoint,
    sink: str,
    last: BatchIdentity | None,
    partitions: tuple[PartitionEnds, ...],
) -> str:
    if last is None:
        return f"{sink} has no batch of this query: none had rows, or this is not the sink of this query"
    following = checkpoint.last + 1 if checkpoint.finished else checkpoint.last
    if state == "in step":
        return f"they agree: the query goes on with batch {following}, and nothing is lost or written twice"
    if state == "repeats":
        return (
            f"they agree: Spark runs batch {following} again, and {sink} recognises and skips it; nothing is "
            "lost or written twice"
        )
    if state == "unknown":
        return (
            f"both have batch {last.number}, and {sink} did not record its offsets, so that whether it is "
            "the same batch is unknown"
        )
    if state == "moved":
        return (
            f"batch {last.number} ends elsewhere in the checkpoint than in {sink}: the offsets were moved, "
            f"as by `headrace pipeline offsets`. {sink} takes batch {following}, which is next: the rows of "
            f"{_records(partitions, last)} are written again or left out"
        )
    if state == "ahead":
        return (
            f"the checkpoint is ahead: {sink} ends with batch {last.number}, the checkpoint with "
            f"{checkpoint.last}. Either the batches in between had no rows, and all is well; or {sink} lost "
            f"them, and the rows of {_records(partitions, last)} are missing there"
        )
    side = "is behind" if state == "behind" else f"has another batch {last.number}"
    return (
        f"the checkpoint {side}: the query goes on with batch {following}, and {sink} has batch "
        f"{last.number} already, {_records(partitions, last)} further on. It refuses the query: taken "
        "for batches that it has, new rows would be skipped and lost; under another name the rows of these "
        "records would be written twice"
    )


def _records(partitions: tuple[PartitionEnds, ...], last: BatchIdentity) -> str:
    if not last.sources:
        return "an unknown number of records"
    return f"up to {sum(abs((each.sink or 0) - (each.checkpoint or 0)) for each in partitions)} records"


def _goes_on_from(checkpoint: Checkpoint) -> Entry | None:
    """The last finished batch; None: the first one is not finished."""
    number = checkpoint.last if checkpoint.finished else checkpoint.last - 1
    return checkpoint.entry(number) if number >= 0 else None


def _partitions(checkpoint: Checkpoint, last: BatchIdentity | None) -> tuple[PartitionEnds, ...]:
    done = _goes_on_from(checkpoint)
    ours = {} if done is None else done.ours()
    recorded = {} if last is None else ours_among(last.sources)
    found = []
    for source in sorted({*ours, *recorded}):
        here = {place: each.offset for place, each in ours[source]} if source in ours else {}
        there = {place: each.offset for place, each in recorded[source]} if source in recorded else {}
        found += [
            PartitionEnds(source=source, place=place, checkpoint=here.get(place), sink=there.get(place))
            for place in sorted({*here, *there})
        ]
    return tuple(found)


# -- repairing ---------------------------------------------------------------------------------------------


def _newest_commit(checkpoint: Checkpoint) -> str:
    """The text of the newest commit, which holds the watermark, or that of a query without one."""
    done = checkpoint.commits.numbers()
    if done:
        return checkpoint.commits.path(done[-1]).read_text(encoding="utf-8")
    return "v1\n" + json.dumps({"nextBatchWatermarkMs": 0}, separators=(",", ":"))


def _back_up(checkpoint: Checkpoint, *, from_number: int) -> Path:
    """Copy the entries of both logs from that number on, and the newest one."""
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    backup = checkpoint.folder / f"headrace-backup-{moment}"
    for log in (checkpoint.offsets, checkpoint.commits):
        _copy(log, backup / log.folder.name, from_number)
    return backup


def _copy(log: MetadataLog, into: Path, from_number: int) -> None:
    into.mkdir(parents=True, exist_ok=True)
    numbers = log.numbers()
    for number in {*numbers[-1:], *(each for each in numbers if each >= from_number)}:
        shutil.copy2(log.path(number), into)
