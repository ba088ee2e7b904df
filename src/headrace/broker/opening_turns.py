"""Opening many logs takes seconds of disk and must not stop the loop: a few are opened per turn of it (R8).

Knows no log and no view: names in, a call per name. Read next: partitions.py (who opens), turns.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from headrace.types import TopicPartition
from headrace.world import World

OPENED_PER_TURN = 8
"""At a millisecond or two each, twenty on a loaded disk: others are to be served in between."""


class OpeningTurns:
    def __init__(self, world: World, open_now: Callable[[TopicPartition], None]) -> None:
        self._call_soon = world.tasks.call_soon
        self._open_now = open_now
        self._left = OPENED_PER_TURN
        self._waiting: dict[TopicPartition, None] = {}
        self._turn_is_due = False
        self._done: list[asyncio.Future[None]] = []

    def __contains__(self, name: TopicPartition) -> bool:
        return name in self._waiting

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def waiting(self) -> Iterable[TopicPartition]:
        return self._waiting

    def now(self, name: TopicPartition) -> bool:
        """Whether there is room for it in this turn; else its turn comes."""
        self._next_turn()
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

    def _next_turn(self) -> None:
        if not self._turn_is_due:
            self._turn_is_due = True
            self._call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_is_due = False
        self._left = OPENED_PER_TURN
        while self._waiting and self._left > 0:
            name = next(iter(self._waiting))
            del self._waiting[name]
            self._left -= 1
            self._next_turn()
            self._open_now(name)
        if not self._waiting:
            self._tell()

    def _tell(self) -> None:
        done, self._done = self._done, []
        for future in done:
            if not future.done():
                future.set_result(None)
