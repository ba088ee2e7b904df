"""The stores that the contract suite runs over. A backend opens any number of them on one state."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

from headrace.coordination.memory import MemoryState, MemoryStore, Profile
from headrace.coordination.sqlite import SqliteStore
from headrace.coordination.store import Store
from headrace.realworld import RealWorld

REMEMBERED_REMOVALS = 20
"""Few, so that a test can make a store forget."""


class Backend:
    """Stores that share one state, as processes do; closed at the end of the scenario."""

    def __init__(self, open_store: Callable[[], Awaitable[Store]], closing: AsyncExitStack) -> None:
        self._open_store = open_store
        self._closing = closing

    async def open(self) -> Store:
        store = await self._open_store()
        self._closing.push_async_callback(store.close)
        return store


Scenario = Callable[[Backend], Awaitable[None]]
Run = Callable[[Scenario], None]


BACKENDS = ("memory-sqlite", "memory-zookeeper", "sqlite")


def opener(name: str, world: RealWorld, directory: Path) -> Callable[[], Awaitable[Store]]:
    """Each call of what it returns opens a further store on the same state."""
    profile: Profile = "zookeeper" if name == "memory-zookeeper" else "sqlite"
    state = MemoryState(world, profile=profile, remembered_removals=REMEMBERED_REMOVALS)

    async def open_store() -> Store:
        if name == "sqlite":
            return await SqliteStore.open(world, directory, remembered_removals=REMEMBERED_REMOVALS)
        return MemoryStore(state, world)

    return open_store
