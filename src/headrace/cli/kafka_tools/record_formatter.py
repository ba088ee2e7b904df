# SPDX-License-Identifier: Apache-2.0
"""Formats a record as Kafka's DefaultMessageFormatter does: fields, separators, a line end. Pure."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from headrace.cli.errors import UsageError

FORMATTER = {
    "print.timestamp": "false",
    "print.partition": "false",
    "print.offset": "false",
    "print.headers": "false",
    "print.key": "false",
    "print.value": "true",
    "key.separator": "\t",
    "line.separator": "\n",
    "headers.separator": ",",
    "null.literal": "null",
    "key.deserializer": "StringDeserializer",
    "value.deserializer": "StringDeserializer",
    "headers.deserializer": "StringDeserializer",
}
"""The formatter's properties with their defaults."""


def _number(layout: str) -> Callable[[bytes], bytes]:
    def read(data: bytes) -> bytes:
        try:
            return str(struct.unpack(layout, data)[0]).encode()
        except struct.error:
            return data  # not what the deserializer reads: shown as it is

    return read


DESERIALIZERS: dict[str, Callable[[bytes], bytes]] = {
    "StringDeserializer": bytes,
    "ByteArrayDeserializer": bytes,
    "BytesDeserializer": bytes,
    "ShortDeserializer": _number(">h"),
    "IntegerDeserializer": _number(">i"),
    "LongDeserializer": _number(">q"),
    "FloatDeserializer": _number(">f"),
    "DoubleDeserializer": _number(">d"),
    "UUIDDeserializer": lambda data: str(uuid.UUID(data.decode())).encode(),
}
"""By the name of the Java class without its package."""


class Printable(Protocol):
    """What is printed of a record."""

    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int | None: ...
    @property
    def append_time(self) -> bool: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFormatter:
    shown: frozenset[str]
    """Which of timestamp, partition, offset, headers, key and value."""
    separator: bytes
    line_end: bytes
    headers_separator: bytes
    null: bytes
    read_key: Callable[[bytes], bytes]
    read_value: Callable[[bytes], bytes]
    read_header: Callable[[bytes], bytes]

    @classmethod
    def from_properties(cls, values: Mapping[str, str]) -> RecordFormatter:
        shown = (name.removeprefix("print.") for name in values if name.startswith("print."))
        return cls(
            shown=frozenset(name for name in shown if values[f"print.{name}"].strip().lower() == "true"),
            separator=_text(values["key.separator"]),
            line_end=_text(values["line.separator"]),
            headers_separator=_text(values["headers.separator"]),
            null=_text(values["null.literal"]),
            read_key=_deserializer(values["key.deserializer"]),
            read_value=_deserializer(values["value.deserializer"]),
            read_header=_deserializer(values["headers.deserializer"]),
        )

    def format(self, record: Printable) -> bytes:
        fields: dict[str, Callable[[Printable], bytes]] = {
            "timestamp": self._timestamp,
            "partition": lambda record: b"Partition:%d" % record.partition,
            "offset": lambda record: b"Offset:%d" % record.offset,
            "headers": self._headers,
            "key": lambda record: self._nullable(record.key, self.read_key),
            "value": lambda record: self._nullable(record.value, self.read_value),
        }
        cells = [read(record) for name, read in fields.items() if name in self.shown]
        return self.separator.join(cells) + self.line_end

    def _timestamp(self, record: Printable) -> bytes:
        if record.timestamp_ms is None:
            return b"NO_TIMESTAMP"
        kind = b"LogAppendTime" if record.append_time else b"CreateTime"
        return b"%s:%d" % (kind, record.timestamp_ms)

    def _headers(self, record: Printable) -> bytes:
        cells = [
            name.encode() + b":" + self._nullable(value, self.read_header) for name, value in record.headers
        ]
        return self.headers_separator.join(cells) or b"NO_HEADERS"

    def _nullable(self, data: bytes | None, read: Callable[[bytes], bytes]) -> bytes:
        return self.null if data is None else read(data)


def _text(value: str) -> bytes:
    return value.replace("\\t", "\t").replace("\\n", "\n").encode()


def _deserializer(name: str) -> Callable[[bytes], bytes]:
    known = DESERIALIZERS.get(name.rpartition(".")[2])
    if known is None:
        raise UsageError(f"deserializer {name!r} is not one of {', '.join(DESERIALIZERS)}")
    return known
