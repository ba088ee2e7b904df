# SPDX-License-Identifier: Apache-2.0
"""The timers of all machines of a node: one heap and one callback of the loop, however many there are.

A timer that is replaced or cancelled stays in the heap until its deadline and is then ignored; machines set
timers rarely, since a deadline that moves later costs nothing (machines/timers.py).
Read next: machine_driver.py (sets them).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from headrace.world import Clock, Tasks, Timer

FIRED_PER_ITERATION = 100
_ROUNDING_S = 1e-6
"""Seconds are floats: without it an alarm at 130.42 s finds 130,419 ms, and rings again at once."""


class MachineTimers:
    def __init__(self, clock: Clock, tasks: Tasks) -> None:
        self._clock = clock
        self._tasks = tasks
        self._heap: list[tuple[int, int, Callable[[int], None]]] = []
        self._count = 0
        self._alarm: Timer | None = None
        self._alarm_at_ms = 0

    def set(self, deadline_ms: int, fire: Callable[[int], None]) -> int:
        """Calls `fire` with the returned number when the monotonic clock reaches the deadline."""
        self._count += 1
        heapq.heappush(self._heap, (deadline_ms, self._count, fire))
        if self._alarm is None or deadline_ms < self._alarm_at_ms:
            self._set_alarm()
        return self._count

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._heap:
            self._alarm_at_ms = self._heap[0][0]
            delay_s = self._alarm_at_ms / 1000 + _ROUNDING_S - self._clock.monotonic()
            self._alarm = self._tasks.call_later(max(delay_s, 0.0), self._ring)

    def _ring(self) -> None:
        """Fires at most FIRED_PER_ITERATION timers, so that requests do not wait for thousands."""
        self._alarm = None
        now_ms = int(self._clock.monotonic() * 1000)
        try:
            for _ in range(FIRED_PER_ITERATION):
                if not self._heap or self._heap[0][0] > now_ms:
                    break
                _, number, fire = heapq.heappop(self._heap)
                fire(number)
        finally:  # also after an error in one of them
            self._set_alarm()

    def stop(self) -> None:
        self._heap.clear()
        self._set_alarm()
