# SPDX-License-Identifier: Apache-2.0
"""Calls file_sync.c: threads that fsync files without Python's lock, and tell the event loop by a pipe.

Read next: file_sync.c, headrace/file_sync.py (which watches the pipe).
"""

from __future__ import annotations

import ctypes
import os

from headrace.kernels.library import function, load_library


class _Outcome(ctypes.Structure):
    _fields_ = [("ticket", ctypes.c_int64), ("error", ctypes.c_int64)]


class SyncThreads:
    """`threads` threads with room for `capacity` files, from the constructor to `stop`. Raises OSError."""

    def __init__(self, library: ctypes.CDLL, threads: int, capacity: int, pipe: tuple[int, int]) -> None:
        """`pipe`: its ends to read from and to write to, which do not block."""
        number, pointer = ctypes.c_int64, ctypes.c_void_p
        start = function(library, "sync_start", number, number, number, number, pointer)
        self._submit = function(library, "sync_submit", number, number, number)
        self._take = function(library, "sync_take", number, pointer)
        self._stop = function(library, "sync_stop", number)
        self._outcomes = (_Outcome * capacity)()
        made = ctypes.c_int64()
        failure = start(threads, capacity, *pipe, ctypes.byref(made))
        if failure:
            raise OSError(failure, os.strerror(failure))
        self._made: int | None = made.value

    def submit(self, descriptor: int, ticket: int) -> None:
        """Fsyncs the file as soon as a thread is free. It stays open until `take` has given its ticket."""
        if self._submit(self._made, descriptor, ticket):
            raise ValueError(f"{len(self._outcomes)} files wait for their fsync already")

    def take(self) -> list[tuple[int, int]]:
        """The tickets of the files that are done, each with its errno (0: on disk). Empties the pipe."""
        count = self._take(self._made, self._outcomes)
        return [(each.ticket, each.error) for each in self._outcomes[:count]]

    def stop(self) -> None:
        """Waits for the fsyncs under way; drops the others. Idempotent."""
        made, self._made = self._made, None
        if made is not None:
            self._stop(made)


def sync_library() -> ctypes.CDLL | None:
    """None without compiled kernels, or on a system on which file_sync.c is empty."""
    library = load_library()
    return library if library is not None and hasattr(library, "headrace_sync_start") else None
