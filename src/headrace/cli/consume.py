"""`headrace consume`: records of a topic on the screen or into a pipe, from any Kafka, without a group.

Where to begin is start_position.py; reading is client/reader.py; how a record looks is record_printer.py.
"""

from __future__ import annotations

import time
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options import BOOTSTRAP, Bootstrap, Json
from headrace.cli.output import Output

if TYPE_CHECKING:
    from headrace.client.admin import TopicDescription

FORMATS = ("text", "json", "hex")


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="What to read.")],
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="beginning, end, an offset, -10 (the last ten of each partition), 15m (ago), "
            "2026-01-31T12:00:00Z, or @MILLISECONDS.",
        ),
    ] = "beginning",
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this one; may be repeated.")
    ] = None,
    maximum: Annotated[int | None, typer.Option("--max", "-n", min=1, help="Stop after so many.")] = None,
    form: Annotated[
        str, typer.Option("--format", metavar="text|json|hex", help="How keys and values are printed.")
    ] = "text",
    follow: Annotated[
        bool, typer.Option("--follow/--exit-at-end", help="Wait for new records, or stop at the present end.")
    ] = True,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also partition, offset, timestamp, key and headers.")
    ] = False,
    bootstrap: Bootstrap = BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Read a topic's records. No group is joined and no offset is committed.

    In a pipe, text is the value's own bytes and a line end; with -v it is tab-separated columns: partition,
    offset, timestamp, key, headers, value.

    \b
    Examples:
      headrace consume orders
      headrace consume orders --from -5 --exit-at-end -v
      headrace consume orders --partition 0 --from 1200 --max 10 --format json
      headrace consume orders --from 15m | grep refund
    """
    if form not in FORMATS:
        raise typer.BadParameter(f"{form!r} is none of {', '.join(FORMATS)}", param_hint="--format")

    from headrace.cli.record_printer import RecordPrinter
    from headrace.cli.start_position import find_starts, parse_start
    from headrace.client.admin import Admin
    from headrace.client.reader import RecordReader

    position = parse_start(start, int(time.time() * 1000))
    output = Output(as_json=as_json)
    admin = Admin(bootstrap)
    partitions = _chosen(admin.describe_topic(topic), partition)
    stops = None if follow else admin.offsets(topic, partitions, "latest")
    starts = find_starts(admin, topic, partitions, position)
    printer = RecordPrinter(output, topic, "json" if as_json else form, verbose=verbose)
    trouble = _Trouble(output)
    reader = RecordReader(bootstrap, topic, starts, stops, on_trouble=trouble, on_pause=output.flush)
    try:
        for record in islice(reader, maximum):
            printer.print(record)
            trouble.over()
    finally:
        reader.close()
        if output.terminal:
            output.note(f"Read {printer.count:,} record{'' if printer.count == 1 else 's'} of '{topic}'.")


def _chosen(topic: TopicDescription, wanted: list[int] | None) -> list[int]:
    from headrace.client.errors import ClientError

    there = [partition.index for partition in topic.partitions]
    for index in wanted or ():
        if index not in there:
            raise ClientError(
                f"topic {topic.name!r} has no partition {index}: it has {len(there)}, "
                f"numbered 0 to {len(there) - 1}"
            )
    return sorted(set(wanted)) if wanted else there


class _Trouble:
    """Says once that the connection is lost, not at every attempt to get it back."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._told = False

    def __call__(self, text: str) -> None:
        if not self._told:
            self._told = True
            self._output.note(f"the connection is lost, trying on ({text})")

    def over(self) -> None:
        self._told = False
