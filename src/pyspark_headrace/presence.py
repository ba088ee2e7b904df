"""Signs between a query and whoever runs it: that it lives, and that it is asked to stop.

Spark keeps no lock on a checkpoint. The process that plans a query's batches holds one under the query's own
id, on the machine of the driver; the kernel lets go of it however the process ends. Knows no Kafka.
Read next: planner.py, headrace/pipelines/checkpoint.py (who asks).
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_QUERY = re.compile(r"[0-9a-f-]{36}")
_FOLDER = "headrace-queries"
_TOUCH_EVERY_S = 3_600
"""So that nobody who tidies up old files takes it from under a query."""

_log = logging.getLogger("pyspark_headrace")


class Presence:
    """Shown by one planning process. A query that cannot show it goes on without."""

    def __init__(self) -> None:
        self._file: int | None = None
        self._touched_s = 0.0
        self._gave_up = False

    def show(self, query: str) -> None:
        if self._file is None and not self._gave_up:
            try:
                self._file = _locked(query)
            except OSError as error:
                self._gave_up = True
                _log.warning("no sign that query %s runs could be left: %s", query, error)
        if self._file is not None and time.monotonic() - self._touched_s > _TOUCH_EVERY_S:
            self._touched_s = time.monotonic()
            os.utime(self._file)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


@contextmanager
def nobody_runs(query: str) -> Iterator[bool | None]:
    """While inside: True when no process of this machine plans batches of the query, False when one does.

    None when the query was never seen here: it may run on another machine.
    """
    paths = [path for path in Path(tempfile.gettempdir()).glob(f"{_FOLDER}-*/{query}") if path.is_file()]
    files: list[int] = []
    try:
        files += [os.open(path, os.O_RDWR | os.O_NOFOLLOW) for path in paths]
        yield all(_lock(file, fcntl.LOCK_EX) for file in files) if files else None
    finally:
        for file in files:
            os.close(file)


def asked_to_stop(stop_file: str) -> bool:
    """Whether the file is there; a byte more in it tells whoever made it that it was seen."""
    try:
        file = os.open(stop_file, os.O_WRONLY | os.O_APPEND)
    except FileNotFoundError:
        return False
    with os.fdopen(file, "ab") as seen:
        seen.write(b".")
    return True


def _locked(query: str) -> int | None:
    """None when somebody is just looking: tried again at the next trigger."""
    if _QUERY.fullmatch(query) is None:
        raise OSError(f"{query!r} is no query's id")
    folder = Path(tempfile.gettempdir()) / f"{_FOLDER}-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.lstat().st_uid != os.getuid():
        raise OSError(f"{folder} is somebody else's")
    file = os.open(folder / query, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    if _lock(file, fcntl.LOCK_SH):
        return file
    os.close(file)
    return None


def _lock(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
