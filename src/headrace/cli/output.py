# SPDX-License-Identifier: Apache-2.0
"""Output of commands: tables and colours on a terminal, stable tab-separated columns in a pipe, or JSON.

All external text (names, keys, values, error messages) is untrusted until it has passed `clean` (S17).
"""

from __future__ import annotations

import base64
import json
import os
import re
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TextIO

from headrace.cli.errors import OutputClosed

Cell = str | int | None

_LEAST_TEXT = 8
"""Columns of text are wrapped to fit, but not below this width."""
_GAP = 2
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")

_INVISIBLE = re.compile("[\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
"""Characters that JSON does not escape but that change what a terminal shows."""


def clean(text: str) -> str:
    """Escape control, ANSI and invisible characters, so that data cannot control the terminal."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or unicodedata.category(letter) == "Zs" else _visible(letter)
        for letter in text
    )


def text_of(data: bytes) -> str:
    """Decode bytes for display; bytes that are not UTF-8 become \\xNN."""
    return data.decode("utf-8", errors="backslashreplace")


def json_bytes(data: bytes | None) -> str | dict[str, str] | None:
    """Bytes for JSON: a string when they are UTF-8, else an object with base64."""
    if data is None:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def json_text(value: Any, *, indent: int | None = None) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return _INVISIBLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def quoted(names: Sequence[str]) -> str:
    """Names in a sentence: 'orders', 'payments'."""
    return ", ".join(f"'{name}'" for name in names)


def iso_time(wall_ms: float | None, precision: str = "milliseconds") -> str | int | None:
    """A moment as ISO 8601 in UTC: 2026-01-31T12:00:00.000Z; None for -1, which in Kafka means no timestamp.

    Beyond the years 1 to 9999, which producers may set, the number itself.
    """
    if wall_ms is None or wall_ms == -1:
        return None
    try:
        moment = datetime.fromtimestamp(wall_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return int(wall_ms)
    return moment.isoformat(timespec=precision).removesuffix("+00:00") + "Z"


def human_bytes(size: int) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.1f} {unit}" if unit != "B" else f"{size} B"
        size /= 1024  # type: ignore[assignment]
    return f"{size:.1f} TiB"


class Output:
    """Prints results to stdout, and progress and hints to stderr."""

    def __init__(
        self, *, as_json: bool = False, stdout: TextIO | None = None, stderr: TextIO | None = None
    ) -> None:
        self.as_json = as_json
        self._stdout = stdout or sys.stdout
        self._stderr = stderr or sys.stderr
        self.terminal = self._stdout.isatty()

    def document(self, value: Any) -> None:
        """Print the command's JSON document."""
        self._write(json_text(value, indent=2 if self.terminal else None) + "\n")

    def json_line(self, value: Any) -> None:
        self._write(json_text(value) + "\n")

    def line(self, text: str) -> None:
        self._write(clean(text) + "\n")

    def row(self, *cells: Cell) -> None:
        """Print one line of columns without a header, for streams."""
        self._write("\t".join(map(_plain_cell, cells)) + "\n")

    def raw(self, data: bytes) -> None:
        """Write bytes unchanged: only for pipes."""
        try:
            self._stdout.buffer.write(data)
        except BrokenPipeError as error:
            raise self._output_closed() from error

    def flush(self) -> None:
        try:
            self._stdout.flush()
        except BrokenPipeError as error:
            raise self._output_closed() from error

    def say(self, document: Any, sentence: str) -> None:
        """Report what was done: the document with --json, otherwise the sentence."""
        if self.as_json:
            self.document(document)
        else:
            self.line(sentence)

    def note(self, text: str) -> None:
        """Print progress, summaries and hints to stderr."""
        print(clean(text), file=self._stderr, flush=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """Print a table: tab-separated with one header line in a pipe, aligned on a terminal."""
        if self.terminal:
            self._rich_table(columns, rows)
            return
        lines = ["\t".join(columns)] + ["\t".join(map(_plain_cell, row)) for row in rows]
        self._write("\n".join(lines) + "\n")

    def fields(self, values: Mapping[str, Cell]) -> None:
        """Print names and values, one pair per line."""
        if self.terminal:
            self._rich_fields(values)
            return
        self._write("".join(f"{name}\t{_plain_cell(value)}\n" for name, value in values.items()))

    def styled(self, *parts: tuple[str, str]) -> None:
        """Print one line of (text, style) parts; styles apply only on a terminal."""
        if not self.terminal:
            self.line("".join(text for text, _ in parts))
            return
        from rich.text import Text

        self._console().print(Text.assemble(*((clean(text), style) for text, style in parts)), soft_wrap=True)

    def _rich_table(self, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        console = self._console()
        widths = [_width(column, index, rows) for index, column in enumerate(columns)]
        narrow = sum(widths) + _GAP * len(widths) > console.width
        table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False, collapse_padding=True)
        for index, column in enumerate(columns):
            cells = [row[index] for row in rows]
            numbers = bool(rows) and all(isinstance(cell, int | None) for cell in cells)
            whole = numbers or all(cell is None or _MOMENT.fullmatch(str(cell)) for cell in cells)
            table.add_column(
                column.replace(" ", "\n") if narrow else column,
                justify="right" if numbers else "left",
                style="cyan" if index == 0 else "",
                overflow="fold",
                min_width=None if whole else min(_LEAST_TEXT, widths[index]),
                no_wrap=whole,
            )
        for row in rows:
            table.add_row(*(Text(_shown_cell(cell)) for cell in row))
        console.print(table)

    def _rich_fields(self, values: Mapping[str, Cell]) -> None:
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        table.add_column(style="bold")
        table.add_column(overflow="fold")
        for name, value in values.items():
            table.add_row(Text(name), Text(_shown_cell(value)))
        self._console().print(table)

    def _console(self) -> Any:
        from rich.console import Console

        return Console(file=self._stdout, highlight=False, markup=False, emoji=False)

    def _write(self, text: str) -> None:
        try:
            self._stdout.write(text)
        except BrokenPipeError as error:
            raise self._output_closed() from error

    def _output_closed(self) -> OutputClosed:
        """Redirect stdout to nowhere, or Python would report an error when it flushes at exit."""
        drop_stdout()
        return OutputClosed()


def drop_stdout() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _visible(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")


def _plain_cell(cell: Cell) -> str:
    return "-" if cell is None else clean(str(cell))


def _shown_cell(cell: Cell) -> str:
    return "-" if cell is None else f"{cell:,}" if isinstance(cell, int) else clean(cell)


def _width(column: str, index: int, rows: Sequence[Sequence[Cell]]) -> int:
    return max(len(column), *(len(_shown_cell(row[index])) for row in rows)) if rows else len(column)
