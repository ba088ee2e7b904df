# SPDX-License-Identifier: Apache-2.0
"""Measures a rate against a limit as Apache Kafka does: over sampled windows, or as a token bucket.

Times are seconds of any monotonic clock, given by the caller. Read next: client_quotas.py.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """How long a rate is measured: `samples` windows of `size_s` each."""

    samples: int = 11
    size_s: float = 1.0

    @property
    def span_s(self) -> float:
        return self.samples * self.size_s

    @property
    def full_s(self) -> float:
        """The windows but the one that is being filled: what a client may use up at once."""
        return (self.samples - 1) * self.size_s


class WindowedRate:
    """A sum over the last windows, divided by their length (Kafka's Rate and SampledStat).

    As long as fewer windows have been seen, the missing ones count as idle: a new client may begin with a
    burst. At most `samples` + 1 samples are kept, the last of which may overlap the beginning of the span.
    """

    __slots__ = ("_samples", "_window")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._samples: deque[list[float]] = deque(maxlen=window.samples + 1)  # start, last event, sum

    def record(self, value: float, now: float) -> None:
        samples = self._samples
        if not samples or now - samples[-1][0] >= self._window.size_s:
            samples.append([now, now, value])
            return
        samples[-1][1] = now
        samples[-1][2] += value

    def measure(self, now: float) -> tuple[float, float]:
        """The rate, and the seconds it was measured over."""
        samples, window = self._samples, self._window
        while samples and now - samples[0][1] >= window.span_s:
            samples.popleft()
        elapsed = now - samples[0][0] if samples else 0.0
        missing = window.samples - 1 - int(elapsed / window.size_s)
        if missing > 0:
            elapsed += missing * window.size_s
        elapsed = max(elapsed, 0.001)
        return sum(sample[2] for sample in samples) / elapsed, elapsed

    def throttle_s(self, limit: float, now: float) -> float:
        """How long to wait until the rate is within the limit again; 0 when it is."""
        rate, seconds = self.measure(now)
        return (rate - limit) / limit * seconds if rate > limit else 0.0

    def is_idle(self, now: float) -> bool:
        """Whether forgetting it changes nothing."""
        return not self._samples or now - self._samples[-1][1] >= self._window.span_s


class TokenBucket:
    """Refilled at the limit up to the burst of a whole span; may go below zero (KIP-599)."""

    __slots__ = ("_limit", "_span_s", "_tokens", "_updated_at")

    def __init__(self, window: Window, limit: float, now: float) -> None:
        self._span_s = window.span_s
        self._limit = limit
        self._tokens = limit * self._span_s
        self._updated_at = now

    def tokens(self, limit: float, now: float) -> float:
        """What is left; a limit that was altered meanwhile holds from now on."""
        grown = self._tokens + self._limit * (now - self._updated_at)
        self._limit, self._updated_at = limit, now
        self._tokens = min(limit * self._span_s, grown)
        return self._tokens

    def take(self, count: float, limit: float, now: float) -> None:
        self._tokens = self.tokens(limit, now) - count

    def throttle_s(self, limit: float, now: float) -> float:
        """How long until no token is owed."""
        return max(0.0, -self.tokens(limit, now) / limit)

    def is_idle(self, now: float) -> bool:
        return self.tokens(self._limit, now) >= self._limit * self._span_s
