# SPDX-License-Identifier: Apache-2.0
"""A progress bar on stderr for work that takes longer than a second; nothing where stderr is no terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

_AFTER_S = 1.0


class ProgressBar:
    """Use it in a `with` statement, and call `advance` from its thread."""

    def __init__(
        self,
        text: str,
        total: int | None = None,
        *,
        in_bytes: bool = False,
        show: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`total`: None when it is not known. `show`: False where results on the same terminal show it."""
        self._text = text
        self._total = total
        self._in_bytes = in_bytes
        self._shown = show and sys.stderr.isatty()
        self._clock = clock
        self._started = clock()
        self._done = 0
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, count: int = 1) -> None:
        self._done += count
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done)
        elif self._shown and self._clock() - self._started > _AFTER_S:
            self._start()

    def _start(self) -> None:
        from rich import progress
        from rich.console import Console

        counted = progress.DownloadColumn() if self._in_bytes else progress.MofNCompleteColumn()
        columns = (self._text, progress.BarColumn(), counted, progress.TimeRemainingColumn())
        self._bar = progress.Progress(*columns, console=Console(stderr=True), transient=True)
        self._bar.start()
        self._task = self._bar.add_task(self._text, total=self._total, completed=self._done)
