# SPDX-License-Identifier: Apache-2.0
"""How a query stands, from its checkpoint, its topics and its sink; whether it runs, here or elsewhere.

Reads only, and does not start Spark. Read next: checkpoint.py, checkpoint_status.py, cli/pipeline/status.py.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.pipelines.checkpoints.checkpoint import Checkpoint
from headrace.pipelines.checkpoints.checkpoint_status import CheckpointStatus, PartitionStatus
from headrace.pipelines.checkpoints.identity import identity_of
from headrace.pipelines.delta.table import local_path, open_table
from pyspark_headrace.reading.query_lock import try_exclusive
from pyspark_headrace.reading.splits import ranges_between

_SPARKS_FILE_SINK = "_spark_metadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryStatus:
    """`batch` is the last finished one; None: none is, and then times and offsets are unknown, too."""

    name: str
    checkpoint: Path
    running: bool | None
    """None: the query has no lock file on this machine; it may run on another."""
    batch: int | None = None
    finished_ms: float | None = None
    offsets_read: int | None = None
    """By that batch: its records, and offsets without a record. None: unknown, as for batch 0."""
    unfinished: int | None = None
    """A batch that was started and not finished."""
    sink_batch: int | None = None
    """The last one in the table of a built-in pipeline. None: none yet, or the sink is another."""
    partitions: tuple[PartitionStatus, ...] = ()

    @property
    def lag(self) -> int | None:
        lags = [each.lag for each in self.partitions if each.lag is not None]
        return sum(lags) if lags else None


def query_status(name: str, folder: Path, cluster: Cluster) -> QueryStatus:
    """ClientError when the folder is no checkpoint, or the cluster cannot be reached."""
    if _has_no_batch(folder):
        return QueryStatus(name=name, checkpoint=folder, running=None)
    checkpoint = Checkpoint(folder)
    offsets = checkpoint.current_offsets()
    with try_exclusive(offsets.query) as free:
        running = None if free is None else not free
    found = QueryStatus(
        name=name,
        checkpoint=folder,
        running=running,
        unfinished=None if checkpoint.finished else checkpoint.last,
        sink_batch=_sink_batch(folder),
    )
    batch = checkpoint.last if checkpoint.finished else checkpoint.last - 1
    if batch < 0:
        return found
    finished_s = checkpoint.finished_at_s(batch)
    return replace(
        found,
        batch=batch,
        finished_ms=None if finished_s is None else finished_s * 1000,
        offsets_read=_offsets_read(checkpoint, batch),
        partitions=tuple(CheckpointStatus(offsets, cluster).partitions()),
    )


def _has_no_batch(folder: Path) -> bool:
    """Whether it is the folder of a query that has not begun its first batch; another folder is an error."""
    if (folder / "offsets").is_dir():
        return not any(folder.glob("offsets/[0-9]*"))
    return not folder.exists() or identity_of(folder) is not None


def _offsets_read(checkpoint: Checkpoint, batch: int) -> int | None:
    """Where batch 0 began is in no file."""
    if batch < 1:
        return None
    try:
        start, end = checkpoint.offsets_of(batch - 1), checkpoint.offsets_of(batch)
    except ClientError:
        return None
    return sum(each.size for each in ranges_between(start, end, reread_truncated=False))


def _sink_batch(folder: Path) -> int | None:
    """Of tables only: the ledger of a topic sink must be searched for."""
    identity = identity_of(folder) or {}
    if identity.get("path") is None or folder.name.endswith(".topic"):
        return None
    path = local_path(str(identity["path"]))
    if identity.get("format") == "parquet":
        written = (path / _SPARKS_FILE_SINK).glob("[0-9]*")
        return max((int(each.name.removesuffix(".compact")) for each in written), default=None)
    table = open_table(path)
    return None if table is None else table.transaction_version(_query_id(folder))


def _query_id(folder: Path) -> str:
    """Spark's own, under which the table counts the batches of the query."""
    path = folder / "metadata"
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["id"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ClientError(f"{path} is missing or damaged") from None
