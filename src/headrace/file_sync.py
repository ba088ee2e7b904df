# SPDX-License-Identifier: Apache-2.0
"""How the real world fsyncs files beside its event loop (`Tasks.file_sync`).

Where the kernels are compiled, their threads do it: an fsync begins at once and ends without waiting for
Python's lock. Elsewhere Python threads do. Read next: kernels/file_sync.py, world.py (`FileSync`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from concurrent.futures import ThreadPoolExecutor
from ctypes import CDLL

from headrace.kernels.file_sync import SyncThreads, sync_library
from headrace.world import File, OnSynced

logger = logging.getLogger(__name__)


class KernelFileSync:
    """Starts its threads with the first file, so that a node that flushes nothing has none."""

    def __init__(self, library: CDLL, threads: int, capacity: int) -> None:
        self._library = library
        self._thread_count = threads
        self._capacity = capacity
        self._threads: SyncThreads | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pipe: tuple[int, int] = (-1, -1)
        self._waiting: dict[int, OnSynced] = {}
        self._last_ticket = 0

    def sync(self, file: File, done: OnSynced) -> None:
        threads = self._threads or self._start()
        descriptor = file.fileno()
        assert descriptor is not None, "a file of the operating system has a descriptor"
        ticket = self._last_ticket = self._last_ticket + 1
        threads.submit(descriptor, ticket)
        self._waiting[ticket] = done

    def _start(self) -> SyncThreads:
        self._pipe = os.pipe()
        for end in self._pipe:
            os.set_blocking(end, False)
        self._threads = SyncThreads(self._library, self._thread_count, self._capacity, self._pipe)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._pipe[0], self._take)
        return self._threads

    def _take(self) -> None:
        assert self._threads is not None, "the pipe is watched while there are threads"
        for ticket, failure, took_ns in self._threads.take():
            done = self._waiting.pop(ticket)
            try:
                done(OSError(failure, os.strerror(failure)) if failure else None, took_ns / 1e9)
            except Exception:
                logger.exception("an fsync is done, and what follows it failed")

    def close(self) -> None:
        """Waits for the fsyncs under way; nobody is told of them any more."""
        if self._threads is not None and self._loop is not None:
            if not self._loop.is_closed():
                self._loop.remove_reader(self._pipe[0])
            self._threads.stop()
            for end in self._pipe:
                os.close(end)
            self._threads = self._loop = None


class ThreadFileSync:
    """Without compiled kernels."""

    def __init__(self, threads: int) -> None:
        self._executor = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="fsync")

    def sync(self, file: File, done: OnSynced) -> None:
        self._executor.submit(_sync, file, done, asyncio.get_running_loop())

    def close(self) -> None:
        self._executor.shutdown(wait=True)


def _sync(file: File, done: OnSynced, loop: asyncio.AbstractEventLoop) -> None:
    failure: OSError | None = None
    began = time.monotonic()
    try:
        file.fsync()
    except OSError as error:
        failure = error
    loop.call_soon_threadsafe(done, failure, time.monotonic() - began)


def file_sync(threads: int, capacity: int) -> KernelFileSync | ThreadFileSync:
    library = sync_library()
    return ThreadFileSync(threads) if library is None else KernelFileSync(library, threads, capacity)
