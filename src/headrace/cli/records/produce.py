# SPDX-License-Identifier: Apache-2.0
"""`headrace produce`: sends lines of a file or stdin as records to a topic, on any Kafka.

Lines are parsed in record_lines.py, sent by client/tools/producer.py, reported by deliveries.py.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Protocol

import typer

from headrace.cli.input import open_input
from headrace.cli.option_sets import takes_options
from headrace.cli.options import ConnectOptions, Json
from headrace.cli.output import Output
from headrace.cli.progress import ProgressBar
from headrace.client.cluster import Cluster

if TYPE_CHECKING:
    from headrace.cli.records.record_lines import LineParser
    from headrace.client.partitioning.partitioners import Partitioner
    from headrace.client.tools.admin import Admin, TopicDescription
    from headrace.client.tools.producer import Delivery, OutgoingRecord, RecordProducer

MAX_LINE_BYTES = 64 << 20
_FLUSH_AFTER_INTERRUPT_MS = 3_000


class Parser(Protocol):
    def parse(self, line: bytes) -> OutgoingRecord:
        """Raises ClientError without the line number."""


class Reports(Protocol):
    """Receives what became of the records; `add` is called from another thread."""

    def topic_created(self, partitions: int) -> None: ...

    def add(self, delivery: Delivery) -> None: ...

    def finish(self, unknown: int) -> None:
        """`unknown` records had no report in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceOptions:
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic to write to.")]
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Input file. Default or -: stdin.")] = None
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help="Separator between key and value in a line.")
    ] = None
    key: Annotated[str | None, typer.Option("--key", "-k", help="Key of every record.")] = None
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Partition of every record.")
    ] = None
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="Header of every record; repeatable."),
    ] = None
    json_lines: Annotated[
        bool,
        typer.Option(
            "--json-lines",
            help='Each line is {"key", "value", "headers", "partition", "timestamp"}, all optional; '
            "the timestamp in ISO 8601 or milliseconds.",
        ),
    ] = False
    rate: Annotated[float | None, typer.Option("--rate", min=0.001, help="Maximum records per second.")] = (
        None
    )
    acks: Annotated[
        str,
        typer.Option(
            "--acks",
            metavar="0|1|all",
            help="Acknowledgement: none, the leader, or all in-sync replicas (by default flushed to disk).",
        ),
    ] = "all"
    partitioner: Annotated[
        str | None,
        typer.Option(
            "--partitioner",
            metavar="hash|sticky|range",
            help="Partition by the key's hash, round robin, or by the topic's key ranges. "
            "Default: range when the topic has ranges, else hash.",
        ),
    ] = None
    compression: Annotated[
        str,
        typer.Option(
            "--compression", "-z", metavar="none|gzip|snappy|lz4|zstd", help="Compression codec of batches."
        ),
    ] = "none"
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, help="Delivery timeout in seconds.")] = 30
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print partition, offset and key of each record.")
    ] = False
    as_json: Json = False

    def check(self) -> None:
        _check_choice(self.acks, ("0", "1", "all"), "--acks")
        _check_choice(self.compression, ("none", "gzip", "snappy", "lz4", "zstd"), "--compression")
        _check_choice(self.partitioner, (None, "hash", "sticky", "range"), "--partitioner")


@takes_options
def produce(options: ProduceOptions, connect: ConnectOptions) -> None:
    """Send records to a topic, one per line. A missing topic is created if the broker does that.

    \b
    Examples:
      echo hello | headrace produce greetings
      headrace produce people --key-separator : --partitioner range -v
      headrace produce orders --file orders.jsonl --json-lines --acks all --compression zstd
      headrace consume orders --json --exit-at-end | headrace produce copy --json-lines
    """
    options.check()
    parser = _line_parser(options)

    from headrace.cli.records.deliveries import Deliveries

    deliveries = Deliveries(Output(as_json=options.as_json), options.topic, verbose=options.verbose)
    send_lines(connect.cluster(), options, parser, deliveries)
    if deliveries.failed:
        raise typer.Exit(1)


def send_lines(cluster: Cluster, options: ProduceOptions, parser: Parser, deliveries: Reports) -> None:
    """Send the lines of the input; `deliveries` receives what became of each record."""
    from headrace.client.tools.admin import Admin

    with open_input(options.file) as lines:
        admin = Admin(cluster)
        description = admin.find_topic(options.topic)
        if description is None:
            description = admin.provoke_creation(options.topic)
            deliveries.topic_created(len(description.partitions))
        producer = _producer(cluster, options, admin, description, deliveries)
        try:
            _send_all(producer, parser, _progress(lines, show=not options.verbose), _Pace(options.rate))
        except KeyboardInterrupt:
            deliveries.finish(producer.close(_FLUSH_AFTER_INTERRUPT_MS))
            raise
        except BaseException:
            deliveries.finish(producer.close())
            raise
    deliveries.finish(producer.close())


def _producer(
    cluster: Cluster, options: ProduceOptions, admin: Admin, topic: TopicDescription, deliveries: Reports
) -> RecordProducer:
    from headrace.client.tools.producer import RecordProducer

    return RecordProducer(
        cluster,
        options.topic,
        partitions=len(topic.partitions),
        acks=options.acks,  # type: ignore[arg-type]  # checked before
        compression=options.compression,  # type: ignore[arg-type]
        partitioner=_partitioner(options.partitioner, cluster, admin, topic),
        max_message_bytes=_largest_message(admin, options.topic),
        delivery_timeout_ms=int(options.timeout * 1000),
        on_delivery=deliveries.add,
    )


def _send_all(producer: RecordProducer, parser: Parser, lines: Iterator[bytes], pace: _Pace) -> None:
    from headrace.client.errors import ClientError

    for number, line in enumerate(lines, start=1):
        try:
            record = parser.parse(line)
            pace.wait()
            producer.send(record)
        except ClientError as error:
            raise ClientError(
                f"line {number}: {error.what}", next_step=error.next_step, code=error.code
            ) from error


def _line_parser(options: ProduceOptions) -> LineParser:
    from headrace.cli.records.record_lines import LineParser, parse_headers

    key, separator = options.key, options.key_separator
    if key is not None and separator is not None:
        raise typer.BadParameter("use either --key or --key-separator")
    if options.json_lines and (key is not None or separator is not None):
        raise typer.BadParameter("with --json-lines the key is in each line")
    if separator == "":
        raise typer.BadParameter("may not be empty", param_hint="--key-separator")
    return LineParser(
        separator=None if separator is None else separator.replace("\\t", "\t").encode(),
        key=None if key is None else key.encode(errors="surrogateescape"),
        headers=parse_headers(options.header or []),
        partition=options.partition,
        json_lines=options.json_lines,
    )


def _partitioner(
    wanted: str | None, cluster: Cluster, admin: Admin, topic: TopicDescription
) -> Partitioner | None:
    """None: librdkafka's murmur2 partitioner, the same as the Java client's."""
    from random import SystemRandom

    from headrace.client.errors import ClientError
    from headrace.client.partitioning.partitioners import StickyPartitioner
    from headrace.client.tools.partitioner_store import PartitionerStore

    if wanted == "hash":
        return None
    if wanted == "sticky":
        return StickyPartitioner(SystemRandom())
    stored = PartitionerStore(cluster, admin).load(topic.name, topic.topic_id)
    if stored is not None:
        return stored.partitioner()
    if wanted is None:
        return None
    raise ClientError(
        f"topic {topic.name!r} has no key ranges",
        next_step=f"set them: headrace topics alter {topic.name} --ranges LOW..HIGH,…",
    )


def _largest_message(admin: Admin, topic: str) -> int:
    from headrace.client.errors import ClientError
    from headrace.client.tools.producer import DEFAULT_MAX_MESSAGE_BYTES

    try:
        configs = {value.name: value.value for value in admin.configs("topic", topic)}
        return int(configs["max.message.bytes"] or DEFAULT_MAX_MESSAGE_BYTES)
    except (ClientError, KeyError, ValueError):  # the client may be allowed to write but not to describe
        return DEFAULT_MAX_MESSAGE_BYTES


class _Pace:
    """Limits the rate evenly to a number of records per second."""

    def __init__(self, rate: float | None) -> None:
        self._interval_s = 0.0 if rate is None else 1 / rate
        self._next = time.monotonic()

    def wait(self) -> None:
        if not self._interval_s:
            return
        delay = self._next - time.monotonic()
        if delay > 0:
            time.sleep(delay)
        # Lost time after a stall is not made up for.
        self._next = max(self._next, time.monotonic() - self._interval_s) + self._interval_s


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    from headrace.client.errors import ClientError

    while line := file.readline(MAX_LINE_BYTES + 1):
        if len(line) > MAX_LINE_BYTES:
            raise ClientError(f"a line is longer than {MAX_LINE_BYTES >> 20} MiB: is it a text file?")
        yield line


def _progress(file: IO[bytes], *, show: bool) -> Iterator[bytes]:
    """The lines of the input, with a progress bar for a file."""
    from_stdin = file is sys.stdin.buffer
    if from_stdin and sys.stdin.isatty():
        print("One record per line; Ctrl-D ends.", file=sys.stderr)
    if from_stdin or not file.seekable():
        yield from _lines(file)
        return
    size = file.seek(0, 2)
    file.seek(0)
    with ProgressBar("sending", size, in_bytes=True, show=show) as bar:
        for line in _lines(file):
            yield line
            bar.advance(len(line))


def _check_choice(value: str | None, choices: tuple[str | None, ...], option: str) -> None:
    if value not in choices:
        named = ", ".join(str(choice) for choice in choices if choice is not None)
        raise typer.BadParameter(f"{value!r} is not one of {named}", param_hint=option)
