# SPDX-License-Identifier: Apache-2.0
"""`headrace consume`: prints the records of one or more topics, from any Kafka.

Starting offsets are in start_position.py, fetching in client/tools/reader.py, formatting in
record_printer.py. With a group: consume_options.py, consume_group.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.option_sets import takes_options
from headrace.cli.options import ConnectOptions, Json
from headrace.cli.output import Output, quoted
from headrace.cli.progress import ProgressBar
from headrace.cli.records.consume_options import Group, GroupArguments, check_group
from headrace.cli.start_position import FORMS, find_starts, parse_start, plain_word
from headrace.client.cluster import Cluster
from headrace.types import TopicPartition

if TYPE_CHECKING:
    from headrace.cli.records.record_printer import RecordPrinter
    from headrace.client.tools.admin import TopicDescription

FORMATS = ("text", "json", "hex")
_ALL = 1 << 63


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Options for reading and printing."""

    names: Annotated[
        list[str], typer.Argument(metavar="TOPIC…", help="Topics to read, separated by spaces or commas.")
    ]
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="WHERE",
            help=f"{FORMS}.",
        ),
    ] = "beginning"
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", min=0, help="Only this partition of each topic; repeatable."),
    ] = None
    maximum: Annotated[
        int | None, typer.Option("--max", "-n", min=1, help="Stop after this many records.")
    ] = None
    form: Annotated[
        str, typer.Option("--format", metavar="text|json|hex", help="Format of keys and values.")
    ] = "text"
    follow: Annotated[
        bool, typer.Option("--follow/--exit-at-end", help="Wait for new records, or stop at the current end.")
    ] = True
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Also print partition, offset, timestamp, key and headers."),
    ] = False

    @property
    def topics(self) -> list[str]:
        """Each topic once, in the order in which they were named."""
        return list(dict.fromkeys(name for text in self.names for name in text.split(",") if name))

    def check(self) -> None:
        if not self.topics:
            raise typer.BadParameter("name at least one topic", param_hint="TOPIC")
        if self.form not in FORMATS:
            raise typer.BadParameter(
                f"{self.form!r} is not one of {', '.join(FORMATS)}", param_hint="--format"
            )


@takes_options
def consume(
    *,
    read: ReadOptions,
    group: Group = None,
    arguments: GroupArguments,
    connect: ConnectOptions,
    as_json: Json = False,
) -> None:
    """Read the records of topics. Without --group, no group is joined and no offset is committed.

    In a pipe, text is the value's own bytes and a line end; with -v it is tab-separated columns: partition,
    offset, timestamp, key, headers, value. With several topics, the topic comes before the partition; with
    several members, the member's name comes first. There is no order between partitions or topics.

    With --group, --from (beginning or end) applies only without committed offsets. Ctrl-C finishes
    the records in progress, commits them and leaves the group.

    \b
    Examples:
      headrace consume orders
      headrace consume orders --from -5 --exit-at-end -v
      headrace consume orders --partition 0 --from 1200 --max 10 --format json
      headrace consume orders --from 15m | grep refund
      headrace consume orders payments -v
      headrace consume orders,payments --group billing --consumers 3
      headrace consume orders --group mail --workers 8 --order key \\
                       --exec './send-mail "$HEADRACE_KEY"' --retries 3 --dead-letter orders-dlq
    """
    from headrace.cli.records.record_printer import RecordPrinter

    read.check()
    output = Output(as_json=as_json)
    form = "json" if as_json else read.form
    printer = RecordPrinter(output, form, verbose=read.verbose, several_topics=len(read.topics) > 1)
    if group is None:
        arguments.refuse_all()
        _consume_alone(connect.cluster(), read, output, printer)
        return
    start = plain_word(read.start)
    check_group(group, start, read.partition)
    from headrace.cli.records.consume_group import consume_group

    options = arguments.complete(group, from_end=start == "end", maximum=read.maximum, follow=read.follow)
    consume_group(connect.cluster(), read.topics, options, output, printer)


def _consume_alone(cluster: Cluster, read: ReadOptions, output: Output, printer: RecordPrinter) -> None:
    from headrace.client.tools.admin import Admin
    from headrace.client.tools.reader import RecordReader

    position = parse_start(read.start, int(time.time() * 1000))
    admin = Admin(cluster)
    partitions = {topic: _chosen(admin.describe_topic(topic), read.partition) for topic in read.topics}
    stops = None if read.follow else _offsets(partitions, partial(admin.offsets, spec="latest"))
    starts = _offsets(partitions, partial(find_starts, admin, start=position))
    trouble = _Trouble(output)
    reader = RecordReader(cluster, starts, stops, on_trouble=trouble, on_pause=output.flush)
    total = read.maximum if stops is None else min(read.maximum or _ALL, _records_between(starts, stops))
    try:
        with ProgressBar("reading", total, show=not output.terminal and total is not None) as bar:
            for record in islice(reader, read.maximum):
                printer.print(record)
                trouble.over()
                bar.advance()
    finally:
        reader.close()
        if output.terminal:
            many = "" if printer.count == 1 else "s"
            output.note(f"Read {printer.count:,} record{many} of {quoted(read.topics)}.")


def _records_between(starts: Mapping[TopicPartition, int], stops: Mapping[TopicPartition, int]) -> int:
    """At most so many: compaction and aborted transactions leave gaps."""
    return sum(stops[where] - starts[where] for where in starts)


def _offsets(
    partitions: Mapping[str, list[int]], find: Callable[[str, list[int]], dict[int, int]]
) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, index): offset
        for topic, indexes in partitions.items()
        for index, offset in find(topic, indexes).items()
    }


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
    """Reports a lost connection once, not at every retry."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._reported = False

    def __call__(self, text: str) -> None:
        if not self._reported:
            self._reported = True
            self._output.note(f"connection lost, retrying ({text})")

    def over(self) -> None:
        self._reported = False
