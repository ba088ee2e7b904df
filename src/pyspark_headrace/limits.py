"""How much of what waits is read at once: a limit shared over partitions in proportion to their lag.

Pure. Read next: stream_reader.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

Place = TypeVar("Place")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of one micro-batch; None: none. `min_rows` waits for more, but not longer than `max_delay_ms`."""

    max_rows: int | None = None
    max_bytes: int | None = None
    min_rows: int | None = None
    max_delay_ms: int = 15 * 60_000

    @property
    def is_bounded(self) -> bool:
        return self.max_rows is not None or self.max_bytes is not None


def share(limit: int, lags: Mapping[Place, int]) -> dict[Place, int]:
    """Parts of `limit` by lag, none larger than its lag; whoever lags gets at least 1.

    More than `limit` in all only when more than `limit` partitions lag: a quiet one is never starved.
    """
    lagging = {place: lag for place, lag in lags.items() if lag > 0}
    total = sum(lagging.values())
    if total <= limit:
        return lagging
    parts = {place: max(1, limit * lag // total) for place, lag in lagging.items()}
    _settle(parts, lagging, limit - sum(parts.values()))
    return parts


def share_bytes(limit: int, lags: Mapping[Place, int], row_bytes: Mapping[Place, float]) -> dict[Place, int]:
    """The same for a limit of bytes, in rows; `row_bytes` is what a row of each partition takes, about."""
    sizes = {place: max(1, round(lag * row_bytes[place])) for place, lag in lags.items() if lag > 0}
    return {
        place: min(lags[place], max(1, int(part / row_bytes[place])))
        for place, part in share(limit, sizes).items()
    }


def _settle(parts: dict[Place, int], lagging: Mapping[Place, int], spare: int) -> None:
    """Gives what rounding left, or takes what the least parts cost, one each, largest lags first."""
    step = 1 if spare > 0 else -1
    while spare:
        before = spare
        for place in sorted(parts, key=lambda each: lagging[each], reverse=True):
            changed = parts[place] + step
            if spare and 1 <= changed <= lagging[place]:
                parts[place] = changed
                spare -= step
        if spare == before:
            return
