"""Opens the coordination store that an address names: the one place that knows every kind of store.

What needs a package that may be missing is imported when it is asked for. Read next: store.py.
"""

from __future__ import annotations

from pathlib import Path

from headrace.config.coordination_address import CoordinationAddress, ZooKeeperAddress
from headrace.coordination.sqlite import SqliteStore
from headrace.coordination.store import Store
from headrace.errors import ConfigError
from headrace.world import World


async def open_store(world: World, address: CoordinationAddress, directory: Path) -> Store:
    """`directory`: of the SQLite store, already made absolute by whoever knows the node's own."""
    if isinstance(address, ZooKeeperAddress):
        return await _open_zookeeper(world, address)
    return await SqliteStore.open(world, directory)


async def _open_zookeeper(world: World, address: ZooKeeperAddress) -> Store:
    try:
        from headrace.coordination.zookeeper import ZooKeeperStore
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "kazoo":
            raise
        raise ConfigError(
            f"zk://{address.hosts}{address.root} needs the package kazoo, which is not installed: "
            "pip install 'headrace[zookeeper]'"
        ) from error
    return await ZooKeeperStore.open(world, address.hosts, root=address.root)
