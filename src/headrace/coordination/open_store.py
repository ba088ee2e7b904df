# SPDX-License-Identifier: Apache-2.0
"""Opens the coordination store of an address; the only module that imports every kind of store.

Implementations are imported on use. Read next: store.py.
"""

from __future__ import annotations

from pathlib import Path

from headrace.config.coordination_address import CoordinationAddress, ZooKeeperAddress
from headrace.coordination.store import Store
from headrace.coordination.zookeeper_security import ZooKeeperSecurity
from headrace.errors import ConfigError
from headrace.world import World

_OPEN_TO_ALL = ZooKeeperSecurity()


async def open_store(
    world: World,
    address: CoordinationAddress,
    directory: Path,
    security: ZooKeeperSecurity = _OPEN_TO_ALL,
) -> Store:
    """`directory`: absolute path of the SQLite store; `security`: of the connection to ZooKeeper."""
    if isinstance(address, ZooKeeperAddress):
        return await _open_zookeeper(world, address, security)
    from headrace.coordination.sqlite import SqliteStore

    return await SqliteStore.open(world, directory)


async def _open_zookeeper(world: World, address: ZooKeeperAddress, security: ZooKeeperSecurity) -> Store:
    try:
        from headrace.coordination.zookeeper import ZooKeeperStore
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "kazoo":
            raise
        raise ConfigError(
            f"zk://{address.hosts}{address.root} needs the package kazoo, which is not installed: "
            "pip install 'headrace[zookeeper]'"
        ) from error
    return await ZooKeeperStore.open(world, address.hosts, root=address.root, security=security)
