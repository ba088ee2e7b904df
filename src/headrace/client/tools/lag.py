# SPDX-License-Identifier: Apache-2.0
"""Lag of a consumer in records and in time, and when it will have caught up. Pure arithmetic.

Offsets, samples and times are arguments. The samples are read by lag_samples.py,
committed offsets and ends by groups.py. Read next: docs/groups.md, which explains the same in words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

Trend = Literal["caught up", "shrinking", "growing", "standing still"]


SAMPLED_WITHIN_MS = 10_000
"""A broker that keeps samples looks every five seconds, and needs a moment to write what it saw."""


class Sample(NamedTuple):
    """The end of a partition's log stood at `offset` at that moment."""

    offset: int
    wall_ms: int


class Sighting(NamedTuple):
    """A committed offset, or the end of a log, as it was seen at a moment."""

    wall_ms: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeBehind:
    behind_ms: int
    at_least: bool = False
    """The record was there before the oldest sample, so it is older than that."""
    by_timestamp: bool = False
    """Known from the record's own timestamp, which the producer may have set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What becomes of a lag at the present rates; `clear_ms` is None when it does not shrink."""

    trend: Trend
    clear_ms: int | None


def records_behind(committed: int | None, end: int | None) -> int | None:
    """None when nothing was committed or the end is not known. Never negative: the end may be the older
    answer of the two."""
    if committed is None or end is None:
        return None
    return max(0, end - committed)


def time_behind(samples: Sequence[Sample], committed: int, end: int, now_ms: int) -> TimeBehind | None:
    """How long the next record to be read has been there: now minus the moment at which it was appended.

    That moment lies between the samples around it and is taken from a straight line between them. The end,
    seen now, is the last sample; what is not sampled yet came lately, however long it was quiet before. None
    without any sample: one point makes no line.
    """
    if committed >= end:
        return TimeBehind(behind_ms=0)
    known = [sample for sample in samples if sample.offset <= end and sample.wall_ms <= now_ms]
    if not known:
        return None
    appended = committed + 1
    """The end stood here right after the next record had been appended."""
    if appended <= known[0].offset:
        at_least = appended < known[0].offset
        return TimeBehind(behind_ms=now_ms - known[0].wall_ms, at_least=at_least)
    before, after = known[0], Sample(end, now_ms)
    for sample in known[1:]:
        if sample.offset >= appended:
            after = sample
            break
        before = sample
    if before is known[-1]:
        before = Sample(before.offset, max(before.wall_ms, now_ms - SAMPLED_WITHIN_MS))
    return TimeBehind(behind_ms=max(0, now_ms - _moment_of(appended, before, after)))


def time_behind_by_timestamp(timestamp_ms: int | None, now_ms: int) -> TimeBehind | None:
    """Where nobody keeps samples: the age of the record at the committed offset, by its own timestamp."""
    if timestamp_ms is None:
        return None
    return TimeBehind(behind_ms=max(0, now_ms - timestamp_ms), by_timestamp=True)


def rate_of(sightings: Sequence[Sighting]) -> float | None:
    """Records per second over the sightings; None when they span no time.

    Commits come in steps (clients commit every five seconds by default). Where at least three
    steps were seen, the time between the first and the last step counts, not where the watch happened to
    begin and end.
    """
    if len(sightings) < 2 or sightings[-1].wall_ms <= sightings[0].wall_ms:
        return None
    steps = [new for old, new in pairwise(sightings) if new.offset != old.offset]
    counted = steps if len(steps) >= 3 and steps[-1].wall_ms > steps[0].wall_ms else sightings
    first, last = counted[0], counted[-1]
    return (last.offset - first.offset) * 1000 / (last.wall_ms - first.wall_ms)


def forecast(lag: int, rate_in: float, rate_out: float) -> Forecast:
    """When the lag is gone if records keep coming in and being consumed as fast as now."""
    if lag == 0:
        return Forecast(trend="caught up", clear_ms=0)
    closing = rate_out - rate_in
    if closing > 0:
        return Forecast(trend="shrinking", clear_ms=round(lag / closing * 1000))
    return Forecast(trend="growing" if closing < 0 else "standing still", clear_ms=None)


def _moment_of(offset: int, before: Sample, after: Sample) -> int:
    if after.offset <= before.offset:
        return after.wall_ms
    share = (offset - before.offset) / (after.offset - before.offset)
    return before.wall_ms + round(share * (after.wall_ms - before.wall_ms))
