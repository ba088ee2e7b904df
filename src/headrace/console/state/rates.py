# SPDX-License-Identifier: Apache-2.0
"""Rates from offsets that were seen lately. Times are arguments; the arithmetic is client/tools/lag.py's."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import Generic, TypeVar

from headrace.client.tools.lag import Sighting, rate_of

K = TypeVar("K", bound=Hashable)

_CLOSEST_MS = 400
"""Sightings that are closer together replace each other."""


class Rates(Generic[K]):
    """Bounded: at most `window_ms / 400` sightings of each key, two of one that stands still."""

    def __init__(self, window_ms: int) -> None:
        self._window_ms = window_ms
        self._seen: dict[K, list[Sighting]] = {}

    def note(self, offsets: Mapping[K, int], at_ms: int) -> None:
        for key, offset in offsets.items():
            seen = self._seen.get(key)
            if seen is None:
                self._seen[key] = [Sighting(at_ms, offset)]
            else:
                self._add(seen, Sighting(at_ms, offset))

    def _add(self, seen: list[Sighting], new: Sighting) -> None:
        last = seen[-1]
        if new.wall_ms < last.wall_ms:
            return  # an answer that was overtaken
        if new.offset < last.offset:
            seen.clear()  # reset to an earlier place: the rate is computed from here on
        elif len(seen) > 1 and (
            last.offset == new.offset == seen[-2].offset or last.wall_ms - seen[-2].wall_ms < _CLOSEST_MS
        ):
            seen.pop()
        seen.append(new)
        while len(seen) > 2 and new.wall_ms - seen[1].wall_ms >= self._window_ms:
            del seen[0]

    def rate(self, key: K) -> float | None:
        return rate_of(self._seen.get(key, ()))

    def keep(self, keys: Collection[K]) -> None:
        """Forgets all others."""
        for gone in self._seen.keys() - set(keys):
            del self._seen[gone]
