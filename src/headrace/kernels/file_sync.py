# SPDX-License-Identifier: Apache-2.0
"""Calls file_sync.c: threads that fsync files without Python's lock, and tell the event loop by a pipe.

Read next: file_sync.c, headrace/file_sync.py (which watches the pipe).
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading

from headrace.kernels.library import function, load_library


class _Outcome(ctypes.Structure):
    _fields_ = [("ticket", ctypes.c_int64), ("error", ctypes.c_int64), ("took_ns", ctypes.c_int64)]


class SyncThreads:
    """Threads with room for `capacity` files, from the constructor to `stop`. Raises OSError.

    Each is one call of the library for its whole life, and calls of ctypes give the lock away.
    """

    def __init__(self, library: ctypes.CDLL, threads: int, capacity: int, pipe: tuple[int, int]) -> None:
        """`pipe`: its ends to read from and to write to, which do not block."""
        number, pointer = ctypes.c_int64, ctypes.c_void_p
        self._submit = function(library, "sync_submit", number, number, number)
        self._take = function(library, "sync_take", number, pointer)
        self._stop = function(library, "sync_stop", number)
        self._close = function(library, "sync_close", number)
        self._outcomes = (_Outcome * capacity)()
        self._made = made = ctypes.c_int64()
        opened = function(library, "sync_open", number, number, number, pointer)
        if failure := opened(capacity, *pipe, ctypes.byref(made)):
            raise OSError(failure, os.strerror(failure))
        work = function(library, "sync_work", number)
        self._threads: list[threading.Thread] = []
        for index in range(threads):
            thread = threading.Thread(target=work, args=(made,), name=f"fsync-{index}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                self.stop()
                raise OSError(errno.EAGAIN, str(error)) from error
            self._threads.append(thread)

    def submit(self, descriptor: int, ticket: int) -> None:
        """Fsyncs the file as soon as a thread is free. It stays open until `take` has given its ticket."""
        if self._submit(self._made, descriptor, ticket):
            raise ValueError(f"{len(self._outcomes)} files wait for their fsync already")

    def take(self) -> list[tuple[int, int, int]]:
        """The tickets of the files that are done, each with its errno (0: on disk) and the nanoseconds that
        its fsync took in its thread. Empties the pipe."""
        count = self._take(self._made, self._outcomes)
        return [(each.ticket, each.error, each.took_ns) for each in self._outcomes[:count]]

    def stop(self) -> None:
        """Waits for the fsyncs under way; drops the others. Nothing may be called after it."""
        self._stop(self._made)
        for thread in self._threads:
            thread.join()
        self._close(self._made)


def sync_library() -> ctypes.CDLL | None:
    """None without compiled kernels, or on a system on which file_sync.c is empty."""
    library = load_library()
    return library if library is not None and hasattr(library, "headrace_sync_open") else None
