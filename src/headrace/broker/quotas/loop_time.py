# SPDX-License-Identifier: Apache-2.0
"""Whom the event loop works for: the time of each client's requests, for `request_percentage`.

Requests of several clients may interrupt each other: one may complete another's reply, which continues with
the next request of that connection. Knows no quotas. Read next: client_throttles.py.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, NamedTuple, TypeVar, cast

Owner = tuple[str, str]
"""User and client id."""
_T = TypeVar("_T")


class Slice(NamedTuple):
    """Time that was spent for one client."""

    owner: Owner
    seconds: float


class LoopTime:
    def __init__(self) -> None:
        self.owner: Owner | None = None
        self._since = 0.0

    def begin(self, owner: Owner | None, now: float) -> Slice | None:
        """What is to be charged for the client before; `end` takes it to return to that client."""
        before = self._slice(now)
        self.owner, self._since = owner, now
        return before

    def end(self, before: Slice | None, now: float) -> Slice | None:
        """What is to be charged."""
        ended = self._slice(now)
        self.owner, self._since = (None if before is None else before.owner), now
        return ended

    def taken(self, owner: Owner, now: float) -> float:
        """What this client has used since it was last asked; 0 when the event loop works for another one."""
        if owner != self.owner:
            return 0.0
        seconds, self._since = now - self._since, now
        return seconds

    def _slice(self, now: float) -> Slice | None:
        return None if self.owner is None else Slice(self.owner, now - self._since)


def measured(
    task: Coroutine[Any, Any, _T],
    *,
    begin: Callable[[], Slice | None],
    end: Callable[[Slice | None], None],
) -> Coroutine[Any, Any, _T]:
    """A coroutine that runs `task` with `begin` and `end` around each of its steps."""

    @types.coroutine
    def steps() -> Generator[Any, Any, _T]:
        step = _sender(task, None)
        while True:
            before = begin()
            try:
                awaited = step()
            except StopIteration as finished:
                return cast(_T, finished.value)
            finally:
                end(before)
            try:
                value = yield awaited
                step = _sender(task, value)
            except GeneratorExit:
                task.close()
                raise
            except BaseException as error:  # noqa: BLE001  it belongs to the task
                step = _thrower(task, error)

    async def run() -> _T:
        return await steps()

    return run()


def _sender(task: Coroutine[Any, Any, Any], value: Any) -> Callable[[], Any]:
    return lambda: task.send(value)


def _thrower(task: Coroutine[Any, Any, Any], error: BaseException) -> Callable[[], Any]:
    return lambda: task.throw(error)
