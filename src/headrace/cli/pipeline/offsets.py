# SPDX-License-Identifier: Apache-2.0
"""`headrace pipeline offsets`: shows and changes the offsets in a query's checkpoint.

Nothing is changed without --execute, nor while the query runs. Read next:
pipelines/checkpoints/checkpoint.py, pipelines/checkpoints/checkpoint_status.py.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.option_sets import takes_options
from headrace.cli.options import ConnectOptions, Json
from headrace.cli.output import Cell, Output
from headrace.client.errors import ClientError
from headrace.client.tools.reset import OffsetChange, Strategy
from headrace.types import TopicPartition

if TYPE_CHECKING:
    from headrace.pipelines.checkpoints.checkpoint import Checkpoint
    from headrace.pipelines.checkpoints.checkpoint_status import CheckpointStatus, PartitionStatus


@takes_options
def offsets(
    *,
    checkpoint: Annotated[
        Path, typer.Argument(metavar="CHECKPOINT", help="Checkpoint directory of a Spark query.")
    ],
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="WHERE",
            help="New offsets: earliest, latest, 2026-01-31T12:00:00Z, or a file like "
            '{"orders": {"0": 23}} (-2: earliest, -1: latest).',
        ),
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Apply the change; otherwise it is only shown.")
    ] = False,
    connect: ConnectOptions,
    as_json: Json = False,
) -> None:
    """Show and change the offsets in the checkpoint of a Spark query.

    Works for every query over format("headrace"). STATE compares the checkpoint with the topic: ok, new (a
    partition not read yet), aged out (removed by retention), deleted, recreated or cut short (truncated).
    Offsets can only be changed while the query is stopped.

    \b
    Examples:
      headrace pipeline offsets ~/.local/state/headrace/pipelines/store-orders
      headrace pipeline offsets /data/checkpoint --to earliest
      headrace pipeline offsets /data/checkpoint --to offsets.json --execute
    """
    from headrace.pipelines.spark_session.session import need_pyspark

    need_pyspark()
    from headrace.pipelines.checkpoints.checkpoint import Checkpoint
    from headrace.pipelines.checkpoints.checkpoint_status import CheckpointStatus

    if execute and to is None:
        raise typer.BadParameter("needs --to with the new offsets", param_hint="--execute")
    output = Output(as_json=as_json)
    found = Checkpoint(checkpoint)
    status = CheckpointStatus(found.current_offsets(), connect.cluster())
    if to is None:
        _show(output, found, status.partitions())
        return
    changes = status.plan(_strategy(to))
    if execute:
        with found.stopped():
            found.move(status.moved(changes))
    _show_changes(output, found, status, changes, executed=execute)


def _strategy(to: str) -> Strategy:
    if to == "earliest":
        return Strategy(kind="earliest")
    if to == "latest":
        return Strategy(kind="latest")
    if to.endswith(".json") or Path(to).is_file():
        return Strategy(kind="file", from_file=_file(Path(to)))
    if to.startswith("@") and to[1:].isdecimal():
        return Strategy(kind="time", value=int(to[1:]))
    from headrace.cli.durations import parse_moment_ms

    return Strategy(kind="time", value=parse_moment_ms(to, "--to"))


def _file(path: Path) -> dict[TopicPartition, int]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, partitions in document.items()
            for partition, offset in partitions.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise ClientError(
            f"{path} has no offsets", next_step='write {"orders": {"0": 23, "1": 0}} into it'
        ) from None


def _show(output: Output, checkpoint: Checkpoint, partitions: Sequence[PartitionStatus]) -> None:
    if output.as_json:
        output.document(
            {
                "checkpoint": str(checkpoint.folder),
                "batch": checkpoint.last,
                "finished": checkpoint.finished,
                "offsets": [partition_document(each) for each in partitions],
            }
        )
        return
    place: tuple[str, ...] = ("PARTITION",) if output.terminal else ("TOPIC", "PARTITION")
    rows: list[tuple[Cell, ...]] = [
        (
            *((f"{topic}#{index}",) if output.terminal else (topic, str(index))),
            each.offset,
            each.first,
            each.end,
            each.lag,
            state_of(each),
            each.epoch,
            each.topic_id,
        )
        for each in partitions
        for topic, index in (each.place,)
    ]
    output.table((*place, "OFFSET", "FIRST", "END", "LAG", "STATE", "EPOCH", "TOPIC ID"), rows)
    for loss in dict.fromkeys(each.loss for each in partitions if each.loss is not None):
        output.note(f"{loss.what}; {loss.next_step}, or change the offsets: --to earliest")
    if not checkpoint.finished:
        output.note(f"Batch {checkpoint.last} was started and not finished: the query runs it again first.")


def _show_changes(
    output: Output,
    checkpoint: Checkpoint,
    status: CheckpointStatus,
    changes: Sequence[OffsetChange],
    *,
    executed: bool,
) -> None:
    if output.as_json:
        from headrace.cli.groups.reset import change_document

        moves = [change_document(change) for change in changes]
        output.document({"checkpoint": str(checkpoint.folder), "executed": executed, "offsets": moves})
        return
    rows = [(each.partition.topic, str(each.partition.partition), each.old, each.new) for each in changes]
    output.table(("TOPIC", "PARTITION", "OLD", "NEW"), rows)
    for change in changes:
        if change.moved_to_the_log:
            output.note(f"{change.partition}: offset {change.wanted} is not in the log, using {change.new}")
    for topic in sorted({each.place.topic for each in status.partitions() if each.end is None}):
        output.note(f"topic '{topic}' was deleted: it is removed from the checkpoint")
    for note in _warnings(checkpoint):
        output.note(note)
    if executed:
        output.note("The offsets were changed: the query continues there when it is started next.")
    else:
        output.note("Nothing was changed: this was a dry run. Add --execute to apply it.")


def _warnings(checkpoint: Checkpoint) -> list[str]:
    found = []
    if (checkpoint.folder / "state").is_dir():
        found.append("The query is stateful: records that are read again are counted again.")
    if not checkpoint.finished:
        found.append(
            f"Batch {checkpoint.last} was started and not finished: rows that reached the sink stay there, "
            "and the others are only written if they are read again."
        )
    return found


def state_of(each: PartitionStatus) -> str:
    """How the offset in the checkpoint fits the topic, in a word."""
    if each.loss is not None:
        return str(each.loss.kind)
    return "new" if each.offset is None else "ok"


def partition_document(each: PartitionStatus) -> dict[str, Any]:
    return {
        "topic": each.place.topic,
        "partition": each.place.partition,
        "offset": each.offset,
        "epoch": each.epoch,
        "topic_id": each.topic_id,
        "first": each.first,
        "end": each.end,
        "lag": each.lag,
        "state": state_of(each),
        "explanation": None if each.loss is None else each.loss.what,
    }
