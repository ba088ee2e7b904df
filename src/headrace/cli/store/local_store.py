# SPDX-License-Identifier: Apache-2.0
"""The coordination store of a cluster that need not run, for `headrace store`.

With users/directory.py the only module of the command line that imports coordination. Read next: running.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headrace.cli.store.running import check_data_folder_is_free, check_nobody_has_open
from headrace.client.errors import ClientError
from headrace.config import NodeConfig, load_config
from headrace.config.coordination_address import SqliteAddress
from headrace.coordination.open_store import open_store
from headrace.coordination.recovery.integrity import DamagedDatabase
from headrace.coordination.restore.backups import FOLDER, back_up, list_backups, verify
from headrace.coordination.restore.declare import Declared, declare_newer
from headrace.coordination.sqlite import ENTRIES_FILE, LEASES_PREFIX
from headrace.coordination.zookeeper_security import zookeeper_security
from headrace.realworld import RealFiles, RealWorld

_RESTORING = ENTRIES_FILE + ".restoring"
_PARTS = ("-wal", "-shm", "")
"""The file itself last: without it, the others would be taken for those of the next one."""


def local_store(data: Path | None, coordination: str | None, config: Path | None) -> LocalStore:
    given = {"log.dirs": data, "headrace.coordination": coordination}
    overrides = {name: str(value) for name, value in given.items() if value is not None}
    return LocalStore(load_config(config, overrides, None))


class LocalStore:
    def __init__(self, config: NodeConfig) -> None:
        self._config = config
        self._files = RealFiles()
        self.place = config.coordination_address

    def check(self) -> dict[str, Any]:
        """Raises ClientError when the store is damaged."""
        path = self._database("check")
        with self._explained():
            commits = verify(path)
        entries = self._run(_count_entries)
        folder = path.parent / FOLDER
        backups = list_backups(self._files, folder)
        newest = str(folder / backups[-1]) if backups else None
        report = {"file": str(path), "commits": commits, "entries": entries}
        return {**report, "backups": len(backups), "newest_backup": newest}

    def backup(self, target: Path) -> dict[str, Any]:
        path, target = self._database("back up"), target.expanduser().absolute()
        if target.exists():
            raise ClientError(f"{target} exists already", next_step="name another file")
        if not target.parent.is_dir():
            raise ClientError(
                f"there is no folder {target.parent}", next_step="create it, or name another file"
            )
        with self._explained():
            back_up(self._files, path, target)
        return {"file": str(target), "commits": verify(target)}

    def restore(self, source: Path) -> dict[str, Any]:
        """The source is copied and checked before anything is replaced."""
        directory = self._sqlite_directory("restore")
        source = source.expanduser().absolute()
        path = directory / ENTRIES_FILE
        if not source.is_file():
            raise ClientError(f"there is no backup {source}", next_step=f"look into {directory / FOLDER}")
        if path.exists() and source.samefile(path):
            raise ClientError(f"{source} is the store itself", next_step="name a backup of it")
        self._files.make_directory(directory)
        self._check_stopped(path)
        back_up(self._files, source, directory / _RESTORING)
        replaced = self._set_aside(directory, [path.name + part for part in _PARTS])
        self._set_aside_leases(directory)
        self._files.rename(directory / _RESTORING, path)
        self._files.sync_directory(directory)
        declared = self._run(_declare)
        return {**_document(declared), "replaced": replaced}

    def accept(self) -> dict[str, Any]:
        if isinstance(self._config.coordination, SqliteAddress):
            path = self._database("accept")
            self._check_stopped(path)
            self._set_aside_leases(path.parent)
        return _document(self._run(_declare))

    def _check_stopped(self, path: Path) -> None:
        if self._config.explicit.get("log.dirs") or self._config.alone:
            check_data_folder_is_free(self._config.data_directory)
        check_nobody_has_open(path)

    def _set_aside(self, directory: Path, names: list[str]) -> list[str]:
        """Renames files, so that they are kept; returns their new paths."""
        stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{os.getpid()}"
        kept = []
        for name in names:
            if (directory / name).exists():
                part = next((part for part in _PARTS if part and name.endswith(part)), "")
                target = directory / f"replaced-{stamp}-{name.removesuffix(part)}{part}"
                self._files.rename(directory / name, target)
                kept.append(str(target))
        self._files.sync_directory(directory)
        return kept

    def _set_aside_leases(self, directory: Path) -> None:
        """Sessions of processes that do not run any more."""
        names = [name for name in self._files.listdir(directory) if name.startswith(LEASES_PREFIX)]
        self._set_aside(directory, names)

    def _sqlite_directory(self, verb: str) -> Path:
        if not isinstance(self._config.coordination, SqliteAddress):
            raise ClientError(
                f"{self.place} is ZooKeeper's to {verb}",
                next_step="use its own tools; after an old snapshot: headrace store accept",
            )
        return self._config.coordination_directory

    def _database(self, verb: str) -> Path:
        path = self._sqlite_directory(verb) / ENTRIES_FILE
        if not path.exists():
            raise ClientError(
                f"there is no coordination store in {path.parent}",
                next_step="check --data and --coordination",
            )
        return path

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except DamagedDatabase as error:
            folder = self._config.coordination_directory / FOLDER
            backups = list_backups(self._files, folder)
            step = None
            if backups:
                newest = folder / backups[-1]
                step = f"stop all nodes, then: headrace store restore {newest} --coordination {self.place}"
            raise ClientError(str(error), next_step=step) from error

    def _run(self, use: Any) -> Any:
        async def main() -> Any:
            world = RealWorld()
            config = self._config
            opened = await open_store(
                world, config.coordination, config.coordination_directory, zookeeper_security(config)
            )
            try:
                return await use(opened, world)
            finally:
                await opened.close()
                await world.tasks.close()

        return asyncio.run(main())


async def _declare(store: Any, world: RealWorld) -> Declared:
    return await declare_newer(store, world.random)


async def _count_entries(store: Any, world: RealWorld) -> int:
    return len((await store.view()).entries)


def _document(declared: Declared) -> dict[str, Any]:
    return {"topics": declared.topics, "partitions": declared.partitions, "commits": declared.commits}
