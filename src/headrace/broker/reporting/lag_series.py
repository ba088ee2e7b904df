# SPDX-License-Identifier: Apache-2.0
"""Log end offset of one partition over time, in a few samples between which it is interpolated. Pure.

client/tools/lag.py finds the time of an offset on the line between the samples around it. The older a sample,
the less a second matters, so samples get sparse towards the past: one is dropped when the interpolation
without it is good enough for its age. Read next: lag_samples.py (samples and writes).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from headrace.types import TopicId

MOST_SAMPLES = 64
RATE_OVER_MS = 60_000
_ERROR_OF_AGE = 0.04
"""A sample is needed when the interpolation without it is wrong by more than this share of its age."""
_GAP_OF_AGE = 0.8
"""Errors add up: a sample is needed when its gap would be more than this share of its age."""


class Sample(NamedTuple):
    """The log end offset at a time."""

    offset: int
    wall_ms: int


class LagSeries:
    """The samples of one partition. `changed`: they differ from what was written."""

    __slots__ = ("_seen_ms", "_still", "changed", "samples", "topic_id", "written_at")

    def __init__(self, samples: Sequence[Sample] = (), topic_id: TopicId | None = None) -> None:
        self.topic_id = topic_id
        self.samples = list(samples)
        self.changed = False
        self.written_at = 0.0
        self._seen_ms = samples[-1].wall_ms if samples else 0
        self._still = False

    def observe(self, end: int, now_ms: int) -> None:
        samples = self.samples
        if not samples or now_ms < samples[-1].wall_ms or end < samples[-1].offset:
            self._restart(end, now_ms)
        elif end == samples[-1].offset:
            self._pause(now_ms)
        else:
            self._hold_until(self._seen_ms)
            samples.append(Sample(end, now_ms))
            self.changed, self._still = True, False
        self._seen_ms = now_ms

    def _restart(self, end: int, now_ms: int) -> None:
        """The first sample; or the log was truncated or the clock set back: drops samples after this one."""
        self.samples = [each for each in self.samples if each.offset < end and each.wall_ms < now_ms]
        self.samples.append(Sample(end, now_ms))
        self.changed, self._still = True, False

    def _pause(self, now_ms: int) -> None:
        """Writes once that the log stopped growing, so that the rate becomes 0."""
        if not self._still and now_ms - self.samples[-1].wall_ms >= RATE_OVER_MS:
            self._hold_until(now_ms)
            self.changed = self._still = True

    def _hold_until(self, wall_ms: int) -> None:
        """Adds a sample at the end of a pause, which would look like slow growth otherwise."""
        samples = self.samples
        end, since_ms = samples[-1]
        if wall_ms <= since_ms:
            return
        if len(samples) > 1 and samples[-2].offset == end:
            samples.pop()
        samples.append(Sample(end, wall_ms))

    def resume(self, end: int, now_ms: int, within_ms: int) -> None:
        """After a restart: assumes that records beyond the last sample were appended within `within_ms`."""
        last = self.samples[-1]
        if last.offset < end:
            self.samples.append(Sample(end, min(last.wall_ms + within_ms, now_ms)))
            self.changed = True
        self._seen_ms = max(now_ms, self._seen_ms)

    def tidy(self, log_start: int, now_ms: int) -> None:
        """Drops samples below the log start offset and those that are not needed."""
        samples = self.samples
        below = 0
        while below + 1 < len(samples) and samples[below + 1].offset <= log_start:
            below += 1
        self.samples = thinned(samples[below:], now_ms)

    def rate_in(self, now_ms: int) -> float | None:
        return rate_in([*self.samples, Sample(self.samples[-1].offset, self._seen_ms)], now_ms)


def thinned(samples: Sequence[Sample], now_ms: int) -> list[Sample]:
    """At most MOST_SAMPLES of them, the first and the last among them."""
    kept = list(samples[:1])
    for here, after in pairwise(samples[1:]):
        if _need(kept[-1], here, after, now_ms) > 1:
            kept.append(here)
    kept += samples[1:][-1:]
    while len(kept) > MOST_SAMPLES:
        kept = _without_the_least(kept, now_ms)
    return kept


def _without_the_least(samples: list[Sample], now_ms: int) -> list[Sample]:
    """As many as must go, but no two side by side: how much one is needed depends on its neighbours."""
    threes = zip(samples, samples[1:], samples[2:], strict=False)
    needs = [_need(before, here, after, now_ms) for before, here, after in threes]
    go: set[int] = set()
    for index in sorted(range(1, len(samples) - 1), key=lambda index: needs[index - 1]):
        if len(samples) - len(go) <= MOST_SAMPLES:
            break
        if index - 1 not in go and index + 1 not in go:
            go.add(index)
    return [sample for index, sample in enumerate(samples) if index not in go]


def _need(before: Sample, here: Sample, after: Sample, now_ms: int) -> float:
    """How badly a point is needed; up to 1 the others do as well without it."""
    (first, begin_ms), (offset, wall_ms), (last, end_ms) = before, here, after
    gap_ms = end_ms - begin_ms
    line_ms = begin_ms if last == first else begin_ms + (offset - first) / (last - first) * gap_ms
    need = max(gap_ms / _GAP_OF_AGE, abs(wall_ms - line_ms) / _ERROR_OF_AGE)
    return need / max(now_ms - wall_ms, 1)


def rate_in(samples: Sequence[Sample], now_ms: int) -> float | None:
    """Records per second over the last minute, or since the first sample; None when they span no time."""
    since_ms = max(now_ms - RATE_OVER_MS, samples[0].wall_ms)
    until = samples[-1]
    if until.wall_ms <= since_ms:
        return None
    before = after = samples[0]
    for after in samples:
        if after.wall_ms >= since_ms:
            break
        before = after
    start: float = after.offset
    if after.wall_ms > before.wall_ms:
        share = (since_ms - before.wall_ms) / (after.wall_ms - before.wall_ms)
        start = before.offset + share * (after.offset - before.offset)
    return round((until.offset - start) * 1000 / (until.wall_ms - since_ms), 3)
