# SPDX-License-Identifier: Apache-2.0
"""`headrace pipeline checkpoint`: a query's checkpoint beside its sink, and its repair from there.

Nothing is changed without --execute, nor while the query runs. Read next:
pipelines/checkpoints/checkpoint_repair.py, pipelines/checkpoints/sinks.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.option_sets import takes_options
from headrace.cli.options import ConnectOptions, Json
from headrace.cli.output import Cell, Output
from headrace.cli.pipeline.options import StorageConfig, StorageOption, parse_storage
from headrace.client.errors import ClientError

if TYPE_CHECKING:
    from headrace.pipelines.checkpoints.checkpoint import Checkpoint
    from headrace.pipelines.checkpoints.checkpoint_repair import Comparison
    from headrace.pipelines.checkpoints.sinks import Sink
    from pyspark_headrace.replays import BatchIdentity


@takes_options
def checkpoint(
    *,
    folder: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="Checkpoint of a Spark query.")],
    table: Annotated[
        str | None,
        typer.Option(
            "--table", metavar="PATH", help="Delta table that is the sink.  [default: a topic sink]"
        ),
    ] = None,
    storage: StorageOption = None,
    storage_config: StorageConfig = None,
    sink: Annotated[
        str | None,
        typer.Option(
            "--sink",
            metavar="SINK_ID",
            help="The query's option sinkId, or txnAppId for a table.  [default: the id of the query]",
        ),
    ] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Rebuild the end of the checkpoint from what the sink recorded.")
    ] = False,
    execute: Annotated[
        bool, typer.Option("--execute", help="Apply the repair; otherwise it is only shown.")
    ] = False,
    connect: ConnectOptions,
    as_json: Json = False,
) -> None:
    """Show the checkpoint of a Spark query beside its sink, and repair it from there.

    For sinks of format("headrace") and format("headrace_delta"). After an older checkpoint was restored, the
    sink is further than the checkpoint and refuses the query; --repair makes the query go on exactly behind
    the last batch of the sink. What is replaced is kept in a folder of the checkpoint.

    \b
    Examples:
      headrace pipeline checkpoint /data/checkpoints/copy-orders
      headrace pipeline checkpoint /data/checkpoints/store-orders --table /data/orders
      headrace pipeline checkpoint /data/checkpoints/store-orders --table /data/orders --repair --execute
      headrace pipeline checkpoint /data/orders-checkpoint --table s3://lake/orders --storage-config s3.conf
    """
    from headrace.pipelines.spark_session.session import need_pyspark

    need_pyspark()
    from headrace.pipelines.checkpoints.checkpoint import Checkpoint
    from headrace.pipelines.checkpoints.checkpoint_repair import check_repairable, compare
    from headrace.pipelines.checkpoints.sinks import TableSink, TopicSink
    from headrace.pipelines.delta.storage_options import storage_options, table_place
    from headrace.pipelines.delta.table import local_path

    if execute and not repair:
        raise typer.BadParameter("needs --repair", param_hint="--execute")
    options = storage_options(parse_storage(storage), storage_config)
    found = Checkpoint(local_path(folder))
    query = found.query_id()
    chosen: Sink = TopicSink(cluster=connect.cluster(), query=query, sink_id=sink)
    if table is not None:
        chosen = TableSink(path=table_place(table, options), app_id=sink)
    last = chosen.last(query)
    comparison = compare(found, chosen.name, last)
    if repair and comparison.state not in ("in step", "repeats"):
        last = check_repairable(found, chosen.name, last)
    backup = _execute(found, chosen, query) if execute and comparison.needs_repair else None
    output = Output(as_json=as_json)
    _show(output, found, chosen, last, comparison, backup)
    following = _next(comparison, repair=repair, backup=backup)
    if following and not as_json:
        output.note(following)


def _execute(shown: Checkpoint, sink: Sink, query: str) -> Path | None:
    """Compares again once nobody else can change either side."""
    from headrace.pipelines.checkpoints.checkpoint import Checkpoint
    from headrace.pipelines.checkpoints.checkpoint_repair import check_repairable, compare, repair

    with shown.stopped():
        sink.settle()
        found, last = Checkpoint(shown.folder), sink.last(query)
        if not compare(found, sink.name, last).needs_repair:
            raise ClientError(
                "the sink or the checkpoint changed meanwhile, and there is nothing to repair any more",
                next_step="look at both again, without --repair",
            )
        return repair(found, check_repairable(found, sink.name, last))


def _show(
    output: Output,
    found: Checkpoint,
    sink: Sink,
    last: BatchIdentity | None,
    comparison: Comparison,
    backup: Path | None,
) -> None:
    number = None if last is None else last.number
    if output.as_json:
        output.document(
            {
                "checkpoint": str(found.folder),
                "query": found.query_id(),
                "sink": sink.name,
                "batch": found.last,
                "finished": found.finished,
                "sink_batch": number,
                "state": comparison.state,
                "explanation": comparison.explanation,
                "offsets": [
                    {
                        "source": each.source,
                        "topic": each.place.topic,
                        "partition": each.place.partition,
                        "checkpoint": each.checkpoint,
                        "sink": each.sink,
                    }
                    for each in comparison.partitions
                ],
                "repaired": backup is not None,
                "backup": None if backup is None else str(backup),
            }
        )
        return
    finished = "finished" if found.finished else "begun, not finished"
    output.line(f"Checkpoint: batch {found.last}, {finished}")
    output.line(f"Sink: {sink.name}, " + ("no batch of this query" if number is None else f"batch {number}"))
    rows: list[tuple[Cell, ...]] = [
        (
            str(each.source),
            each.place.topic,
            str(each.place.partition),
            each.checkpoint,
            each.sink,
            None if each.checkpoint is None or each.sink is None else each.sink - each.checkpoint,
        )
        for each in comparison.partitions
    ]
    output.table(("SOURCE", "TOPIC", "PARTITION", "CHECKPOINT", "SINK", "DIFFERENCE"), rows)
    output.note(f"{comparison.explanation[0].upper()}{comparison.explanation[1:]}.")


def _next(comparison: Comparison, *, repair: bool, backup: Path | None) -> str | None:
    if backup is not None:
        return (
            "Repaired: the query goes on behind the sink's last batch when it is started next. What was "
            f"replaced is in {backup}."
        )
    if not comparison.needs_repair:
        return "There is nothing to repair." if repair else None
    if repair:
        return "Nothing was changed: this was a dry run. Add --execute to apply it."
    return "Add --repair to let the query go on behind the sink's last batch."
