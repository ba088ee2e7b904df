# SPDX-License-Identifier: Apache-2.0
"""A thread that runs an event loop by a clock which a test can move. Read next: virtual_clock.py."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from headrace.testing.embedded.virtual_clock import VirtualClock, VirtualLoop

T = TypeVar("T")


class LoopThread:
    """The limits are in real time: a broker that hangs must fail its test, not stop the whole run."""

    def __init__(self, name: str, *, longest_call_s: float = 120, longest_end_s: float = 20) -> None:
        self._longest_call_s = longest_call_s
        self._longest_end_s = longest_end_s
        self.clock = VirtualClock()
        self.loop = VirtualLoop(self.clock)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs it on the loop and waits for its result, from any other thread."""
        name = getattr(coroutine, "__qualname__", repr(coroutine))
        running = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return running.result(self._longest_call_s)
        except TimeoutError:
            if running.done():  # its own
                raise
            running.cancel()
            limit = f"{self._longest_call_s:g} s"
            raise TimeoutError(f"the test broker has not finished {name} within {limit}") from None

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(self._longest_end_s)
        if self._thread.is_alive():
            raise TimeoutError(f"the test broker has not ended its tasks within {self._longest_end_s:g} s")

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            left_over = asyncio.all_tasks(self.loop)
            for task in left_over:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*left_over, return_exceptions=True))
            self.loop.close()
