# SPDX-License-Identifier: Apache-2.0
"""How far a long read or write has come, on a terminal or in a notebook.

Appears after a second, so that short calls show nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

_QUIET_S = 1.0
_BETWEEN_PICTURES_S = 0.2


class OffsetsLeft(Protocol):
    @property
    def offsets_left(self) -> int: ...


class ProgressBar:
    """`wanted`: True shows it from the start, False never, None: on terminals and in notebooks, later."""

    def __init__(
        self,
        what: str,
        total: int | None,
        wanted: bool | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        console: Any = None,
    ) -> None:
        self._what = what
        self._total = total
        self._clock = clock
        self._console = console
        watched = somebody_watches() if wanted is None else wanted
        self._show_at = clock() + (0 if wanted else _QUIET_S) if watched else float("inf")
        self._shown: _NotebookPicture | _TerminalPicture | None = None

    def reached(self, done: int) -> None:
        """So many records in all."""
        if self._clock() < self._show_at:
            return
        if self._shown is None:
            notebook = self._console is None and in_notebook()
            picture: type[_NotebookPicture | _TerminalPicture] = (
                _NotebookPicture if notebook else _TerminalPicture
            )
            self._shown = picture(self._what, self._total, self._console)
        self._shown.update(done)

    def counted(self, things: Iterable[T], size: Callable[[T], int]) -> Iterator[T]:
        """Passes them on and notes how many records they were."""
        done = 0
        for each in things:
            yield each
            done += size(each)
            self.reached(done)

    def close(self) -> None:
        if self._shown is not None:
            self._shown.close()
            self._shown = None
        self._show_at = float("inf")

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _TerminalPicture:
    """Drawn by rich, which is loaded only now, and taken away at the end."""

    def __init__(self, what: str, total: int | None, console: Any) -> None:
        from rich import progress
        from rich.console import Console

        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.TaskProgressColumn(),
            progress.TextColumn("{task.completed:,.0f} records"),
            progress.TimeRemainingColumn(elapsed_when_finished=True),
            console=console or Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task(what, total=total)
        self._bar.start()

    def update(self, done: int) -> None:
        self._bar.update(self._task, completed=done)

    def close(self) -> None:
        self._bar.stop()


class _NotebookPicture:
    """One output that is replaced as it goes; needs no widgets."""

    def __init__(self, what: str, total: int | None, _console: Any) -> None:
        from IPython.display import HTML, display

        self._html = HTML
        self._what = what
        self._total = total
        self._next_at = 0.0
        self._output = display(HTML(""), display_id=True)

    def update(self, done: int) -> None:
        if time.monotonic() < self._next_at:
            return
        self._next_at = time.monotonic() + _BETWEEN_PICTURES_S
        from html import escape

        measure = "" if self._total is None else f"value='{done}' max='{max(self._total, 1)}'"
        share = "" if not self._total else f" {done / self._total:.0%},"
        bar = f"<progress {measure}></progress>"
        self._output.update(self._html(f"{escape(self._what)} {bar}{share} {done:,} records"))

    def close(self) -> None:
        self._output.update(self._html(""))


class ReadProgress:
    """Progress of a read, by offsets: compacted records do not arrive."""

    def __init__(self, topic: str, source: OffsetsLeft, count: int | None, wanted: bool | None) -> None:
        self._source = source
        self._all = source.offsets_left
        self._count = count
        self._rows = 0
        total = self._all if count is None else min(count, self._all)
        self._bar = ProgressBar(f"reading {topic}", total, wanted)

    def came(self, rows: int) -> None:
        self._rows += rows
        self._bar.reached(self._rows if self._count is not None else self._all - self._source.offsets_left)

    def close(self) -> None:
        self._bar.close()

    def __enter__(self) -> ReadProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def somebody_watches() -> bool:
    """A terminal, or a notebook's kernel."""
    return in_notebook() or bool(sys.stderr is not None and sys.stderr.isatty())


def in_notebook() -> bool:
    return "ipykernel" in sys.modules
