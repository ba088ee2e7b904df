# SPDX-License-Identifier: Apache-2.0
"""`kafka-console-consumer`: prints records, with Apache Kafka's options and formatter.

Without --group nothing is joined or committed (client/tools/reader.py); with it the records are those of one
member of the group (client/parallel).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from headrace.cli.errors import OutputClosed, UsageError
from headrace.cli.kafka_tools.options import (
    ToolParser,
    client_properties,
    cluster_of,
    note_ignored,
    properties_of,
)
from headrace.cli.kafka_tools.record_formatter import DESERIALIZERS, FORMATTER, RecordFormatter
from headrace.cli.kafka_tools.topics import topic_pattern
from headrace.cli.output import Output
from headrace.cli.start_position import Start, find_starts
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.parallel import FatalError, ParallelConsumer, Record
from headrace.client.parallel.signals import stop_on_signals
from headrace.client.tools.admin import Admin
from headrace.client.tools.reader import RecordReader
from headrace.types import TopicPartition

ERROR = None
"""stdout is for records: errors are on stderr."""
_DEFAULT_FORMATTER = "DefaultMessageFormatter"
_USED = ("group.id", "auto.offset.reset", "isolation.level", "bootstrap.servers")
_LOOK_S = 0.05


def run(arguments: Sequence[str]) -> int:
    parser = _parser()
    options = parser.parse_tool(arguments)
    properties = client_properties(options.config, options.consumer_property, "--consumer-property")
    note_ignored(properties.keys() - {*_USED})
    _check(options, parser, properties)
    console = _Console(_formatter(options), options.max_messages, options.timeout_ms)
    group = options.group or properties.get("group.id")
    from_beginning = options.from_beginning or properties.get("auto.offset.reset") == "earliest"
    cluster = cluster_of(options, properties)
    admin = Admin(cluster)
    topics = _topics(admin, options)
    try:
        if group is None:
            console.read_alone(cluster, _starts(admin, topics, options, from_beginning))
        else:
            console.read_in_group(cluster, group, topics, from_beginning=from_beginning)
    finally:
        print(f"Processed a total of {console.count} messages", file=sys.stderr)
    return 0


def _parser() -> ToolParser:
    parser = ToolParser("kafka-console-consumer", "Print the records of a topic.")
    parser.text("--topic", help="The topic to read.")
    parser.text("--include", "--whitelist", metavar="REGEX", help="Read the topics that match.")
    parser.flag(
        "--from-beginning", help="Begin with the oldest record, unless the group has committed offsets."
    )
    parser.text("--group", help="Join this group and commit offsets. Default: no group.")
    parser.number("--max-messages", help="Stop after so many records.")
    parser.number("--timeout-ms", help="Stop when no record came for so long.")
    parser.number("--partition", help="Only this partition.")
    parser.text("--offset", help="With --partition: an offset, earliest or latest (default).")
    parser.repeated(
        "--property",
        "--formatter-property",
        metavar="KEY=VALUE",
        help=f"What is printed: {', '.join(FORMATTER)}; repeatable.",
    )
    parser.text("--formatter-config", metavar="FILE", help="The same, a file.")
    parser.text("--formatter", help=f"Only {_DEFAULT_FORMATTER}.")
    parser.text("--key-deserializer", help=f"Of keys: {', '.join(DESERIALIZERS)}.")
    parser.text("--value-deserializer", help="The same of values.")
    parser.repeated(
        "--consumer-property",
        "--command-property",
        metavar="KEY=VALUE",
        help="Settings of the consumer: group.id, auto.offset.reset, security.protocol …; repeatable.",
    )
    parser.text(
        "--consumer.config", "--command-config", dest="config", metavar="FILE", help="The same, a file."
    )
    parser.text("--isolation-level", help="Only read_committed.")
    parser.flag("--skip-message-on-error", help="Accepted: bytes are printed as they are.")
    return parser


def _check(options: argparse.Namespace, parser: ToolParser, properties: dict[str, str]) -> None:
    if bool(options.topic) == bool(options.include):
        raise UsageError("Exactly one of --include/--topic is required", f"see: {parser.prog} --help")
    if options.partition is not None and (options.group or options.include):
        raise UsageError("--partition needs --topic and cannot be used with --group")
    if options.offset is not None and options.partition is None:
        raise UsageError("The partition is required when offset is specified")
    if options.offset is not None and options.from_beginning:
        raise UsageError("from-beginning and offset options cannot be specified together")
    if options.formatter and options.formatter.rpartition(".")[2] != _DEFAULT_FORMATTER:
        raise UsageError(
            f"--formatter {options.formatter} is not served",
            "read internal topics with: headrace groups events",
        )
    isolation = options.isolation_level or properties.get("isolation.level", "read_committed")
    if isolation != "read_committed":
        raise UsageError(f"isolation level {isolation!r} is not served: committed records are read")


def _formatter(options: argparse.Namespace) -> RecordFormatter:
    given = properties_of(options.formatter_config, options.property, "--property")
    note_ignored(given.keys() - FORMATTER.keys())
    chosen = {"key.deserializer": options.key_deserializer, "value.deserializer": options.value_deserializer}
    return RecordFormatter.from_properties(
        FORMATTER | given | {name: value for name, value in chosen.items() if value}
    )


def _topics(admin: Admin, options: argparse.Namespace) -> list[str]:
    if options.topic:
        if admin.find_topic(options.topic) is None:
            admin.provoke_creation(options.topic)
        return [options.topic]
    pattern = topic_pattern(options.include)
    names = [topic.name for topic in admin.list_topics() if pattern.fullmatch(topic.name)]
    if not names:
        raise ClientError(f"no topic matches {options.include!r}", next_step="list them: kafka-topics --list")
    return names


def _starts(
    admin: Admin, topics: Sequence[str], options: argparse.Namespace, from_beginning: bool
) -> dict[TopicPartition, int]:
    start = _start(options.offset, from_beginning=from_beginning)
    starts = {}
    for topic in topics:
        there = [partition.index for partition in admin.describe_topic(topic).partitions]
        if options.partition is not None and options.partition not in there:
            raise ClientError(f"topic '{topic}' has no partition {options.partition}: it has {len(there)}")
        chosen = there if options.partition is None else [options.partition]
        for index, offset in find_starts(admin, topic, chosen, start).items():
            starts[TopicPartition(topic, index)] = offset
    return starts


def _start(offset: str | None, *, from_beginning: bool) -> Start:
    if offset is None or offset in ("earliest", "latest"):
        return Start(kind="beginning" if from_beginning or offset == "earliest" else "end")
    if not offset.isdecimal():
        raise UsageError(f"--offset {offset!r} is not a number of at least 0, earliest or latest")
    return Start(kind="offset", value=int(offset))


class _Console:
    """Prints records until there were enough of them, or none for too long."""

    def __init__(self, formatter: RecordFormatter, maximum: int | None, timeout_ms: int | None) -> None:
        self._formatter = formatter
        self._maximum = None if maximum is None or maximum < 0 else maximum
        self._patience_s = None if timeout_ms is None or timeout_ms < 0 else timeout_ms / 1000
        self._output = Output()
        self._last = time.monotonic()
        self.count = 0

    def read_alone(self, cluster: Cluster, starts: dict[TopicPartition, int]) -> None:
        reader = RecordReader(cluster, starts, on_pause=self._pause)
        self._last = time.monotonic()
        try:
            self._print_all(islice(reader, self._maximum))
        except _TimedOut:
            pass
        finally:
            reader.close()

    def read_in_group(
        self, cluster: Cluster, group: str, topics: Sequence[str], *, from_beginning: bool
    ) -> None:
        consumer = ParallelConsumer(
            cluster,
            group,
            topics,
            self._handle,
            workers=1,
            order="partition",
            start="earliest" if from_beginning else "latest",
            limit=self._maximum,
        )
        self._last = time.monotonic()
        try:
            with stop_on_signals(consumer.stop) as received, consumer:
                while not consumer.wait(_LOOK_S) and not received and not self._timed_out():
                    pass
        except FatalError as error:
            if isinstance(error.__cause__, OutputClosed):
                raise error.__cause__ from None
            raise ClientError(str(error)) from error
        if received:
            raise KeyboardInterrupt

    def _print_all(self, records: Iterable[Any]) -> None:
        for record in records:
            self._print(record)
        self._output.flush()

    def _handle(self, record: Record) -> None:
        try:
            self._print(record)
            self._output.flush()
        except OutputClosed as gone:
            raise FatalError("the output was closed") from gone

    def _print(self, record: Any) -> None:
        self._last = time.monotonic()
        self.count += 1
        data = self._formatter.format(record)
        if self._output.terminal:
            self._output.line(data.decode(errors="backslashreplace").removesuffix("\n"))
        else:
            self._output.raw(data)

    def _pause(self) -> None:
        self._output.flush()
        if self._timed_out():
            raise _TimedOut

    def _timed_out(self) -> bool:
        return self._patience_s is not None and time.monotonic() - self._last > self._patience_s


class _TimedOut(Exception):
    """No record came for --timeout-ms."""
