"""`headrace consume`: records of a topic on the screen or into a pipe, from any Kafka.

Where to begin is start_position.py; reading is client/reader.py; how a record looks is record_printer.py.
With a group: consume_options.py, consume_group.py.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.consume_options import GivenGroupOptions, Group, check_group
from headrace.cli.option_sets import takes_options
from headrace.cli.options import BOOTSTRAP, Bootstrap, Json
from headrace.cli.output import Output

if TYPE_CHECKING:
    from headrace.cli.record_printer import RecordPrinter
    from headrace.client.admin import TopicDescription

FORMATS = ("text", "json", "hex")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Where to read, how far, and how it is shown."""

    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="What to read.")]
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="beginning, end, an offset, -10 (the last ten of each partition), 15m (ago), "
            "2026-01-31T12:00:00Z, or @MILLISECONDS.",
        ),
    ] = "beginning"
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this one; may be repeated.")
    ] = None
    maximum: Annotated[int | None, typer.Option("--max", "-n", min=1, help="Stop after so many.")] = None
    form: Annotated[
        str, typer.Option("--format", metavar="text|json|hex", help="How keys and values are printed.")
    ] = "text"
    follow: Annotated[
        bool, typer.Option("--follow/--exit-at-end", help="Wait for new records, or stop at the present end.")
    ] = True
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also partition, offset, timestamp, key and headers.")
    ] = False

    def check(self) -> None:
        if self.form not in FORMATS:
            raise typer.BadParameter(f"{self.form!r} is none of {', '.join(FORMATS)}", param_hint="--format")


@takes_options
def consume(
    *,
    read: ReadOptions,
    group: Group = None,
    given: GivenGroupOptions,
    bootstrap: Bootstrap = BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Read a topic's records. Without --group, no group is joined and no offset is committed.

    In a pipe, text is the value's own bytes and a line end; with -v it is tab-separated columns: partition,
    offset, timestamp, key, headers, value. Several members put their name in front.

    With --group, --from (beginning or end) counts only while the group has committed nothing. Ctrl-C lets
    finish what is being handled, commits it and leaves the group.

    \b
    Examples:
      headrace consume orders
      headrace consume orders --from -5 --exit-at-end -v
      headrace consume orders --partition 0 --from 1200 --max 10 --format json
      headrace consume orders --from 15m | grep refund
      headrace consume orders --group billing --consumers 3
      headrace consume orders --group mail --workers 8 --order key \\
                       --exec './send-mail "$HEADRACE_KEY"' --retries 3 --dead-letter orders-dlq
    """
    from headrace.cli.record_printer import RecordPrinter

    read.check()
    output = Output(as_json=as_json)
    form = "json" if as_json else read.form
    printer = RecordPrinter(output, read.topic, form, verbose=read.verbose)
    if group is None:
        given.refuse_all()
        _consume_alone(bootstrap, read, output, printer)
        return
    check_group(group, read.start, read.partition)
    from headrace.cli.consume_group import consume_group

    options = given.complete(
        group, from_end=read.start == "end", maximum=read.maximum, follow=read.follow
    )
    consume_group(bootstrap, read.topic, options, output, printer)


def _consume_alone(bootstrap: str, read: ReadOptions, output: Output, printer: RecordPrinter) -> None:
    from headrace.cli.start_position import find_starts, parse_start
    from headrace.client.admin import Admin
    from headrace.client.reader import RecordReader

    position = parse_start(read.start, int(time.time() * 1000))
    admin = Admin(bootstrap)
    partitions = _chosen(admin.describe_topic(read.topic), read.partition)
    stops = None if read.follow else admin.offsets(read.topic, partitions, "latest")
    starts = find_starts(admin, read.topic, partitions, position)
    trouble = _Trouble(output)
    reader = RecordReader(bootstrap, read.topic, starts, stops, on_trouble=trouble, on_pause=output.flush)
    try:
        for record in islice(reader, read.maximum):
            printer.print(record)
            trouble.over()
    finally:
        reader.close()
        if output.terminal:
            many = "" if printer.count == 1 else "s"
            output.note(f"Read {printer.count:,} record{many} of '{read.topic}'.")


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
