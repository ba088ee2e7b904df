# SPDX-License-Identifier: Apache-2.0
"""An event loop in a background thread, which fetches and sends while synchronous code runs.

One per read or write: nothing is shared, nothing survives a fork.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")


class IoThread:
    """`call` runs a coroutine there and waits; `close` ends every task that is left, then cleans up."""

    def __init__(self, name: str, clean_up: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._loop = uvloop.new_event_loop()
        self._clean_up = clean_up  # must leave no transport open: uvloop cannot close a loop that has one
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Runs a coroutine there without waiting; calls start in order."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        future = self.start(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # an interrupted caller leaves nothing running
            raise

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this very thread, where `call` would wait for itself."""
        return threading.current_thread() is self._thread

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        if not self.is_current:  # a finalizer may run anywhere
            self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self._loop.run_until_complete(self._clean_up())
        finally:
            self._loop.close()
