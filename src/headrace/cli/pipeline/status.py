# SPDX-License-Identifier: Apache-2.0
"""`headrace pipeline status`: how far queries are, whether they run, and their lag, from their checkpoints.

Read next: headrace/pipelines/checkpoints/query_status.py; offsets.py (changes the offsets).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.option_sets import takes_options
from headrace.cli.options import ConnectOptions, Json
from headrace.cli.output import Cell, Output, iso_time
from headrace.cli.pipeline.offsets import partition_document, state_of
from headrace.client.errors import ClientError

if TYPE_CHECKING:
    from headrace.client.cluster import Cluster
    from headrace.pipelines.checkpoints.query_status import QueryStatus

_QUERIES = ("QUERY", "STATE", "BATCH", "FINISHED AT", "OFFSETS READ", "LAG", "SINK BATCH")
_PARTITIONS = ("QUERY", "TOPIC", "PARTITION", "OFFSET", "END", "LAG", "STATE")


@takes_options
def status(
    *,
    target: Annotated[
        str,
        typer.Argument(
            metavar="CHECKPOINT|FILE.toml|NAME",
            help="Checkpoint directory of a Spark query, file of pipelines, or name of a pipeline.",
        ),
    ],
    connect: ConnectOptions,
    as_json: Json = False,
) -> None:
    """Show how far Spark queries are: last batch, lag, whether they run.

    Works for every query over format("headrace") whose checkpoint is on a file system of this machine. BATCH
    is the last finished one, SINK BATCH the last one in the table that a built-in pipeline writes. LAG counts
    offsets up to the end of the log, as `headrace groups describe` does. STATE: running and stopped on this
    machine, unknown on others.

    \b
    Examples:
      headrace pipeline status /data/checkpoints/orders
      headrace pipeline status pipelines.toml --json
      headrace pipeline status store-orders
    """
    from headrace.pipelines.spark_session.session import need_pyspark

    need_pyspark()
    from headrace.pipelines.checkpoints.query_status import query_status

    found = [query_status(each.name, each.checkpoint, each.cluster) for each in _asked(target, connect)]
    output = Output(as_json=as_json)
    if as_json:
        output.document({"queries": [_document(each) for each in found]})
        return
    _show(output, found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    name: str
    checkpoint: Path
    cluster: Cluster


def _asked(target: str, connect: ConnectOptions) -> list[_Asked]:
    path = Path(target).expanduser()
    if path.is_dir():
        return [_Asked(name=path.resolve().name, checkpoint=path, cluster=connect.cluster())]
    if path.is_file() or path.suffix == ".toml":
        return _of_file(path, connect)
    return _of_name(target, connect)


def _of_file(path: Path, connect: ConnectOptions) -> list[_Asked]:
    from headrace.pipelines.checks import cluster_of
    from headrace.pipelines.definitions.definition_file import read_pipelines
    from headrace.pipelines.runner import planned_queries

    if connect.client_settings:
        raise typer.BadParameter("is not for a file: use its key config", param_hint="-X")
    found = read_pipelines(path, bootstrap=connect.bootstrap, config=connect.command_config)
    return [
        _Asked(name=query.name, checkpoint=query.checkpoint, cluster=cluster_of(pipeline))
        for pipeline in found.pipelines
        for query in planned_queries(pipeline)
    ]


def _of_name(name: str, connect: ConnectOptions) -> list[_Asked]:
    """In the default directory; a pipeline with a table and a topic has two checkpoints there."""
    from headrace.pipelines.definitions.definition_keys import default_checkpoints

    folder = default_checkpoints()
    there = sorted(each.name for each in folder.glob("*") if each.is_dir())
    names = [each for each in (name, f"{name}.topic") if each in there]
    if not names:
        known = f"one of those in {folder}: {', '.join(there)}; or " if there else ""
        raise ClientError(
            f"there is no checkpoint, file or pipeline {name!r}",
            next_step=f"give {known}the checkpointLocation of a query",
        )
    cluster = connect.cluster()
    return [_Asked(name=each, checkpoint=folder / each, cluster=cluster) for each in names]


def _show(output: Output, found: Sequence[QueryStatus]) -> None:
    output.table(
        _QUERIES,
        [
            (
                each.name,
                _word(each),
                each.batch,
                iso_time(each.finished_ms, "seconds"),
                each.offsets_read,
                each.lag,
                each.sink_batch,
            )
            for each in found
        ],
    )
    rows: list[tuple[Cell, ...]] = [
        (each.name, topic, str(index), part.offset, part.end, part.lag, state_of(part))
        for each in found
        for part in each.partitions
        for topic, index in (part.place,)
    ]
    output.line("")
    output.table(_PARTITIONS, rows)
    for each in found:
        for loss in dict.fromkeys(part.loss for part in each.partitions if part.loss is not None):
            output.note(f"{each.name}: {loss.what}; {loss.next_step}")
        if each.unfinished is not None:
            output.note(f"{each.name}: batch {each.unfinished} was started and is not finished.")


def _word(status: QueryStatus) -> str:
    if status.batch is None and status.unfinished is None:
        return "not started"
    return {True: "running", False: "stopped", None: "unknown"}[status.running]


def _document(status: QueryStatus) -> dict[str, Any]:
    return {
        "name": status.name,
        "checkpoint": str(status.checkpoint),
        "state": _word(status),
        "batch": status.batch,
        "finished_at": iso_time(status.finished_ms),
        "offsets_read": status.offsets_read,
        "unfinished_batch": status.unfinished,
        "sink_batch": status.sink_batch,
        "lag": status.lag,
        "offsets": [partition_document(each) for each in status.partitions],
    }
