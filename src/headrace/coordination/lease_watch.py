# SPDX-License-Identifier: Apache-2.0
"""Decides which sessions of a shared SQLite store have expired, from this process's observations (R10).

Pure: leases and a monotonic time in, ended sessions out. Read next: sqlite.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_SHORTEST_INTERVAL_S = 0.02
_LONGEST_INTERVAL_S = 0.25
_LOOKS_PER_TTL = 16


@dataclass(slots=True)
class _Observed:
    renewals: int
    unchanged_s: float = 0.0


class LeaseWatch:
    """A lease has expired when it was observed unchanged for its whole time-to-live.

    Clocks of other processes are not used. A long gap between two observations counts as a short one, since
    a paused machine could not renew in it.
    """

    def __init__(self) -> None:
        self.next_look_s = _LONGEST_INTERVAL_S
        """Seconds until the next observation is due."""
        self.somebody_left = False
        self._observed: dict[int, _Observed] = {}
        self._looked_at: float | None = None
        self._usual_s = _LONGEST_INTERVAL_S

    def observe(self, leases: Iterable[tuple[int, int, int]], now: float) -> list[tuple[int, int | None]]:
        """(session, renewals seen) of expired leases; `somebody_left` is set when others disappeared."""
        gap_s = 0.0 if self._looked_at is None else min(now - self._looked_at, 2 * self._usual_s)
        self._looked_at = now
        before, self._observed = self._observed, {}
        ended: list[tuple[int, int | None]] = []
        usual_s = first_end_s = _LONGEST_INTERVAL_S
        for session, ttl_ms, renewals in leases:
            seen = before.pop(session, None)
            if seen is None or seen.renewals != renewals:
                seen = _Observed(renewals)
            else:
                seen.unchanged_s += gap_s
            self._observed[session] = seen
            usual_s = min(usual_s, ttl_ms / 1000 / _LOOKS_PER_TTL)
            if seen.unchanged_s * 1000 >= ttl_ms:
                ended.append((session, renewals))
            else:
                first_end_s = min(first_end_s, ttl_ms / 1000 - seen.unchanged_s)
        self.somebody_left = bool(before)
        self._usual_s = max(usual_s, _SHORTEST_INTERVAL_S)
        self.next_look_s = max(min(usual_s, first_end_s), _SHORTEST_INTERVAL_S)
        return ended
