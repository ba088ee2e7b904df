# SPDX-License-Identifier: Apache-2.0
"""The clock for retention: the wall clock, with jumps ahead accepted only after an hour (R34).

A clock that was set wrong for a moment must not delete a week of records. A step back is accepted at once,
since it deletes nothing. Read next: housekeeping.py.
"""

from __future__ import annotations

import logging

from headrace.world import Clock

logger = logging.getLogger(__name__)

NOT_A_JUMP_MS = 60_000
ACCEPTED_AFTER_S = 3600.0


class RetentionClock:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._accepted_ms = self._ahead_ms()
        """How far the wall clock is ahead of the steady one."""
        self._seen_ms = self._accepted_ms
        self._seen_since = clock.monotonic()

    def now_ms(self) -> int:
        ahead_ms, now = self._ahead_ms(), self._clock.monotonic()
        if ahead_ms - self._accepted_ms <= NOT_A_JUMP_MS:
            self._accepted_ms = ahead_ms
        elif abs(ahead_ms - self._seen_ms) > NOT_A_JUMP_MS:
            self._seen_ms, self._seen_since = ahead_ms, now
            logger.warning(
                "the clock jumped ahead by %d s; nothing is deleted by its time for the next hour",
                (ahead_ms - self._accepted_ms) // 1000,
            )
        elif now - self._seen_since >= ACCEPTED_AFTER_S:
            self._accepted_ms = ahead_ms
        return self._accepted_ms + int(now * 1000)

    def _ahead_ms(self) -> int:
        return self._clock.wall_ms() - int(self._clock.monotonic() * 1000)
