# SPDX-License-Identifier: Apache-2.0
"""Plays a command in a pseudo-terminal and takes a frame of the screen after each line.

How long a frame is shown depends on how much there is to read, not on the machine. Knows no pictures.
Read next: picture.py.
"""

from __future__ import annotations

import os
import re
import select
import subprocess
import termios
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import pyte

COLUMNS, ROWS = 80, 28
TYPED_S = 0.05
"""For each letter of the command."""
ENTER_S = 0.6
LAST_S = 4.0
SHORTEST_S, LONGEST_S = 0.08, 1.2
LETTERS_PER_S = 150
_SILENCE_S = 0.05
_REDRAWN = re.compile(rb"\x1b\[\d*A")
"""The cursor goes up: a picture is drawn again."""


@dataclass(frozen=True, slots=True)
class Run:
    """Letters of one style in a row."""

    column: int
    text: str
    colour: str
    bold: bool


Row = tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Frame:
    rows: tuple[Row, ...]
    seconds: float


class Terminal:
    """The screen that a program writes to; collects a frame whenever it has changed."""

    def __init__(self, columns: int = COLUMNS, rows: int = ROWS) -> None:
        self._screen = pyte.Screen(columns, rows)
        self._screen.set_mode(pyte.modes.LNM)
        self._stream = pyte.ByteStream(self._screen)
        self.frames: list[Frame] = []

    def type(self, command: str) -> None:
        """Show the command as if it were typed at a prompt."""
        self._stream.feed(b"$ ")
        for letter in command[:-1]:
            self._stream.feed(letter.encode())
            self._take(TYPED_S)
        self._stream.feed(f"{command[-1]}\n".encode())
        self._take(ENTER_S)

    def write(self, output: bytes) -> None:
        """Show what a program has written at once, line by line unless it draws over earlier lines."""
        parts = [output] if _REDRAWN.search(output) else output.splitlines(keepends=True)
        for part in parts:
            self._stream.feed(part)
            self._take()

    def _take(self, seconds: float | None = None) -> None:
        rows = tuple(_row(self._screen.buffer[y], self._screen.columns) for y in range(self._screen.lines))
        before = self.frames[-1].rows if self.frames else ()
        if rows != before:
            self.frames.append(Frame(rows, reading_time(before, rows) if seconds is None else seconds))


def _row(cells: dict[int, pyte.screens.Char], columns: int) -> Row:
    runs = []
    for (colour, bold), group in groupby(range(columns), lambda x: (cells[x].fg, cells[x].bold)):
        places = list(group)
        text = "".join(cells[x].data for x in places)
        if text.strip():
            column = places[0] + len(text) - len(text.lstrip())
            runs.append(Run(column, text.strip(), colour, bold))
    return tuple(runs)


def reading_time(before: Sequence[Row], after: Sequence[Row]) -> float:
    """By the letters in rows that were not on the screen, wherever they were."""
    known = set(before)
    letters = sum(len(run.text) for row in after if row not in known for run in row)
    return min(max(letters / LETTERS_PER_S, SHORTEST_S), LONGEST_S)


def record(command: Sequence[str], shown: str, timeout_s: float) -> list[Frame]:
    """Run the command; raises CalledProcessError when it fails and TimeoutError when it takes too long."""
    terminal = Terminal()
    terminal.type(shown)
    for output in _outputs(command, timeout_s):
        terminal.write(output)
    frames = terminal.frames
    return [*frames[:-1], Frame(frames[-1].rows, LAST_S)]


def _outputs(command: Sequence[str], timeout_s: float) -> Iterator[bytes]:
    """What the command writes to its terminal, cut where it pauses."""
    ours, its = os.openpty()
    termios.tcsetwinsize(its, (ROWS, COLUMNS))
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": ""}
    process = subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env=environment)
    os.close(its)
    try:
        yield from _until_end(ours, time.monotonic() + timeout_s)
        code = process.wait(timeout_s)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    if code != 0:
        raise subprocess.CalledProcessError(code, command)


def _until_end(terminal: int, deadline: float) -> Iterator[bytes]:
    waiting = b""
    while time.monotonic() < deadline:
        readable, _, _ = select.select([terminal], [], [], _SILENCE_S)
        if not readable:
            if waiting:
                yield waiting
            waiting = b""
            continue
        try:
            waiting += os.read(terminal, 65536)
        except OSError:  # Linux: the last program has closed its side
            yield waiting
            return
    raise TimeoutError("the recorded command took too long")
