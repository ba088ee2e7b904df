# SPDX-License-Identifier: Apache-2.0
"""The newest snapshot, which the pollers change and the feeds wait for. One event loop only."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

from headrace.console.state.model import Snapshot


def wall_ms() -> int:
    return int(time.time() * 1000)


class Current:
    def __init__(self, now_ms: Callable[[], int] = wall_ms) -> None:
        self.now_ms = now_ms
        self.snapshot = Snapshot(at_ms=now_ms())
        self.version = 0
        self._changed = asyncio.Event()
        self._unknown: dict[str, str] = {}

    def change(self, fold: Callable[[Snapshot], Snapshot]) -> Snapshot:
        """Sets what `fold` makes of the snapshot, and wakes those who wait for a change."""
        after = fold(self.snapshot)
        if after is not self.snapshot:
            self.snapshot = after
            self.version += 1
            self._changed.set()
            self._changed = asyncio.Event()
        return after

    def say_unknown(self, subject: str, sentence: str | None) -> None:
        """What this cluster does not tell about a subject; None: it tells it."""
        if self._unknown.get(subject) == sentence:
            return
        if sentence is None:
            del self._unknown[subject]
        else:
            self._unknown[subject] = sentence
        sentences = tuple(self._unknown[key] for key in sorted(self._unknown))
        self.change(lambda before: replace(before, unknown=sentences))

    def say_problem(self, problem: str | None) -> None:
        self.change(lambda before: before if before.problem == problem else replace(before, problem=problem))

    async def changed_since(self, version: int) -> int:
        """The version of a snapshot that is newer."""
        while self.version == version:
            await self._changed.wait()
        return self.version
