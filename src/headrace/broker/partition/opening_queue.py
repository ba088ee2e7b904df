# SPDX-License-Identifier: Apache-2.0
"""A queue of logs to open, a few per iteration of the event loop, which is never blocked for long (R8).

Independent of logs and of the cluster view. Read next: registry.py (which opens them), network/yielding.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from headrace.types import TopicPartition
from headrace.world import World

OPENED_PER_ITERATION = 8
"""At one to two milliseconds each, twenty on a loaded disk; other requests are served in between."""


class OpeningQueue:
    def __init__(self, world: World, open_now: Callable[[TopicPartition], None]) -> None:
        self._call_soon = world.tasks.call_soon
        self._open_now = open_now
        self._left = OPENED_PER_ITERATION
        self._waiting: dict[TopicPartition, None] = {}
        self._run_is_due = False
        self._done: list[asyncio.Future[None]] = []

    def __contains__(self, name: TopicPartition) -> bool:
        return name in self._waiting

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def waiting(self) -> Iterable[TopicPartition]:
        return self._waiting

    def now(self, name: TopicPartition) -> bool:
        """Whether the caller may open it now; if not, it is queued for a later iteration of the loop."""
        self._schedule_run()
        if self._left > 0 and not self._waiting:
            self._left -= 1
            return True
        self._waiting[name] = None
        return False

    def forget(self, name: TopicPartition) -> bool:
        """Whether it was waiting."""
        if name not in self._waiting:
            return False
        del self._waiting[name]
        return True

    def stop(self) -> None:
        self._waiting.clear()
        self._tell()

    async def done(self) -> None:
        """Returns when nothing waits."""
        if self._waiting:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._done.append(done)
            await done

    def _schedule_run(self) -> None:
        if not self._run_is_due:
            self._run_is_due = True
            self._call_soon(self._run)

    def _run(self) -> None:
        self._run_is_due = False
        self._left = OPENED_PER_ITERATION
        while self._waiting and self._left > 0:
            name = next(iter(self._waiting))
            del self._waiting[name]
            self._left -= 1
            self._schedule_run()
            self._open_now(name)
        if not self._waiting:
            self._tell()

    def _tell(self) -> None:
        done, self._done = self._done, []
        for future in done:
            if not future.done():
                future.set_result(None)
