"""`headrace produce`: lines of a file or of stdin become records of a topic, on any Kafka.

What a line means is record_lines.py; sending is client/producer.py; saying what happened is deliveries.py.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.input import open_input
from headrace.cli.option_sets import takes_options
from headrace.cli.options import BOOTSTRAP, Bootstrap, Json
from headrace.cli.output import Output

if TYPE_CHECKING:
    from headrace.cli.deliveries import Deliveries
    from headrace.cli.record_lines import LineParser
    from headrace.client.admin import Admin, TopicDescription
    from headrace.client.partitioners import Partitioner
    from headrace.client.producer import RecordProducer

MAX_LINE_BYTES = 64 << 20
_FLUSH_AFTER_INTERRUPT_MS = 3_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceOptions:
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where to send.")]
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read records from it. Left out or -: from stdin.")
    ] = None
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help="What stands between key and value in a line.")
    ] = None
    key: Annotated[str | None, typer.Option("--key", "-k", help="One key for every record.")] = None
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="One partition for every record.")
    ] = None
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="For every record; may be repeated."),
    ] = None
    json_lines: Annotated[
        bool,
        typer.Option(
            "--json-lines",
            help='Each line is {"key", "value", "headers", "partition", "timestamp"}, all optional.',
        ),
    ] = False
    rate: Annotated[float | None, typer.Option("--rate", min=0.001, help="At most so many a second.")] = None
    acks: Annotated[
        str,
        typer.Option(
            "--acks",
            metavar="0|1|all",
            help="Wait for nobody, for the leader, or for all in-sync replicas (and, by default, the disk).",
        ),
    ] = "all"
    partitioner: Annotated[
        str | None,
        typer.Option(
            "--partitioner",
            metavar="hash|sticky|range",
            help="Place by the key's hash, spread whatever the key, or by the topic's key ranges. "
            "Left out: range when the topic has ranges, else hash.",
        ),
    ] = None
    compression: Annotated[
        str, typer.Option("--compression", "-z", metavar="none|gzip|snappy|lz4|zstd", help="Of batches.")
    ] = "none"
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, help="Seconds after which a record counts as failed.")
    ] = 30
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print partition and offset of each record.")
    ] = False
    bootstrap: Bootstrap = BOOTSTRAP
    as_json: Json = False

    def check(self) -> None:
        _check_choice(self.acks, ("0", "1", "all"), "--acks")
        _check_choice(self.compression, ("none", "gzip", "snappy", "lz4", "zstd"), "--compression")
        _check_choice(self.partitioner, (None, "hash", "sticky", "range"), "--partitioner")


@takes_options
def produce(options: ProduceOptions) -> None:
    """Send records to a topic, one a line.

    \b
    Examples:
      echo hello | headrace produce greetings
      headrace produce people --key-separator : --partitioner range -v
      headrace produce orders --file orders.jsonl --json-lines --acks all --compression zstd
      headrace consume orders --json --exit-at-end | headrace produce copy --json-lines
    """
    options.check()
    parser = _line_parser(options)

    from headrace.cli.deliveries import Deliveries
    from headrace.client.admin import Admin

    with open_input(options.file) as lines:
        admin = Admin(options.bootstrap)
        description = admin.find_topic(options.topic) or admin.provoke_creation(options.topic)
        deliveries = Deliveries(Output(as_json=options.as_json), options.topic, verbose=options.verbose)
        producer = _producer(options, admin, description, deliveries)
        try:
            _send_all(producer, parser, _progress(lines, show=not options.verbose), _Pace(options.rate))
        except KeyboardInterrupt:
            deliveries.finish(producer.close(_FLUSH_AFTER_INTERRUPT_MS))
            raise
        except BaseException:
            deliveries.finish(producer.close())
            raise
    deliveries.finish(producer.close())
    if deliveries.failed:
        raise typer.Exit(1)


def _producer(
    options: ProduceOptions, admin: Admin, topic: TopicDescription, deliveries: Deliveries
) -> RecordProducer:
    from headrace.client.producer import RecordProducer

    return RecordProducer(
        options.bootstrap,
        options.topic,
        partitions=len(topic.partitions),
        acks=options.acks,  # type: ignore[arg-type]  # checked before
        compression=options.compression,  # type: ignore[arg-type]
        partitioner=_partitioner(options.partitioner, options.bootstrap, admin, topic),
        max_message_bytes=_largest_message(admin, options.topic),
        delivery_timeout_ms=int(options.timeout * 1000),
        on_delivery=deliveries.take,
    )


def _send_all(producer: RecordProducer, parser: LineParser, lines: Iterator[bytes], pace: _Pace) -> None:
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
    from headrace.cli.record_lines import LineParser, parse_headers

    key, separator = options.key, options.key_separator
    if key is not None and separator is not None:
        raise typer.BadParameter("give either --key or --key-separator")
    if options.json_lines and (key is not None or separator is not None):
        raise typer.BadParameter("with --json-lines the key stands in each line")
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
    wanted: str | None, bootstrap: str, admin: Admin, topic: TopicDescription
) -> Partitioner | None:
    """None leaves it to librdkafka, whose murmur2 is ours and the Java client's."""
    from random import SystemRandom

    from headrace.client.errors import ClientError
    from headrace.client.partitioner_store import PartitionerStore
    from headrace.client.partitioners import StickyPartitioner

    if wanted == "hash":
        return None
    if wanted == "sticky":
        return StickyPartitioner(SystemRandom())
    stored = PartitionerStore(bootstrap, admin).load(topic.name, topic.topic_id)
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
    from headrace.client.producer import DEFAULT_MAX_MESSAGE_BYTES

    try:
        configs = {value.name: value.value for value in admin.configs("topic", topic)}
        return int(configs["max.message.bytes"] or DEFAULT_MAX_MESSAGE_BYTES)
    except (ClientError, KeyError, ValueError):  # one may be allowed to write but not to look
        return DEFAULT_MAX_MESSAGE_BYTES


class _Pace:
    """Lets so many records a second pass, evenly."""

    def __init__(self, rate: float | None) -> None:
        self._interval_s = 0.0 if rate is None else 1 / rate
        self._next = time.monotonic()

    def wait(self) -> None:
        if not self._interval_s:
            return
        delay = self._next - time.monotonic()
        if delay > 0:
            time.sleep(delay)
        # After a stall the lost time is not made up for: a limit is a limit.
        self._next = max(self._next, time.monotonic() - self._interval_s) + self._interval_s


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    from headrace.client.errors import ClientError

    while line := file.readline(MAX_LINE_BYTES + 1):
        if len(line) > MAX_LINE_BYTES:
            raise ClientError(f"a line is longer than {MAX_LINE_BYTES >> 20} MiB: is this a text file?")
        yield line


def _progress(file: IO[bytes], *, show: bool) -> Iterator[bytes]:
    """The lines; while a file is read, with a bar on the terminal."""
    from_stdin = file is sys.stdin.buffer
    if from_stdin and sys.stdin.isatty():
        print("One record a line; Ctrl-D ends.", file=sys.stderr)
    if from_stdin or not show or not sys.stderr.isatty():
        yield from _lines(file)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    columns: Any = ("sending", BarColumn(), DownloadColumn(), TimeRemainingColumn())
    size = file.seek(0, 2)
    file.seek(0)
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("sending", total=size)
        for line in _lines(file):
            yield line
            progress.advance(task, len(line))


def _check_choice(value: str | None, choices: tuple[str | None, ...], option: str) -> None:
    if value not in choices:
        named = ", ".join(str(choice) for choice in choices if choice is not None)
        raise typer.BadParameter(f"{value!r} is none of {named}", param_hint=option)
