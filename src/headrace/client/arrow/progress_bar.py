"""How far a long read or write has come, on a terminal or in a notebook.

Shows nothing before a second has gone by, so that short calls stay quiet. Knows no Kafka.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

_QUIET_S = 1.0


class OffsetsLeft(Protocol):
    @property
    def offsets_left(self) -> int: ...


class ProgressBar:
    """`wanted`: True shows it from the start, False never, None where somebody watches, and not at once."""

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
        self._shown: Any = None
        self._task: Any = None

    def reached(self, done: int) -> None:
        """So many records in all."""
        if self._clock() < self._show_at:
            return
        if self._shown is None:
            self._show()
        self._shown.update(self._task, completed=done)

    def counted(self, things: Iterable[T], size: Callable[[T], int]) -> Iterator[T]:
        """Passes them on and notes how many records they were."""
        done = 0
        for each in things:
            yield each
            done += size(each)
            self.reached(done)

    def close(self) -> None:
        if self._shown is not None:
            self._shown.stop()
            self._shown = None
        self._show_at = float("inf")

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _show(self) -> None:
        from rich import progress  # not before it is seen
        from rich.console import Console

        self._shown = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.TaskProgressColumn(show_speed=False),
            progress.TextColumn("{task.completed:,.0f} records"),
            progress.TimeRemainingColumn(elapsed_when_finished=True),
            console=self._console or Console(stderr=True),
            transient=True,
        )
        self._task = self._shown.add_task(self._what, total=self._total)
        self._shown.start()


class ReadProgress:
    """Of one read: by offsets, since records that are no longer there cannot be waited for."""

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
    if "ipykernel" in sys.modules:
        return True
    return bool(sys.stderr is not None and sys.stderr.isatty())
