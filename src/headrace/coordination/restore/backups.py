# SPDX-License-Identifier: Apache-2.0
"""Backups of a SQLite store while nodes use it: single files that are verified, in a folder beside the store.

The controller takes them: exactly one node is controller, whichever nodes run, and it is the one that writes
most of what is backed up. During a change of controllers two nodes may take one each, which does no harm:
the names differ. A backup appears whole or not at all (R25). ZooKeeper's servers keep snapshots of their
own.
Read next: docs/backup.md.
"""

from __future__ import annotations

import contextlib
import logging
import re
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from headrace.coordination.recovery.integrity import DamagedDatabase, check_integrity, is_damage
from headrace.coordination.sqlite_files import APPLICATION_ID, FORMAT
from headrace.errors import CoordinationError, newer_format
from headrace.world import Files, World

FOLDER = "backups"
INTERVAL = "headrace.coordination.backup.interval.ms"
KEPT = "headrace.coordination.backups.kept"
CHECK_S = 1.0
"""How often is looked whether a backup is due."""
_RETRY_S = 60.0
_NAME = re.compile(r"coordination-(\d{8}T\d{6}\.\d{3})Z\.db")
_UNFINISHED = re.compile(r"coordination-.*\.db\.tmp(-.*)?")
_TIME = "%Y%m%dT%H%M%S.%f"
_BUSY_TIMEOUT_S = 10.0

_log = logging.getLogger(__name__)


def backup_name(wall_ms: int) -> str:
    at = datetime.fromtimestamp(wall_ms / 1000, UTC)
    return f"coordination-{at.strftime(_TIME)[:-3]}Z.db"


def taken_at_ms(name: str) -> int | None:
    """When the backup of this name was taken; None when it is not the name of one."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    return round(datetime.strptime(match[1], _TIME).replace(tzinfo=UTC).timestamp() * 1000)


def list_backups(files: Files, folder: Path) -> list[str]:
    """Names, the oldest first."""
    if not files.exists(folder):
        return []
    return [name for name in files.listdir(folder) if taken_at_ms(name) is not None]


def back_up(files: Files, source: Path, target: Path) -> None:
    """Copies the store to one file: temporary file, check, fsync, rename, fsync of the folder. Blocking."""
    if not files.exists(source):
        raise CoordinationError(f"there is no coordination database {source}")
    temporary = target.with_name(target.name + ".tmp")
    files.open(temporary, "create").close()  # private; SQLite would make it world-readable
    try:
        _copy(source, temporary)
        verify(temporary)
        file = files.open(temporary, "write")
        try:
            file.fsync()
        finally:
            file.close()
        files.rename(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            files.unlink(temporary)
        raise
    files.sync_directory(target.parent)


def _copy(source: Path, temporary: Path) -> None:
    try:
        reading, writing = sqlite3.connect(source, timeout=_BUSY_TIMEOUT_S), sqlite3.connect(temporary)
        with contextlib.closing(reading), contextlib.closing(writing):
            _check_sound(reading, source)
            writing.execute("PRAGMA synchronous = OFF")  # the whole file is fsynced when it is complete
            reading.backup(writing)
            writing.execute("PRAGMA journal_mode = DELETE")  # one file, without a write-ahead log
    except sqlite3.Error as error:
        kind = DamagedDatabase if is_damage(error) else CoordinationError
        raise kind(f"cannot copy {source} to {temporary}: {error}") from error


def verify(path: Path) -> int:
    """Raises CoordinationError when the file is no sound store; returns its number of commits."""
    try:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            _check_sound(connection, path)
            return int(connection.execute("SELECT version FROM state").fetchone()[0])
    except sqlite3.Error as error:
        if is_damage(error):
            raise DamagedDatabase(f"{path} is damaged: {error}") from error
        raise CoordinationError(f"{path} cannot be read: {error}") from error


def _check_sound(connection: sqlite3.Connection, path: Path) -> None:
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise CoordinationError(f"{path} is no coordination store of Headrace")
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    if found > FORMAT:
        raise CoordinationError(newer_format(path, found, FORMAT))
    check_integrity(connection, path)


class StoreBackups:
    """Takes a backup whenever the newest one is older than the interval, and keeps a bounded number."""

    def __init__(
        self,
        world: World,
        database: Path,
        *,
        setting: Callable[[str], int],
        is_controller: Callable[[], bool],
    ) -> None:
        self._clock = world.clock
        self._files = world.files
        self._database = database
        self._folder = database.parent / FOLDER
        self._setting = setting
        self._is_controller = is_controller
        self._thread = world.tasks.thread("coordination-backup")
        self._newest_ms: int | None = None
        self._not_before = 0.0

    @property
    def age_s(self) -> float | None:
        """Of the newest backup, on the controller; None elsewhere, and while there is none."""
        if self._newest_ms is None or not self._is_controller():
            return None
        return max(self._clock.wall_ms() - self._newest_ms, 0) / 1000

    async def take_if_due(self) -> None:
        interval_ms = self._setting(INTERVAL)
        now = self._clock.monotonic()
        if not self._is_controller() or now < self._not_before:
            return
        self._not_before = now + _RETRY_S
        if interval_ms > 0:
            await self._thread.run(self._take_if_due, interval_ms, self._setting(KEPT))
        self._not_before = now + CHECK_S

    def _take_if_due(self, interval_ms: int, kept: int) -> None:
        names = list_backups(self._files, self._folder)
        self._newest_ms = taken_at_ms(names[-1]) if names else None
        now_ms = self._clock.wall_ms()
        if self._newest_ms is not None and 0 <= now_ms - self._newest_ms < interval_ms:
            return
        self._files.make_directory(self._folder)
        name = backup_name(now_ms)
        back_up(self._files, self._database, self._folder / name)
        self._newest_ms = now_ms
        _log.debug("backed up the coordination store to %s", self._folder / name)
        self._remove_surplus(name, kept)

    def _remove_surplus(self, newest: str, kept: int) -> None:
        others = [name for name in list_backups(self._files, self._folder) if name != newest]
        surplus = others[: max(len(others) - (kept - 1), 0)]
        surplus += [name for name in self._files.listdir(self._folder) if _UNFINISHED.fullmatch(name)]
        for name in surplus:
            with contextlib.suppress(FileNotFoundError):
                self._files.unlink(self._folder / name)
