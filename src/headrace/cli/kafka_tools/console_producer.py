# SPDX-License-Identifier: Apache-2.0
"""`kafka-console-producer`: sends lines of stdin, with Apache Kafka's options.

Sending: cli/records/produce.py, which is `headrace produce`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.cli.errors import UsageError
from headrace.cli.kafka_tools.options import (
    ToolParser,
    client_properties,
    cluster_of,
    note_ignored,
    properties_of,
)
from headrace.cli.output import clean
from headrace.cli.records.produce import ProduceOptions, send_lines
from headrace.client.errors import ClientError
from headrace.client.tools.producer import Delivery, OutgoingRecord

ERROR = None
"""stdout is for records: errors are on stderr."""
_ACKS = {"-1": "all", "all": "all", "0": "0", "1": "1"}
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_USED = ("acks", "compression.type", "delivery.timeout.ms")
_WITHOUT_EFFECT = (
    *("batch-size", "max-block-ms", "max-memory-bytes", "max-partition-memory-bytes", "metadata-expiry-ms"),
    *("message-send-max-retries", "request-timeout-ms", "retry-backoff-ms", "socket-buffer-size", "timeout"),
)
_READER = {
    "parse.key": "false",
    "key.separator": "\t",
    "parse.headers": "false",
    "headers.delimiter": "\t",
    "headers.separator": ",",
    "headers.key.separator": ":",
    "null.marker": "",
    "ignore.error": "false",
}
"""Properties of the line reader with their defaults."""


def run(arguments: Sequence[str]) -> int:
    parser = _parser()
    options = parser.parse_tool(arguments)
    parser.require(options, "topic")
    reports = _Reports(options.topic)
    properties = client_properties(options.config, options.producer_property, "--producer-property")
    cluster = cluster_of(options, properties)
    send_lines(cluster, _produce_options(options, properties), _line_reader(options), reports)
    return 1 if reports.failed else 0


def _parser() -> ToolParser:
    parser = ToolParser("kafka-console-producer", "Send each line of stdin as a record.")
    parser.text("--topic", help="Required. The topic to write to.")
    parser.repeated(
        "--property",
        "--reader-property",
        metavar="KEY=VALUE",
        help=f"How lines are read: {', '.join(_READER)}; repeatable.",
    )
    parser.repeated(
        "--producer-property",
        "--command-property",
        metavar="KEY=VALUE",
        help=f"Settings of the producer: {', '.join(_USED)}; repeatable.",
    )
    parser.text(
        "--producer.config", "--command-config", dest="config", metavar="FILE", help="The same, a file."
    )
    parser.text("--reader-config", metavar="FILE", help="As --property, a file.")
    parser.text("--request-required-acks", metavar="-1|0|1|all", help="Default: -1, all replicas in sync.")
    parser.text(
        "--compression-codec", nargs="?", const="gzip", metavar="|".join(_CODECS), help="Default: none."
    )
    parser.flag("--sync", help="Accepted: records of a partition are always sent in order.")
    for name in _WITHOUT_EFFECT:
        parser.text(f"--{name}", help=argparse.SUPPRESS)
    return parser


def _produce_options(options: argparse.Namespace, properties: Mapping[str, str]) -> ProduceOptions:
    note_ignored(properties.keys() - {*_USED, "bootstrap.servers"})
    note_ignored(
        [f"--{name}" for name in _WITHOUT_EFFECT if getattr(options, name.replace("-", "_")) is not None]
    )
    acks = _one_of(_ACKS, options.request_required_acks or properties.get("acks", "all"), "acks")
    codec = options.compression_codec or properties.get("compression.type", "none")
    timeout_ms = properties.get("delivery.timeout.ms", "120000")
    if not timeout_ms.isdecimal():
        raise UsageError(f"delivery.timeout.ms={timeout_ms!r} is not a number of milliseconds")
    return ProduceOptions(
        topic=options.topic,
        acks=_ACKS[acks],
        compression=_one_of(_CODECS, codec, "compression.type"),
        timeout=int(timeout_ms) / 1000,
    )


def _line_reader(options: argparse.Namespace) -> LineReader:
    given = properties_of(options.reader_config, options.property, "--property")
    note_ignored(given.keys() - _READER.keys())
    value = _READER | given
    return LineReader(
        key_separator=_separator(value, "key.separator") if _is_true(value["parse.key"]) else None,
        headers_delimiter=_separator(value, "headers.delimiter")
        if _is_true(value["parse.headers"])
        else None,
        headers_separator=_separator(value, "headers.separator"),
        header_key_separator=_separator(value, "headers.key.separator"),
        null_marker=value["null.marker"].encode() or None,
        ignore_error=_is_true(value["ignore.error"]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LineReader:
    """Parses `headers key value`, of which the first two are optional, as Kafka's LineMessageReader."""

    key_separator: bytes | None
    """None: lines hold no key."""
    headers_delimiter: bytes | None
    """None: lines hold no headers."""
    headers_separator: bytes
    header_key_separator: bytes
    null_marker: bytes | None
    ignore_error: bool

    def parse(self, line: bytes) -> OutgoingRecord:
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        headers, line = self._split(line, self.headers_delimiter, "headers delimiter")
        key, value = self._split(line, self.key_separator, "key separator")
        return OutgoingRecord(
            key=None if key is None else self._nullable(key),
            value=self._nullable(value),
            headers=[] if headers is None else self._headers(headers),
        )

    def _split(self, line: bytes, separator: bytes | None, name: str) -> tuple[bytes | None, bytes]:
        if separator is None:
            return None, line
        before, found, after = line.partition(separator)
        if found:
            return before, after
        if self.ignore_error:
            return None, line
        raise ClientError(
            f"no {name} {separator.decode(errors='replace')!r} in {line.decode(errors='replace')!r}"
        )

    def _headers(self, text: bytes) -> list[tuple[str, bytes | None]]:
        if self._nullable(text) is None:
            return []
        return [self._header(each) for each in text.split(self.headers_separator) if each]

    def _header(self, text: bytes) -> tuple[str, bytes | None]:
        name, found, value = text.partition(self.header_key_separator)
        if not found and not self.ignore_error:
            separator = self.header_key_separator.decode(errors="replace")
            raise ClientError(f"no header key separator {separator!r} in {text.decode(errors='replace')!r}")
        return name.decode(errors="replace"), self._nullable(value) if found else None

    def _nullable(self, text: bytes) -> bytes | None:
        return None if self.null_marker is not None and text == self.null_marker else text


class _Reports:
    """Prints failures; what was delivered is not reported, as in Apache Kafka."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self.failed = 0

    def topic_created(self, partitions: int) -> None:
        print(f"WARN topic {self._topic} did not exist: the broker created it", file=sys.stderr)

    def add(self, delivery: Delivery) -> None:
        if delivery.error is None:
            return
        self.failed += 1
        print(
            f"ERROR Error when sending message {delivery.number + 1} to topic {self._topic}: "
            f"{clean(str(delivery.error))}",
            file=sys.stderr,
        )

    def finish(self, unknown: int) -> None:
        self.failed += unknown
        if unknown:
            print(f"ERROR {unknown} messages to topic {self._topic} are unconfirmed", file=sys.stderr)


def _one_of(known: Sequence[str] | dict[str, str], value: str, name: str) -> str:
    if value not in known:
        raise UsageError(f"{name}={value!r} is not one of {', '.join(known)}")
    return value


def _is_true(text: str) -> bool:
    return text.strip().lower() == "true"


def _separator(values: dict[str, str], name: str) -> bytes:
    text = values[name].replace("\\t", "\t")
    if not text:
        raise UsageError(f"{name} may not be empty")
    return text.encode()
