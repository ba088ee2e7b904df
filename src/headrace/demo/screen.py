# SPDX-License-Identifier: Apache-2.0
"""What a scene prints through: prose, pictures, commands with their output, and checked promises.

Everything goes to a console and into a recording of parts, from which tour.py writes a document.
"""

from __future__ import annotations

import io
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from rich.console import Console, RenderableType
from rich.live import Live
from rich.rule import Rule
from rich.text import Text

from headrace.demo.chart import Chart, in_terminal

WIDTH = 80
_FRAMES_PER_SECOND = 10

CommandRunner = Callable[[Sequence[str], str], tuple[int, str]]
"""Runs `headrace` with these arguments and this standard input; returns exit code and output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A paragraph of prose, output as it was printed, or a picture with its title."""

    kind: Literal["prose", "output", "picture"]
    text: str
    file: str = ""
    """Of a picture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    text: str
    held: bool


@dataclass(slots=True)
class Recording:
    """What one scene has shown."""

    parts: list[Part] = field(default_factory=list)
    promises: list[Promise] = field(default_factory=list)


class Screen:
    """Prints for one scene at a time; `begin` starts the next one."""

    def __init__(self, console: Console, run_command: CommandRunner) -> None:
        self._console = console
        self._run_command = run_command
        self._recording = Recording()

    @property
    def is_terminal(self) -> bool:
        return self._console.is_terminal

    def begin(self, title: str) -> Recording:
        """Print the title and return the recording of what follows."""
        self._recording = Recording()
        self._console.print(Rule(Text(title, "bold")))
        return self._recording

    def say(self, prose: str) -> None:
        """Print a paragraph."""
        self._recording.parts.append(Part(kind="prose", text=prose))
        self._console.print(Text(prose))

    def show(self, picture: RenderableType) -> None:
        """Print lines or a picture as they are."""
        self._record(_plain(picture))
        self._console.print(picture)

    def note(self, text: str) -> None:
        """Print a line that is not recorded: progress."""
        self._console.print(Text(text, "dim"))

    def wait_for_enter(self, text: str) -> None:
        """On a terminal only: elsewhere nobody is there to press it."""
        if self._console.is_terminal and sys.stdin.isatty():
            self._console.input(Text(text, "bold"))

    def draw(self, chart: Chart, file: str) -> None:
        """Print a chart; the recording refers to the file, since measured points differ from run to run."""
        self._recording.parts.append(Part(kind="picture", text=chart.title, file=file))
        self._console.print(Text("\n".join(in_terminal(chart, min(self._console.width, WIDTH)))))

    @contextmanager
    def live(self, picture: RenderableType) -> Iterator[None]:
        """Redraw on a terminal while the body runs; elsewhere print the picture at the end."""
        if self._console.is_terminal:
            with Live(picture, console=self._console, refresh_per_second=_FRAMES_PER_SECOND):
                yield
        else:
            yield
            self._console.print(picture)
        self._record(_plain(picture))

    def run(self, line: str, *, typed: str = "") -> str:
        """Run a `headrace` command line, print both it and its output, and return the output.

        `typed` is its standard input.
        """
        shown = f"$ {_piped(typed)}{line}"
        self._record(shown)
        self._console.print(Text(shown, "bold"))
        code, output = self._run_command(shlex.split(line)[1:], typed)
        text = Text.from_ansi(output.rstrip())
        if text.plain:
            self._record("\n".join(each.rstrip() for each in text.plain.splitlines()))
            self._console.print(text, soft_wrap=True)
        if code != 0:
            self.check(f"`{line}` ended with exit code 0", False)
        return text.plain

    def check(self, promise: str, held: bool) -> None:
        """Print a statement and whether it is true."""
        self._recording.promises.append(Promise(text=promise, held=held))
        mark = Text("✓ ", "bold green") if held else Text("✗ ", "bold red")
        self.show(mark + Text(promise, ""))

    def _record(self, text: str) -> None:
        self._recording.parts.append(Part(kind="output", text=text))


def _plain(picture: RenderableType) -> str:
    """The picture as plain text, as a terminal of 80 columns shows it."""
    console = Console(file=io.StringIO(), width=WIDTH, color_system=None, highlight=False)
    with console.capture() as capture:
        console.print(picture)
    return "\n".join(line.rstrip() for line in capture.get().rstrip("\n").splitlines())


def _piped(typed: str) -> str:
    """How a shell passes the text to a command."""
    if not typed:
        return ""
    lines = typed.rstrip("\n").split("\n")
    if len(lines) == 1:
        return f"echo {shlex.quote(lines[0])} | "
    return f"printf {shlex.quote(''.join(line + chr(92) + 'n' for line in lines))} | "
