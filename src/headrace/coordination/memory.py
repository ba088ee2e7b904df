# SPDX-License-Identifier: Apache-2.0
"""A coordination store in memory, for tests and simulation: deterministic, without a thread.

One MemoryState is the "server"; each node of a simulation opens its own MemoryStore on it. The profile
imitates a real store: `sqlite`, or `zookeeper` (versions that restart, unknown outcomes).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import takewhile
from typing import Literal

from headrace.coordination.store import (
    WHOLE_STORE,
    Applied,
    Changes,
    Check,
    Conflict,
    Create,
    Delete,
    Entry,
    Operation,
    Session,
    SessionLost,
    Set,
    View,
    check_operations,
)
from headrace.errors import CoordinationError, OutcomeUnknown
from headrace.world import Timer, World

Profile = Literal["sqlite", "zookeeper"]


class Fault(Enum):
    """A fault injected into the next commit."""

    UNAVAILABLE = "refused before anything happened"
    UNKNOWN_NOT_APPLIED = "connection lost before the store had it"
    UNKNOWN_APPLIED = "connection lost before the answer"


@dataclass(slots=True)
class _Lease:
    ttl_ms: int
    timer: Timer


class MemoryState:
    """State shared by all stores on it. Sessions expire here, as on a server."""

    def __init__(
        self, world: World, *, profile: Profile = "sqlite", remembered_removals: int = 10_000
    ) -> None:
        self.version = 0
        self._world = world
        self._starts_anew = profile == "zookeeper"
        self._entries: dict[str, Entry] = {}
        self._modified: dict[str, int] = {}  # both in the order of their versions
        self._removed: dict[str, int] = {}
        self._remembered_removals = remembered_removals
        self._horizon = 0
        self._leases: dict[int, _Lease] = {}
        self._last_session = 0
        self._waiters: list[asyncio.Future[None]] = []

    def view(self) -> View:
        return View(version=self.version, entries=dict(sorted(self._entries.items())), commits=self.version)

    def commit(self, operations: Sequence[Operation]) -> Applied | Conflict:
        self._check_owners(operations)
        version = self.version + 1
        touched: dict[str, Entry | None] = {}
        for operation in operations:
            if operation.key == WHOLE_STORE:
                if isinstance(operation, Check) and operation.version == self.version:
                    continue
                return Conflict(operation.key)
            current = touched[operation.key] if operation.key in touched else self._entries.get(operation.key)
            expected = None if isinstance(operation, Create) else operation.version
            if (None if current is None else current.version) != expected:
                return Conflict(operation.key)
            if not isinstance(operation, Check):
                touched[operation.key] = self._written(operation, current, version)
        if touched:
            self._apply(touched, version)
        return Applied(self.version)

    def changes_since(self, version: int) -> Changes:
        if version < self._horizon:
            return Changes(
                version=self.version, changed=self.view().entries, complete=True, commits=self.version
            )
        changed: dict[str, Entry | None] = dict.fromkeys(_after(self._removed, version))
        changed.update((key, self._entries[key]) for key in _after(self._modified, version))
        return Changes(version=self.version, changed=dict(sorted(changed.items())), commits=self.version)

    async def wait_for_change(self, timeout_s: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(woken)
        timer = self._world.tasks.call_later(timeout_s, _wake, woken)
        try:
            await woken
        finally:
            timer.cancel()
            if woken in self._waiters:
                self._waiters.remove(woken)

    def wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            _wake(waiter)

    def open_session(self, ttl_ms: int) -> int:
        self._last_session += 1
        self._leases[self._last_session] = _Lease(ttl_ms, self._timer(self._last_session, ttl_ms))
        return self._last_session

    def renew(self, session_id: int) -> bool:
        lease = self._leases.get(session_id)
        if lease is None:
            return False
        lease.timer.cancel()
        lease.timer = self._timer(session_id, lease.ttl_ms)
        return True

    def knows_session(self, session_id: int) -> bool:
        return session_id in self._leases

    def end_session(self, session_id: int) -> None:
        """End a session; simulations use it to expire one early."""
        lease = self._leases.pop(session_id, None)
        if lease is None:
            return
        lease.timer.cancel()
        owned = [key for key, entry in self._entries.items() if entry.owner == session_id]
        if owned:
            self._apply(dict.fromkeys(owned), self.version + 1)

    def _timer(self, session_id: int, ttl_ms: int) -> Timer:
        return self._world.tasks.call_later(ttl_ms / 1000, self.end_session, session_id)

    def _check_owners(self, operations: Sequence[Operation]) -> None:
        for operation in operations:
            owner = operation.owner if isinstance(operation, Create) else None
            if owner is not None and owner not in self._leases:
                raise SessionLost(f"coordination session {owner} has ended")

    def _written(self, operation: Create | Set | Delete, current: Entry | None, version: int) -> Entry | None:
        if isinstance(operation, Delete):
            return None
        if current is None:
            owner = operation.owner if isinstance(operation, Create) else None
            first = 0 if self._starts_anew else version
            return Entry(value=operation.value, version=first, created=version, owner=owner)
        following = current.version + 1 if self._starts_anew else version
        return replace(current, value=operation.value, version=following)

    def _apply(self, touched: dict[str, Entry | None], version: int) -> None:
        self.version = version
        for key, entry in touched.items():
            self._modified.pop(key, None)
            self._removed.pop(key, None)
            if entry is not None:
                self._entries[key] = entry
                self._modified[key] = version
            elif self._entries.pop(key, None) is not None:
                self._removed[key] = version
        self._forget_old_removals()
        self.wake()

    def _forget_old_removals(self) -> None:
        while len(self._removed) > self._remembered_removals:
            oldest = next(iter(self._removed))
            self._horizon = self._removed.pop(oldest)


def _after(versions: dict[str, int], version: int) -> Iterator[str]:
    """Keys above the version; the mapping is ordered by version, so older ones are not visited."""
    return takewhile(lambda key: versions[key] > version, reversed(versions))


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class MemorySession(Session):
    def __init__(self, state: MemoryState, world: World, ttl_ms: int) -> None:
        super().__init__(state.open_session(ttl_ms), ttl_ms, world.clock)
        self._state = state

    async def _renew(self) -> bool:
        return self._state.renew(self.id)

    async def _close(self) -> None:
        self._state.end_session(self.id)


class MemoryStore:
    """One process's connection to a MemoryState. Each of its next commits consumes one of `faults`."""

    def __init__(self, state: MemoryState, world: World) -> None:
        self.faults: list[Fault] = []
        self._state = state
        self._world = world
        self._sessions: list[MemorySession] = []
        self._closed = False

    async def view(self) -> View:
        self._check_open()
        return self._state.view()

    async def commit(self, operations: Sequence[Operation]) -> Applied | Conflict:
        self._check_open()
        check_operations(operations)
        fault = self.faults.pop(0) if self.faults else None
        if fault is Fault.UNAVAILABLE:
            raise CoordinationError("the coordination store does not respond")
        if fault is Fault.UNKNOWN_NOT_APPLIED:
            raise OutcomeUnknown("connection lost during a commit")
        outcome = self._state.commit(operations)
        if fault is Fault.UNKNOWN_APPLIED:
            raise OutcomeUnknown("connection lost during a commit")
        return outcome

    async def open_session(self, ttl_ms: int) -> Session:
        self._check_open()
        session = MemorySession(self._state, self._world, ttl_ms)
        self._sessions.append(session)
        return session

    async def changes(self, since_version: int, timeout_ms: int) -> Changes:
        self._check_open()
        deadline = self._world.clock.monotonic() + timeout_ms / 1000
        while self._state.version <= since_version:
            remaining_s = deadline - self._world.clock.monotonic()
            if remaining_s <= 0:
                break
            await self._state.wait_for_change(remaining_s)
            self._check_open()
        return self._state.changes_since(since_version)

    async def close(self) -> None:
        self._closed = True
        for session in self._sessions:
            await session.close()
        self._state.wake()

    def _check_open(self) -> None:
        if self._closed:
            raise CoordinationError("the coordination store is closed")
