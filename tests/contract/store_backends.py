# SPDX-License-Identifier: Apache-2.0
"""The stores that the contract suite runs over. A backend opens any number of them on one state."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

from headrace.cluster.engines.zookeeper import ZooKeeperEnsemble, prepare_zookeeper
from headrace.cluster.engines.zookeeper_jars import why_zookeeper_is_missing
from headrace.coordination.memory import MemoryState, MemoryStore, Profile
from headrace.coordination.sqlite import SqliteStore
from headrace.coordination.store import Store
from headrace.coordination.zookeeper import ZooKeeperStore
from headrace.realworld import RealWorld
from tests.harness.left_out import leave_out

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


class ZooKeeperOnDemand:
    """One server for all tests of the run, started by the first that needs it. Each test has its own root."""

    def __init__(self) -> None:
        self._ensemble: ZooKeeperEnsemble | None = None
        self._roots = (f"/test-{n}/headrace" for n in itertools.count())

    def hosts(self) -> str:
        if self._ensemble is None:
            if reason := why_zookeeper_is_missing():
                leave_out("ZooKeeper", reason)
            self._folder = tempfile.TemporaryDirectory(prefix="headrace-zookeeper-")
            settings = {"fsync.warningthresholdms": "10000"}
            self._ensemble = prepare_zookeeper(Path(self._folder.name), settings=settings)
            self._ensemble.start()
        return self._ensemble.hosts

    def new_root(self) -> str:
        return next(self._roots)

    def stop(self) -> None:
        if self._ensemble is not None:
            self._ensemble.kill()
            self._ensemble = None
            self._folder.cleanup()


zookeeper = ZooKeeperOnDemand()

BACKENDS = ("memory-sqlite", "memory-zookeeper", "sqlite", "zookeeper")


def opener(name: str, world: RealWorld, directory: Path) -> Callable[[], Awaitable[Store]]:
    """Each call of what it returns opens a further store on the same state."""
    if name == "zookeeper":
        return _zookeeper_opener(world)
    profile: Profile = "zookeeper" if name == "memory-zookeeper" else "sqlite"
    state = MemoryState(world, profile=profile, remembered_removals=REMEMBERED_REMOVALS)

    async def open_store() -> Store:
        if name == "sqlite":
            return await SqliteStore.open(world, directory, remembered_removals=REMEMBERED_REMOVALS)
        return MemoryStore(state, world)

    return open_store


def _zookeeper_opener(world: RealWorld) -> Callable[[], Awaitable[Store]]:
    hosts, root = zookeeper.hosts(), zookeeper.new_root()

    async def open_store() -> Store:
        return await ZooKeeperStore.open(world, hosts, root=root, remembered_removals=REMEMBERED_REMOVALS)

    return open_store
