# SPDX-License-Identifier: Apache-2.0
"""Prints records: on a terminal, in a pipe, as JSON or as hex.

A pipe gets the value's bytes unchanged; a terminal never does (S17). With several topics, the topic is a
column of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.cli.output import Cell, Output, iso_time, json_bytes, text_of
from headrace.client.tools.reader import ReadRecord


class RecordPrinter:
    def __init__(self, output: Output, form: str, *, verbose: bool, several_topics: bool = False) -> None:
        self._output = output
        self.several_topics = several_topics
        self._encode: Callable[[bytes], str] = bytes.hex if form == "hex" else text_of
        self.form = form
        self._verbose = verbose
        self.count = 0

    def print(self, record: ReadRecord, *, member: tuple[str, str] | None = None) -> None:
        """Print a record. `member`: name and colour of the group member that read it."""
        self.count += 1
        if self.form == "json":
            self._output.json_line(({"member": member[0]} if member else {}) | self.document(record))
        elif self._output.terminal:
            self._print_terminal(record, member)
        elif self._verbose:
            self._print_columns(record, member)
        elif member:
            self._output.row(member[0], *self._place(record), self._text(record.value))
        elif self.form == "hex":
            self._output.row(self._encode(record.value or b""))
        else:
            self._output.raw((record.value or b"") + b"\n")

    def document(self, record: ReadRecord) -> dict[str, Any]:
        return {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": iso_time(record.timestamp_ms),
            "timestamp_type": "append" if record.append_time else "create",
            "key": json_bytes(record.key),
            "value": json_bytes(record.value),
            "headers": [[name, json_bytes(value)] for name, value in record.headers],
        }

    def place(self, record: ReadRecord) -> str:
        """Partition and offset of a record, on a terminal; the topic where there are several."""
        place = f"{record.partition}:{record.offset}"
        return f"{record.topic}#{place}" if self.several_topics else place

    def _place(self, record: ReadRecord) -> tuple[Cell, ...]:
        """The same as columns."""
        return (*((record.topic,) if self.several_topics else ()), record.partition, record.offset)

    def _print_columns(self, record: ReadRecord, member: tuple[str, str] | None) -> None:
        self._output.row(
            *(member[:1] if member else ()),
            *self._place(record),
            iso_time(record.timestamp_ms),
            self._text(record.key),
            self._headers(record) or None,
            self._text(record.value),
        )

    def _print_terminal(self, record: ReadRecord, member: tuple[str, str] | None) -> None:
        value = self._text(record.value)
        shown = ("null", "dim italic") if value is None else (value, "")
        who = [(f"{member[0]} ", member[1])] if member else []
        place = (self.place(record), "cyan")
        if not self._verbose:
            with_place = member or self.several_topics
            self._output.styled(*who, *([place, ("  ", "")] if with_place else []), shown)
            return
        key = self._text(record.key)
        self._output.styled(
            *who,
            place,
            (f"  {iso_time(record.timestamp_ms) or '-'}  ", "dim"),
            ("null", "dim italic") if key is None else (key, "yellow"),
            (f"  {headers}" if (headers := self._headers(record)) else "", "magenta"),
            ("  ", ""),
            shown,
        )

    def _text(self, data: bytes | None) -> str | None:
        return None if data is None else self._encode(data)

    def _headers(self, record: ReadRecord) -> str:
        return ",".join(f"{name}={self._encode(value or b'')}" for name, value in record.headers)
