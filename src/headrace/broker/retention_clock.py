"""The time by which records grow old: the wall clock, but not at once where it jumps ahead (R34).

A clock that was set wrong for a moment must not delete a week of records. A jump is believed after an hour in
which it stayed; a step back is believed at once, since it deletes nothing. Read next: housekeeping.py.
"""

from __future__ import annotations

import logging

from headrace.world import Clock

logger = logging.getLogger(__name__)

NOT_A_JUMP_MS = 60_000
BELIEVED_AFTER_S = 3600.0


class RetentionClock:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._believed_ms = self._ahead_ms()
        """How far the wall clock is ahead of the steady one."""
        self._seen_ms = self._believed_ms
        self._seen_since = clock.monotonic()

    def now_ms(self) -> int:
        ahead_ms, now = self._ahead_ms(), self._clock.monotonic()
        if ahead_ms - self._believed_ms <= NOT_A_JUMP_MS:
            self._believed_ms = ahead_ms
        elif abs(ahead_ms - self._seen_ms) > NOT_A_JUMP_MS:
            self._seen_ms, self._seen_since = ahead_ms, now
            logger.warning(
                "the clock jumped ahead by %d s; nothing is deleted by its time for the next hour",
                (ahead_ms - self._believed_ms) // 1000,
            )
        elif now - self._seen_since >= BELIEVED_AFTER_S:
            self._believed_ms = ahead_ms
        return self._believed_ms + int(now * 1000)

    def _ahead_ms(self) -> int:
        return self._clock.wall_ms() - int(self._clock.monotonic() * 1000)
