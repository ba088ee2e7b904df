# SPDX-License-Identifier: Apache-2.0
"""How many requests a second the console sends to the whole cluster.

Whoever sends a request takes a place first, in the order of asking. Read next: broker_calls.py.
"""

from __future__ import annotations

import asyncio

REQUESTS_PER_S = 18
"""Below the promised 20: requests of views that no snapshot answers come on top."""
_BURST = 6


class RequestBudget:
    def __init__(self, per_second: float = REQUESTS_PER_S, burst: int = _BURST) -> None:
        self._interval_s = 1 / per_second
        self._burst_s = self._interval_s * burst
        self._next = 0.0
        """The time of the event loop at which all places given out so far are paid for."""

    async def take(self) -> None:
        now = asyncio.get_running_loop().time()
        self._next = max(self._next, now - self._burst_s) + self._interval_s
        wait = self._next - now
        if wait > 0:
            await asyncio.sleep(wait)
