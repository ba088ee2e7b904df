"""How long a failed record waits for its next attempt. Pure: randomness is handed in."""

from __future__ import annotations

from dataclasses import dataclass

_JITTER = 0.2
"""Up to this part is taken off, so that records that failed together do not come back together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Twice as long after each failure, up to a limit."""

    first_ms: int = 100
    limit_ms: int = 10_000

    def delay_ms(self, failures: int, random: float) -> float:
        """After so many failures (from 1); `random` is from 0 up to 1."""
        doublings = min(failures - 1, 62)  # beyond that any limit is reached
        return min(self.first_ms << doublings, self.limit_ms) * (1 - _JITTER * random)
