# SPDX-License-Identifier: Apache-2.0
"""Time that a test can move forward: a clock ahead of the system's, and an event loop that runs by it.

Clients keep the system's time; only the broker sees the other one. Read next: world.py.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable
from contextvars import Context
from typing import TypeVarTuple

Ts = TypeVarTuple("Ts")
_QUIET_ITERATIONS = 3
_LONGEST_SETTLING = 10_000


class VirtualClock:
    def __init__(self) -> None:
        self._ahead_s = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self._ahead_s

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000 + int(self._ahead_s * 1000)

    def move_to(self, monotonic: float) -> None:
        """Never backwards."""
        self._ahead_s += max(monotonic - self.monotonic(), 0.0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, clock: VirtualClock) -> None:
        self._virtual_clock = clock
        self._deadlines: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timers = 0
        self._soon = 0
        super().__init__()

    def time(self) -> float:
        return self._virtual_clock.monotonic()

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = super().call_at(when, callback, *args, context=context)
        self._timers += 1
        heapq.heappush(self._deadlines, (when, self._timers, handle))
        return handle

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        self._soon += 1
        return super().call_soon(callback, *args, context=context)

    async def advance(self, seconds: float, before_step: Callable[[], None], steps: int) -> None:
        """Moves the clock from timer to timer, so that each fires at its own time and in order.

        At most `steps` stops are made: over a long time, timers that fall between two of them fire together.
        """
        end = self.time() + seconds
        shortest = seconds / steps
        while (now := self.time()) < end:
            deadline = max(self._next_deadline(end), now + shortest)
            before_step()
            self._virtual_clock.move_to(min(deadline, end))
            await self._settle()

    def _next_deadline(self, end: float) -> float:
        now = self.time()
        while self._deadlines:
            when, _, handle = self._deadlines[0]
            if when > now and not handle.cancelled():
                return min(when, end)
            heapq.heappop(self._deadlines)
        return end

    async def _settle(self) -> None:
        """Until what the timers started has come to rest."""
        quiet = 0
        for _ in range(_LONGEST_SETTLING):
            before = self._soon
            await asyncio.sleep(0)
            quiet = quiet + 1 if self._soon - before <= 1 else 0  # one is this coroutine
            if quiet == _QUIET_ITERATIONS:
                return
