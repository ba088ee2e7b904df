# SPDX-License-Identifier: Apache-2.0
"""Where `headrace users` finds the users: a running cluster, or the coordination store without a node.

With store/local_store.py the only module of the command line that imports coordination.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.tools.users import UserAdmin
from headrace.config import NodeConfig, load_config
from headrace.config.coordination_address import SqliteAddress
from headrace.coordination.stored_users import StoredUsers, open_users
from headrace.coordination.zookeeper_security import zookeeper_security
from headrace.realworld import RealWorld
from headrace.scram_credential import HASH_NAMES, SALT_BYTES, UserCredentials, make_credential

T = TypeVar("T")
UserList = Mapping[str, Mapping[str, int]]
"""Iterations by user and mechanism."""


class UserDirectory(Protocol):
    def all(self) -> UserList: ...

    def set_password(self, name: str, password: bytes, iterations: int, *, new: bool) -> None:
        """`new`: there must be no such user yet; otherwise there must be one."""

    def remove(self, name: str) -> None: ...


def user_directory(
    data: Path | None, coordination: str | None, config: Path | None, cluster: Callable[[], Cluster]
) -> UserDirectory:
    """The store when it is named, by itself or by the settings of a node, else the cluster."""
    if data is None and coordination is None and config is None:
        return ClusterDirectory(cluster())
    given = {"log.dirs": data, "headrace.coordination": coordination}
    overrides = {name: str(value) for name, value in given.items() if value is not None}
    return StoreDirectory(load_config(config, overrides, None))


class ClusterDirectory:
    """Users of a running cluster, Headrace or Apache Kafka."""

    def __init__(self, cluster: str | Cluster) -> None:
        self._admin = UserAdmin(cluster)

    def all(self) -> UserList:
        return self._admin.all()

    def set_password(self, name: str, password: bytes, iterations: int, *, new: bool) -> None:
        _check_existence(name, exists=name in self._admin.all(), new=new)
        self._admin.set_password(name, password, dict.fromkeys(HASH_NAMES, iterations))

    def remove(self, name: str) -> None:
        mechanisms = self._admin.all().get(name)
        _check_existence(name, exists=mechanisms is not None, new=False)
        self._admin.remove(name, list(mechanisms or ()))


class StoreDirectory:
    """Users in the coordination store, whether or not nodes run."""

    def __init__(self, config: NodeConfig) -> None:
        self._config = config

    def all(self) -> UserList:
        self._check_there_is_one()

        async def read(users: StoredUsers) -> Mapping[str, UserCredentials]:
            return users.all()

        found = self._with_store(read)
        return {
            name: {mechanism: credential.iterations for mechanism, credential in of_user.items()}
            for name, of_user in found.items()
        }

    def set_password(self, name: str, password: bytes, iterations: int, *, new: bool) -> None:
        if not new:
            self._check_there_is_one()
        fresh = {
            mechanism: make_credential(hash_name, password, secrets.token_bytes(SALT_BYTES), iterations)
            for mechanism, hash_name in HASH_NAMES.items()
        }
        self._change(name, fresh, new=new)

    def remove(self, name: str) -> None:
        self._check_there_is_one()
        self._change(name, {}, new=False)

    def _check_there_is_one(self) -> None:
        directory = self._config.coordination_directory
        if isinstance(self._config.coordination, SqliteAddress) and not directory.exists():
            raise ClientError(
                f"there is no coordination store in {directory}", next_step="check --data and --coordination"
            )

    def _change(self, name: str, credentials: UserCredentials, *, new: bool) -> None:
        def decide(present: UserCredentials | None) -> UserCredentials:
            _check_existence(name, exists=present is not None, new=new)
            return credentials

        async def change(users: StoredUsers) -> None:
            await users.change(name, decide)

        self._with_store(change)

    def _with_store(self, use: Callable[[StoredUsers], Coroutine[Any, Any, T]]) -> T:
        async def main() -> T:
            world = RealWorld()
            if self._config.explicit.get("log.dirs"):
                world.files.make_directory(self._config.data_directory)
            opened = open_users(
                world,
                self._config.coordination,
                self._config.coordination_directory,
                zookeeper_security(self._config),
            )
            async with opened as users:
                return await use(users)

        return asyncio.run(main())


def _check_existence(name: str, *, exists: bool, new: bool) -> None:
    if exists and new:
        raise ClientError(
            f"user {name!r} exists already", next_step=f"change the password: headrace users password {name}"
        )
    if not exists and not new:
        raise ClientError(f"there is no user {name!r}", next_step="list the users: headrace users list")
