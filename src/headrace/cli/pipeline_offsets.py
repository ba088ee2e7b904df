"""`headrace pipeline offsets`: where a query stands beside what its topics hold, and moving it.

Nothing is changed without --execute, and nothing while the query runs. The work is
headrace/pipelines/checkpoint.py's and checkpoint_truth.py's.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.options import BOOTSTRAP, Bootstrap, Json
from headrace.cli.output import Cell, Output
from headrace.client.errors import ClientError
from headrace.client.reset import OffsetChange, Strategy
from headrace.types import TopicPartition

if TYPE_CHECKING:
    from headrace.pipelines.checkpoint import Checkpoint
    from headrace.pipelines.checkpoint_truth import CheckpointTruth, PartitionTruth


def offsets(
    checkpoint: Annotated[
        Path, typer.Argument(metavar="CHECKPOINT", help="The checkpoint folder of a Spark query.")
    ],
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="WHERE",
            help="Move them: earliest, latest, 2026-01-31T12:00:00Z, or a file like "
            '{"orders": {"0": 23}} (-2: earliest, -1: latest).',
        ),
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it, and do not only show it.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Show, explain and move the offsets in the checkpoint of a Spark query.

    Works for every query over format("headrace"). STATE says what became of the place where the query goes
    on: ok, new (a partition it has not seen), aged out, deleted, recreated or cut short. A query must be
    stopped to be moved.

    \b
    Examples:
      headrace pipeline offsets ~/.local/state/headrace/pipelines/store-orders
      headrace pipeline offsets /data/checkpoint --to earliest
      headrace pipeline offsets /data/checkpoint --to offsets.json --execute
    """
    from headrace.pipelines.session import need_pyspark

    need_pyspark()
    from headrace.pipelines.checkpoint import Checkpoint
    from headrace.pipelines.checkpoint_truth import CheckpointTruth

    if execute and to is None:
        raise typer.BadParameter("it needs --to, which says where they go", param_hint="--execute")
    output = Output(as_json=as_json)
    found = Checkpoint(checkpoint)
    truth = CheckpointTruth(found.standing(), bootstrap)
    if to is None:
        _show(output, found, truth.partitions())
        return
    changes = truth.plan(_strategy(to))
    if execute:
        with found.stopped():
            found.move(truth.moved(changes))
    _show_changes(output, found, truth, changes, executed=execute)


def _strategy(to: str) -> Strategy:
    if to == "earliest":
        return Strategy(kind="earliest")
    if to == "latest":
        return Strategy(kind="latest")
    if to.endswith(".json") or Path(to).is_file():
        return Strategy(kind="file", from_file=_file(Path(to)))
    if to.startswith("@") and to[1:].isdecimal():
        return Strategy(kind="time", value=int(to[1:]))
    from headrace.cli.group_reset import parse_moment_ms

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
            f"{path} holds no offsets", next_step='write {"orders": {"0": 23, "1": 0}} into it'
        ) from None


def _show(output: Output, checkpoint: Checkpoint, partitions: Sequence[PartitionTruth]) -> None:
    if output.as_json:
        output.document(
            {
                "checkpoint": str(checkpoint.folder),
                "batch": checkpoint.last,
                "finished": checkpoint.finished,
                "offsets": [_document(each) for each in partitions],
            }
        )
        return
    rows: list[tuple[Cell, ...]] = [
        (
            each.place.topic,
            str(each.place.partition),
            each.offset,
            each.first,
            each.end,
            each.lag,
            _state(each),
            each.epoch,
            each.topic_id,
        )
        for each in partitions
    ]
    output.table(("TOPIC", "PARTITION", "OFFSET", "FIRST", "END", "LAG", "STATE", "EPOCH", "TOPIC ID"), rows)
    for loss in dict.fromkeys(each.loss for each in partitions if each.loss is not None):
        output.note(f"{loss.what}; {loss.next_step}, or move the offsets: --to earliest")
    if not checkpoint.finished:
        output.note(f"Batch {checkpoint.last} was begun and not finished: the query runs it again first.")


def _show_changes(
    output: Output,
    checkpoint: Checkpoint,
    truth: CheckpointTruth,
    changes: Sequence[OffsetChange],
    *,
    executed: bool,
) -> None:
    if output.as_json:
        from headrace.cli.group_reset import change_document

        moves = [change_document(change) for change in changes]
        output.document({"checkpoint": str(checkpoint.folder), "executed": executed, "offsets": moves})
        return
    rows = [(each.partition.topic, str(each.partition.partition), each.old, each.new) for each in changes]
    output.table(("TOPIC", "PARTITION", "OLD", "NEW"), rows)
    for change in changes:
        if change.moved_to_the_log:
            output.note(
                f"{change.partition}: offset {change.wanted} is not in the log, the nearest is {change.new}"
            )
    for topic in sorted({each.place.topic for each in truth.partitions() if each.end is None}):
        output.note(f"topic '{topic}' was deleted: it will no longer be in the checkpoint")
    for note in _warnings(checkpoint):
        output.note(note)
    if executed:
        output.note("The offsets are moved: the query begins there when it is started next.")
    else:
        output.note("Nothing was changed: this was a dry run. Add --execute to do it.")


def _warnings(checkpoint: Checkpoint) -> list[str]:
    found = []
    if (checkpoint.folder / "state").is_dir():
        found.append("The query keeps state: records that it reads again are counted again.")
    if not checkpoint.finished:
        found.append(
            f"Batch {checkpoint.last} was begun and not finished: what of it reached the sink stays there, "
            "and the rest is only written if it is read again."
        )
    return found


def _state(each: PartitionTruth) -> str:
    if each.loss is not None:
        return str(each.loss.kind)
    return "new" if each.offset is None else "ok"


def _document(each: PartitionTruth) -> dict[str, Any]:
    return {
        "topic": each.place.topic,
        "partition": each.place.partition,
        "offset": each.offset,
        "epoch": each.epoch,
        "topic_id": each.topic_id,
        "first": each.first,
        "end": each.end,
        "lag": each.lag,
        "state": _state(each),
        "explanation": None if each.loss is None else each.loss.what,
    }
