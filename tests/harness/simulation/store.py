# SPDX-License-Identifier: Apache-2.0
"""The coordination store as a simulated process sees it: with delays, disconnections and unknown outcomes.

The truth is a MemoryState. A request that was sent is carried out even if its sender dies or sleeps by then;
one that its sender gave up is either done or never will be. Read next: coordination/memory.py, node.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from headrace.coordination.memory import MemoryState, Profile
from headrace.coordination.store import (
    Applied,
    Changes,
    Conflict,
    Entry,
    Operation,
    Session,
    View,
    check_operations,
)
from headrace.errors import CoordinationError, OutcomeUnknown
from headrace.testing.simloop import Process
from headrace.testing.simworld import Simulation, SimWorld

T = TypeVar("T")

STORE_HOST = "store"
_TIMEOUT_S = (0.5, 4.0)
_LOCK_NOTICED_S = (0.01, 0.3)


class StoreCopy(NamedTuple):
    """A backup: entries without the sessions that own some of them."""

    entries: dict[str, Entry]
    modified: dict[str, int]
    version: int


class StoreServer:
    """The one store of a simulation. `late_s` is the most by which a change is noticed late."""

    def __init__(self, simulation: Simulation, profile: Profile) -> None:
        self.simulation = simulation
        self.profile = profile
        self.world = simulation.start_process(STORE_HOST)
        self.state = MemoryState(self.world, profile=profile)
        self.random = simulation.random_for("store")
        self.late_s = 0.02
        self.unknown_probability = 0.0
        """The chance that a commit's answer is lost."""
        self._sessions: dict[Process, list[int]] = {}

    def connect(self, world: SimWorld) -> SimStore:
        return SimStore(self, world)

    def opened(self, process: Process, session_id: int) -> None:
        self._sessions.setdefault(process, []).append(session_id)

    def has_session(self, process: Process) -> bool:
        """Whether the store believes it alive."""
        return any(self.state.knows_session(each) for each in self._sessions.get(process, ()))

    def expire(self, process: Process) -> None:
        """The fault: the store gives the process up, though it is alive."""
        for session_id in self._sessions.pop(process, []):
            self.state.end_session(session_id)

    def process_died(self, process: Process) -> None:
        """SQLite: others see the lock released. ZooKeeper waits until the session has run out."""
        if self.profile == "sqlite":
            delay_s = self.random.uniform(*_LOCK_NOTICED_S)
            self.world.tasks.call_later(delay_s, self.expire, process)

    def copy(self) -> StoreCopy:
        return StoreCopy(dict(self.state._entries), dict(self.state._modified), self.state.version)

    def put_back(self, older: StoreCopy) -> None:
        """The fault: the store has an earlier state again. No process may have a session."""
        state = self.state
        if any(entry.owner is not None for entry in state._entries.values()):
            raise ValueError("a process is registered")
        owned = {key for key, entry in older.entries.items() if entry.owner is not None}
        state._entries = {key: entry for key, entry in older.entries.items() if key not in owned}
        state._modified = {key: version for key, version in older.modified.items() if key not in owned}
        state._removed.clear()
        state._horizon = state.version = older.version

    def delay_s(self) -> float:
        network = self.simulation.network
        if self.profile == "zookeeper":
            return network.arrival_time() - network.loop.time()
        return self.random.uniform(0.0001, 0.004)


class _Request:
    """Given up: whoever asked got an error, so it must not happen later."""

    def __init__(self, act: Callable[[], Any], reply: asyncio.Future[Any]) -> None:
        self.act = act
        self.reply = reply
        self.given_up = False


class SimStore:
    """headrace.coordination.store.Store, for the code of one process."""

    def __init__(self, server: StoreServer, world: SimWorld) -> None:
        self._server = server
        self._world = world
        self._network = server.simulation.network
        self._sessions: list[SimSession] = []
        self._closed = False

    # -- what the broker calls ------------------------------------------------------------------------

    async def view(self) -> View:
        return await self.ask(self._server.state.view)

    async def commit(self, operations: Sequence[Operation]) -> Applied | Conflict:
        check_operations(operations)
        lost = bool(operations) and self._server.random.random() < self._server.unknown_probability
        if lost and self._server.random.random() < 0.5:
            raise OutcomeUnknown("connection lost during a commit")
        outcome = await self.ask(lambda: self._server.state.commit(operations), writes=True)
        if lost:
            raise OutcomeUnknown("connection lost before the answer to a commit")
        return outcome

    async def open_session(self, ttl_ms: int) -> Session:
        session_id = await self.ask(lambda: self._open(ttl_ms))
        session = SimSession(self, session_id, ttl_ms)
        self._sessions.append(session)
        return session

    def _open(self, ttl_ms: int) -> int:
        session_id = self._server.state.open_session(ttl_ms)
        self._server.opened(self._world.process, session_id)
        return session_id

    async def changes(self, since_version: int, timeout_ms: int) -> Changes:
        self._check_open()
        deadline = self._world.clock.monotonic() + timeout_ms / 1000
        while self._server.state.version <= since_version:
            remaining_s = deadline - self._world.clock.monotonic()
            if remaining_s <= 0:
                break
            await self._server.state.wait_for_change(remaining_s)
        await asyncio.sleep(self._server.random.uniform(0, self._server.late_s))
        await self._network.wait_connected(self._world.process.host, STORE_HOST)
        self._check_open()
        return self._server.state.changes_since(since_version)

    async def close(self) -> None:
        for session in self._sessions:
            await session.close()
        self._closed = True
        self._server.state.wake()

    def _check_open(self) -> None:
        if self._closed:
            raise CoordinationError("the coordination store is closed")

    # -- the way to the store and back -----------------------------------------------------------------

    async def ask(self, act: Callable[[], T], *, writes: bool = False) -> T:
        self._check_open()
        server, loop = self._server, self._network.loop
        request = _Request(act, loop.create_future())
        sent = not self._network.is_cut(self._world.process.host, STORE_HOST)
        if sent:
            loop.call_later(server.delay_s(), self._serve, request, context=server.world.process.context())
        try:
            async with asyncio.timeout(server.random.uniform(*_TIMEOUT_S)):
                result: T = await request.reply
        except TimeoutError:
            request.given_up = True
            error = OutcomeUnknown if writes and sent else CoordinationError
            raise error("the coordination store does not answer") from None
        return result

    def _serve(self, request: _Request) -> None:
        """In the store's process."""
        if request.given_up:
            return
        report: Callable[..., None]
        try:
            report, outcome = _succeed, request.act()
        except CoordinationError as error:
            report, outcome = _fail, error
        if not self._network.is_cut(STORE_HOST, self._world.process.host):
            context = self._world.process.context()
            delay_s = self._server.delay_s()
            self._network.loop.call_later(delay_s, report, request.reply, outcome, context=context)


def _succeed(reply: asyncio.Future[Any], result: Any) -> None:
    if not reply.done():
        reply.set_result(result)


def _fail(reply: asyncio.Future[Any], error: Exception) -> None:
    if not reply.done():
        reply.set_exception(error)


class SimSession(Session):
    def __init__(self, store: SimStore, session_id: int, ttl_ms: int) -> None:
        super().__init__(session_id, ttl_ms, store._world.clock)
        self._store = store
        self._state = store._server.state

    async def _renew(self) -> bool:
        return await self._store.ask(lambda: self._state.renew(self.id))

    async def _close(self) -> None:
        await self._store.ask(lambda: self._state.end_session(self.id))
