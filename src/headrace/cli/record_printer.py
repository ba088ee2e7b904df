"""How a record looks: on a terminal, in a pipe, as JSON, as hex.

A pipe gets the value's bytes as they are; a terminal never does (S17).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from headrace.cli.output import Output, json_bytes, text_of
from headrace.client.reader import ReadRecord


class RecordPrinter:
    def __init__(self, output: Output, topic: str, form: str, *, verbose: bool) -> None:
        self._output = output
        self._topic = topic
        self._encode: Callable[[bytes], str] = bytes.hex if form == "hex" else text_of
        self.form = form
        self._verbose = verbose
        self.count = 0

    def print(self, record: ReadRecord, *, member: tuple[str, str] | None = None) -> None:
        """`member` is who read it, as a name and its colour: then it is said, with the record's place."""
        self.count += 1
        if self.form == "json":
            self._output.json_line(({"member": member[0]} if member else {}) | self.document(record))
        elif self._output.terminal:
            self._print_terminal(record, member)
        elif self._verbose:
            self._print_columns(record, member)
        elif member:
            self._output.row(member[0], record.partition, record.offset, self._text(record.value))
        elif self.form == "hex":
            self._output.row(self._encode(record.value or b""))
        else:
            self._output.raw((record.value or b"") + b"\n")

    def document(self, record: ReadRecord) -> dict[str, Any]:
        return {
            "topic": self._topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp_ms,
            "timestamp_type": "append" if record.append_time else "create",
            "key": json_bytes(record.key),
            "value": json_bytes(record.value),
            "headers": [[name, json_bytes(value)] for name, value in record.headers],
        }

    def _print_columns(self, record: ReadRecord, member: tuple[str, str] | None) -> None:
        self._output.row(
            *(member[:1] if member else ()),
            record.partition,
            record.offset,
            record.timestamp_ms,
            self._text(record.key),
            self._headers(record) or None,
            self._text(record.value),
        )

    def _print_terminal(self, record: ReadRecord, member: tuple[str, str] | None) -> None:
        value = self._text(record.value)
        shown = ("null", "dim italic") if value is None else (value, "")
        who = [(f"{member[0]} ", member[1])] if member else []
        place = (f"{record.partition}:{record.offset}", "cyan")
        if not self._verbose:
            self._output.styled(*who, *([place, ("  ", "")] if member else []), shown)
            return
        key = self._text(record.key)
        self._output.styled(
            *who,
            place,
            (f"  {_moment(record.timestamp_ms)}  ", "dim"),
            ("null", "dim italic") if key is None else (key, "yellow"),
            (f"  {headers}" if (headers := self._headers(record)) else "", "magenta"),
            ("  ", ""),
            shown,
        )

    def _text(self, data: bytes | None) -> str | None:
        return None if data is None else self._encode(data)

    def _headers(self, record: ReadRecord) -> str:
        return ",".join(f"{name}={self._encode(value or b'')}" for name, value in record.headers)


def _moment(timestamp_ms: int | None) -> str:
    if timestamp_ms is None:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):  # a producer may claim any time
        return str(timestamp_ms)
    return moment.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00") + "Z"
