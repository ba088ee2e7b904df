# SPDX-License-Identifier: Apache-2.0
"""File lock that marks a query as running, and the stop file that asks it to stop.

Spark does not lock a checkpoint. The process that plans a query's batches holds a lock on a file named by
the query's id, on the driver's machine; the kernel releases it when the process ends. Independent of Kafka.
Read next: planner.py, headrace/pipelines/checkpoints/checkpoint.py (which checks the lock).
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_QUERY = re.compile(r"[0-9a-f-]{36}")
_FOLDER = "headrace-queries"
_TOUCH_EVERY_S = 3_600
"""Keeps cleaners of temporary files from deleting the file of a running query."""

_log = logging.getLogger("pyspark_headrace")


class QueryLock:
    """The lock of one planning process. A query that cannot take it continues without it."""

    def __init__(self) -> None:
        self._file: int | None = None
        self._touched_s = 0.0
        self._failed = False

    def hold(self, query: str) -> None:
        if self._file is None and not self._failed:
            try:
                self._file = _open_locked(query)
            except OSError as error:
                self._failed = True
                _log.warning("query %s runs without its lock file: %s", query, error)
        if self._file is not None and time.monotonic() - self._touched_s > _TOUCH_EVERY_S:
            self._touched_s = time.monotonic()
            os.utime(self._file)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


@contextmanager
def try_exclusive(query: str) -> Iterator[bool | None]:
    """Take the lock: yields True when no process of this machine runs the query, False when one does.

    None when the query has no lock file here: it may run on another machine.
    """
    folders = Path(tempfile.gettempdir()).glob(f"{_FOLDER}-*")
    paths = [folder / query for folder in folders if _why_not_private(folder) is None]
    paths = [path for path in paths if path.is_file()]
    files: list[int] = []
    try:
        files += [os.open(path, os.O_RDWR | os.O_NOFOLLOW) for path in paths]
        yield all(_lock(file, fcntl.LOCK_EX) for file in files) if files else None
    finally:
        for file in files:
            os.close(file)


def stop_requested(stop_file: str) -> bool:
    """Whether the stop file exists; appends a byte to acknowledge it."""
    try:
        file = os.open(stop_file, os.O_WRONLY | os.O_APPEND)
    except FileNotFoundError:
        return False
    with os.fdopen(file, "ab") as seen:
        seen.write(b".")
    return True


def _open_locked(query: str) -> int | None:
    """Open and lock the file; None while `try_exclusive` holds it: retried at the next trigger."""
    if _QUERY.fullmatch(query) is None:
        raise OSError(f"{query!r} is not a query id")
    folder = Path(tempfile.gettempdir()) / f"{_FOLDER}-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if why_not := _why_not_private(folder):
        raise OSError(f"{folder} {why_not}: remove it")
    file = os.open(folder / query, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    if _lock(file, fcntl.LOCK_SH):
        return file
    os.close(file)
    return None


def _why_not_private(folder: Path) -> str | None:
    """None when it is: others may make a folder of that name first, to lock or replace files in it."""
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return "is gone"
    if not stat.S_ISDIR(found.st_mode):
        return "is not a folder"
    if folder.name != f"{_FOLDER}-{found.st_uid}":
        return "belongs to another user"
    return "can be changed by other users" if found.st_mode & 0o077 else None


def _lock(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
