# SPDX-License-Identifier: Apache-2.0
"""Users in the coordination store, read and changed without a node: for the first user of a cluster.

A change is conditional on what was read, as those of the controller are, so it is safe beside running nodes.
Read next: cluster_metadata.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from headrace.config.coordination_address import CoordinationAddress
from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.coordination.documents import user_key
from headrace.coordination.open_store import open_store
from headrace.coordination.store import Applied, is_key
from headrace.coordination.zookeeper_security import ZooKeeperSecurity
from headrace.errors import ConfigError, CoordinationError
from headrace.scram_credential import UserCredentials
from headrace.world import World

_ATTEMPTS = 10


@asynccontextmanager
async def open_users(
    world: World, address: CoordinationAddress, directory: Path, security: ZooKeeperSecurity
) -> AsyncIterator[StoredUsers]:
    """`directory`: of a SQLite store, which is created when there is none; `security`: of ZooKeeper."""
    store = await open_store(world, address, directory, security)
    try:
        cluster = await ClusterMetadata.open(store, world)
    except BaseException:
        await store.close()
        raise
    try:
        yield StoredUsers(cluster)
    finally:
        await cluster.close()
        await world.tasks.close()


class StoredUsers:
    def __init__(self, cluster: ClusterMetadata) -> None:
        self._cluster = cluster

    def all(self) -> Mapping[str, UserCredentials]:
        return self._cluster.view.users

    async def change(self, name: str, decide: Callable[[UserCredentials | None], UserCredentials]) -> None:
        """Writes what `decide` makes of the present credentials (None: no such user); {} deletes the user."""
        if not name or not is_key(user_key(name)):
            raise ConfigError(f"{name[:40]!r} cannot be the name of a user: give 1 to about 80 characters")
        for _ in range(_ATTEMPTS):
            operations = self._cluster.user_operations({name: decide(self.all().get(name))})
            if isinstance(await self._cluster.commit(operations), Applied):
                await self._cluster.wait_for_own_commits()
                return
            await self._cluster.catch_up()
        raise CoordinationError(f"other changes of user {name!r} kept coming in between: try again")
