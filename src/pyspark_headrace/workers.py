"""What makes the next task of a Python worker cheap: Spark runs many in one process and tidies up after each.

After every task Spark has Python look through all objects for garbage, and before every task forgets what
importing knows. With our modules loaded the two take tens of milliseconds of a processor; without them, none.
Touches this process only. Read next: batch_reader.py, sink_task.py (who call it).
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from typing import Any
from zipimport import zipimporter

_settled_modules = 0


def settled(rows: Iterator[Any]) -> Iterator[Any]:
    """The same rows; the process settles behind the last."""
    yield from rows
    settle()


def settle() -> None:
    """When a task or a step of planning ends: what was imported by now is not looked through again."""
    global _settled_modules  # noqa: PLW0603 - what is settled is the process
    if len(sys.modules) == _settled_modules:
        return
    _settled_modules = len(sys.modules)
    gc.freeze()
    for finder in sys.path_importer_cache.values():
        if isinstance(finder, zipimporter) and "invalidate_caches" not in vars(finder):
            _reread_only_when_changed(finder)


def _reread_only_when_changed(finder: zipimporter) -> None:
    """Before 3.12 Python reads an archive's directory again whenever caches are dropped, needed or not."""
    archive = finder.archive
    reread = finder.invalidate_caches
    known = _version_of(archive)

    def invalidate_caches() -> None:
        nonlocal known
        if (now := _version_of(archive)) != known:
            known = now
            reread()

    finder.invalidate_caches = invalidate_caches  # type: ignore[method-assign]


def _version_of(archive: str) -> tuple[int, int] | None:
    try:
        found = os.stat(archive)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
