# SPDX-License-Identifier: Apache-2.0
"""Rate limits of a micro-batch: shares a limit among partitions in proportion to their lag.

Pure. Read next: reading/stream_reader.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one micro-batch; None: unlimited. `min_rows` delays a batch for at most `max_delay_ms`."""

    max_rows: int | None = None
    max_bytes: int | None = None
    min_rows: int | None = None
    max_delay_ms: int = 15 * 60_000

    @property
    def is_bounded(self) -> bool:
        return self.max_rows is not None or self.max_bytes is not None


def share(limit: int, lags: Mapping[Key, int]) -> dict[Key, int]:
    """Share `limit` by lag: no share exceeds its lag, and every lagging partition gets at least 1.

    The sum exceeds `limit` only when more than `limit` partitions lag: no partition is starved.
    """
    lagging = {key: lag for key, lag in lags.items() if lag > 0}
    total = sum(lagging.values())
    if total <= limit:
        return lagging
    parts = {key: max(1, limit * lag // total) for key, lag in lagging.items()}
    _correct_rounding(parts, lagging, limit - sum(parts.values()))
    return parts


def share_bytes(limit: int, lags: Mapping[Key, int], row_bytes: Mapping[Key, float]) -> dict[Key, int]:
    """Share a limit in bytes; the result is in rows. `row_bytes`: average row size by partition."""
    sizes = {key: max(1, round(lag * row_bytes[key])) for key, lag in lags.items() if lag > 0}
    return {
        key: min(lags[key], max(1, int(part / row_bytes[key]))) for key, part in share(limit, sizes).items()
    }


def _correct_rounding(parts: dict[Key, int], lagging: Mapping[Key, int], spare: int) -> None:
    """Distribute the rounding remainder one by one, largest lags first; a negative one is taken back."""
    step = 1 if spare > 0 else -1
    while spare:
        before = spare
        for key in sorted(parts, key=lambda each: lagging[each], reverse=True):
            changed = parts[key] + step
            if spare and 1 <= changed <= lagging[key]:
                parts[key] = changed
                spare -= step
        if spare == before:
            return
