"""How far partitions have moved: a bar on a terminal, a line for each change in a pipe, none beside JSON."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from headrace.cli.output import Output

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class MoveProgress:
    """Use it as a context manager; `show(moved, of)` as often as it is known."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._last = -1

    def __enter__(self) -> MoveProgress:
        if sys.stderr.isatty() and not self._output.as_json:
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task("moving partitions", total=None)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, moved: int, total: int) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=moved, total=total)
        elif moved != self._last and not self._output.as_json:
            self._output.note(f"{moved} of {total} partitions are in place")
        self._last = moved
