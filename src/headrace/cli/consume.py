"""`headrace consume`: records of a topic on the screen or into a pipe, from any Kafka.

Where to begin is start_position.py; reading is client/reader.py; how a record looks is record_printer.py.
With a group: consume_options.py, consume_group.py.
"""

from __future__ import annotations

import time
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.consume_options import (
    Command,
    CommitEvery,
    Consumers,
    DeadLetter,
    GivenGroupOptions,
    Group,
    OrderName,
    ProtocolName,
    Retries,
    WorkerCount,
    check_group,
)
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
    group: Group = None,
    consumers: Consumers = None,
    workers: WorkerCount = None,
    order: OrderName = None,
    command: Command = None,
    retries: Retries = None,
    dead_letter: DeadLetter = None,
    commit_every: CommitEvery = None,
    protocol: ProtocolName = None,
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
    if form not in FORMATS:
        raise typer.BadParameter(f"{form!r} is none of {', '.join(FORMATS)}", param_hint="--format")
    given = GivenGroupOptions(
        consumers=consumers,
        workers=workers,
        order=order,
        command=command,
        retries=retries,
        dead_letter=dead_letter,
        commit_every_ms=commit_every,
        protocol=protocol,
    )
    output = Output(as_json=as_json)
    form = "json" if as_json else form
    if group is None:
        given.refuse_all()
        _consume_alone(
            bootstrap, topic, start, partition, maximum, output, form, follow=follow, verbose=verbose
        )
        return
    check_group(group, start, partition)
    from headrace.cli.consume_group import consume_group
    from headrace.cli.record_printer import RecordPrinter

    options = given.complete(group, from_end=start == "end", maximum=maximum, follow=follow)
    consume_group(bootstrap, topic, options, output, RecordPrinter(output, topic, form, verbose=verbose))


def _consume_alone(
    bootstrap: str,
    topic: str,
    start: str,
    partition: list[int] | None,
    maximum: int | None,
    output: Output,
    form: str,
    *,
    follow: bool,
    verbose: bool,
) -> None:
    from headrace.cli.record_printer import RecordPrinter
    from headrace.cli.start_position import find_starts, parse_start
    from headrace.client.admin import Admin
    from headrace.client.reader import RecordReader

    position = parse_start(start, int(time.time() * 1000))
    admin = Admin(bootstrap)
    partitions = _chosen(admin.describe_topic(topic), partition)
    stops = None if follow else admin.offsets(topic, partitions, "latest")
    starts = find_starts(admin, topic, partitions, position)
    printer = RecordPrinter(output, topic, form, verbose=verbose)
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
