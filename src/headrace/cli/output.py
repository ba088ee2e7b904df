"""How commands print: tables and colours on a terminal, plain stable columns in a pipe, JSON when asked.

Everything that came from elsewhere (names, keys, values, error texts) is hostile until `clean` has seen it
(S17). Knows no Kafka.
"""

from __future__ import annotations

import base64
import json
import os
import re
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

Cell = str | int | None

_OBEYED_BY_TERMINALS = re.compile("[\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
"""What JSON leaves as it is although a terminal or a reader's eye would be led astray by it."""


class ReaderGone(Exception):
    """Whoever read our output has enough (`… | head`): end quietly."""


def clean(text: str) -> str:
    """Control, ANSI and invisible characters made visible, so that data cannot move the cursor."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or unicodedata.category(letter) == "Zs" else _visible(letter)
        for letter in text
    )


def text_of(data: bytes) -> str:
    """Bytes as text for a person; what is not UTF-8 is shown as \\xNN."""
    return data.decode("utf-8", errors="backslashreplace")


def json_bytes(data: bytes | None) -> str | dict[str, str] | None:
    """Bytes in JSON: text when they are UTF-8, else base64 in an object of its own."""
    if data is None:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def json_text(value: Any, *, indent: int | None = None) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return _OBEYED_BY_TERMINALS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def human_bytes(size: int) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.1f} {unit}" if unit != "B" else f"{size} B"
        size /= 1024  # type: ignore[assignment]
    return f"{size:.1f} TiB"


class Output:
    """What a command prints with. Results go to stdout, everything said about them to stderr."""

    def __init__(
        self, *, as_json: bool = False, stdout: TextIO | None = None, stderr: TextIO | None = None
    ) -> None:
        self.as_json = as_json
        self._stdout = stdout or sys.stdout
        self._stderr = stderr or sys.stderr
        self.terminal = self._stdout.isatty()

    def document(self, value: Any) -> None:
        """The one JSON document of a command."""
        self._write(json_text(value, indent=2 if self.terminal else None) + "\n")

    def json_line(self, value: Any) -> None:
        self._write(json_text(value) + "\n")

    def line(self, text: str) -> None:
        self._write(clean(text) + "\n")

    def row(self, *cells: Cell) -> None:
        """One line of columns without a header, for streams."""
        self._write("\t".join(map(_plain_cell, cells)) + "\n")

    def raw(self, data: bytes) -> None:
        """Bytes exactly as they are: only for pipes."""
        try:
            self._stdout.buffer.write(data)
        except BrokenPipeError as error:
            raise self._reader_gone() from error

    def flush(self) -> None:
        try:
            self._stdout.flush()
        except BrokenPipeError as error:
            raise self._reader_gone() from error

    def say(self, document: Any, sentence: str) -> None:
        """What was done: a document for programs, a sentence for people."""
        if self.as_json:
            self.document(document)
        else:
            self.line(sentence)

    def note(self, text: str) -> None:
        """Said beside the result: progress, summaries, hints."""
        print(clean(text), file=self._stderr, flush=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """Tab-separated with one header line in a pipe; numbers to the right on a terminal."""
        if self.terminal:
            self._rich_table(columns, rows)
            return
        lines = ["\t".join(columns)] + ["\t".join(map(_plain_cell, row)) for row in rows]
        self._write("\n".join(lines) + "\n")

    def fields(self, values: Mapping[str, Cell]) -> None:
        """Name and value, one to a line."""
        if self.terminal:
            self._rich_fields(values)
            return
        self._write("".join(f"{name}\t{_plain_cell(value)}\n" for name, value in values.items()))

    def styled(self, *parts: tuple[str, str]) -> None:
        """One line of (text, style) parts; the styles only show on a terminal."""
        if not self.terminal:
            self.line("".join(text for text, _ in parts))
            return
        from rich.text import Text

        self._console().print(Text.assemble(*((clean(text), style) for text, style in parts)), soft_wrap=True)

    def _rich_table(self, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
        for index, column in enumerate(columns):
            numbers = bool(rows) and all(isinstance(row[index], int | None) for row in rows)
            style = "cyan" if index == 0 else ""
            table.add_column(column, justify="right" if numbers else "left", style=style, overflow="fold")
        for row in rows:
            table.add_row(*(Text(_shown_cell(cell)) for cell in row))
        self._console().print(table)

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
            raise self._reader_gone() from error

    def _reader_gone(self) -> ReaderGone:
        """Python would complain when it flushes the rest at exit: let that go nowhere."""
        drop_stdout()
        return ReaderGone()


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
