# SPDX-License-Identifier: Apache-2.0
"""The SQLite coordination store for the processes of one host: two databases and a change signal (R5, R10).

Blocking calls run on two threads, so that a renewal never waits for the fsync of a commit. The databases are
in sqlite_files.py; this is the asyncio side: sessions, expiry of leases, changes of other processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from headrace.coordination.hosts import boot_id, network_file_system
from headrace.coordination.lease_watch import LeaseWatch
from headrace.coordination.recovery.integrity import DamagedDatabase
from headrace.coordination.restore.backups import FOLDER, list_backups
from headrace.coordination.sqlite_files import EntryDatabase, LeaseDatabase
from headrace.coordination.store import (
    Applied,
    Changes,
    Conflict,
    Operation,
    Session,
    View,
    check_operations,
)
from headrace.errors import CoordinationError
from headrace.world import File, Files, World, write_all

T = TypeVar("T")

ENTRIES_FILE = "coordination.db"
_SIGNAL_FILE = "coordination.bell"
LEASES_PREFIX = "liveness-"
_REMEMBERED_REMOVALS = 10_000
_FAST_POLL_S = 0.015
_SLOW_POLL_S = 0.25
_POLL_OFTEN_FOR_S = 60.0
_RECHECK_S = 1.0
_SESSION_ID_BITS = 62
_UNREADABLE = b""

_log = logging.getLogger(__name__)


class SqliteStore:
    """Open it with `SqliteStore.open`; any number of processes of one host may share a directory."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._entries_thread = world.tasks.thread("coordination")
        self._leases_thread = world.tasks.thread("coordination-liveness")
        self._sessions: list[_SqliteSession] = []
        self._closed = False
        self._watch: asyncio.Task[None] | None = None
        self._entries_db: EntryDatabase
        self._leases: LeaseDatabase
        self._signal: _ChangeSignal

    @classmethod
    async def open(
        cls, world: World, directory: Path, *, remembered_removals: int = _REMEMBERED_REMOVALS
    ) -> SqliteStore:
        store = cls(world)
        try:
            await store._entries_thread.run(store._open_files, directory, remembered_removals)
        except BaseException:
            store._close_threads()
            raise
        store._watch = world.tasks.spawn(store._watch_leases(), name="coordination lease watch")
        return store

    async def view(self) -> View:
        return await self._on_entries_thread(self._entries_db.view)

    async def commit(self, operations: Sequence[Operation]) -> Applied | Conflict:
        check_operations(operations)
        outcome = await self._on_entries_thread(self._commit, operations)
        self._signal.wake()
        return outcome

    async def open_session(self, ttl_ms: int) -> Session:
        self._check_open()
        session = _SqliteSession(self, self._world.random.getrandbits(_SESSION_ID_BITS), ttl_ms)
        self._sessions.append(session)
        await self._leases_thread.run(self._leases.add, session.id, ttl_ms, self._world.clock.monotonic())
        return session

    async def changes(self, since_version: int, timeout_ms: int) -> Changes:
        deadline = self._world.clock.monotonic() + timeout_ms / 1000
        while True:
            self._check_open()
            seen = self._signal.last_sent()
            found = await self._on_entries_thread(self._entries_db.changes_since, since_version)
            remaining_s = deadline - self._world.clock.monotonic()
            if found.version > since_version or remaining_s <= 0:
                return found
            # A process that died after its commit may not have sent the signal, hence the recheck.
            await self._signal.wait(seen, min(remaining_s, _RECHECK_S))

    async def close(self) -> None:
        if self._closed:
            return
        for session in self._sessions:
            with contextlib.suppress(CoordinationError):  # leftovers expire
                await session.close()
        self._closed = True
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
        self._signal.wake()
        await self._leases_thread.run(self._leases.close)
        await self._entries_thread.run(self._close_entries)
        self._close_threads()

    async def renew(self, session_id: int) -> bool:
        self._check_open()
        return await self._leases_thread.run(self._leases.renew, session_id, self._world.clock.monotonic())

    async def end_session(self, session_id: int) -> None:
        await self._on_entries_thread(self._end_sessions, [(session_id, None)])
        self._signal.wake()

    async def _on_entries_thread(self, function: Callable[..., T], *args: object) -> T:
        self._check_open()
        return await self._entries_thread.run(function, *args)

    async def _watch_leases(self) -> None:
        watch = LeaseWatch()
        while True:
            await self._world.tasks.sleep(watch.next_look_s)
            try:
                leases = await self._leases_thread.run(self._leases.all)
                if {session for session, _, _ in leases} - {session.id for session in self._sessions}:
                    self._signal.poll_often()
                expired = watch.observe(leases, self._world.clock.monotonic())
                if expired or watch.somebody_left:
                    await self._on_entries_thread(self._end_sessions, expired)
                    self._signal.wake()
            except CoordinationError as error:
                _log.warning("cannot check for expired sessions, retrying: %s", error)
            except Exception:  # noqa: BLE001  otherwise expired sessions would never be noticed
                _log.exception("cannot check for expired sessions, retrying")

    def _check_open(self) -> None:
        if self._closed:
            raise CoordinationError("the coordination store is closed")

    def _close_threads(self) -> None:
        self._entries_thread.close()
        self._leases_thread.close()

    # Below: on the entries thread.

    def _open_files(self, directory: Path, remembered_removals: int) -> None:
        files = self._world.files
        files.make_directory(directory)
        if kind := network_file_system(files, directory):
            raise CoordinationError(
                f"{directory} is on a network file system ({kind}), where SQLite loses its locks: "
                "use a directory on a local disk"
            )
        leases_path = _leases_path(files, directory)
        for path in (leases_path, directory / ENTRIES_FILE):
            files.open(path, "create").close()  # private; SQLite would make it world-readable
        self._leases = _open_leases(leases_path)
        self._signal = _ChangeSignal(self._world, files.open(directory / _SIGNAL_FILE, "create"))
        try:
            self._entries_db = EntryDatabase(
                directory / ENTRIES_FILE, _open_leases(leases_path), remembered_removals=remembered_removals
            )
        except DamagedDatabase as error:
            raise DamagedDatabase(f"{error}. {_next_step(files, directory)}") from error
        if self._entries_db.has_orphans():  # left by another boot of this machine
            self._end_sessions([])

    def _commit(self, operations: Sequence[Operation]) -> Applied | Conflict:
        outcome = self._entries_db.commit(operations)
        if isinstance(outcome, Applied):
            self._signal.send(outcome.version)
        return outcome

    def _end_sessions(self, expired: Sequence[tuple[int, int | None]]) -> None:
        self._signal.send(self._entries_db.end_sessions(expired))

    def _close_entries(self) -> None:
        self._entries_db.close()
        self._signal.close()


def _leases_path(files: Files, directory: Path) -> Path:
    """One file per boot: a reboot ends every lease, so the file needs no fsync."""
    prefix = f"{LEASES_PREFIX}{boot_id(files) or 'unknown-boot'}.db"
    for name in files.listdir(directory):
        if name.startswith(LEASES_PREFIX) and not name.startswith(prefix):
            with contextlib.suppress(FileNotFoundError):  # another node of this host is starting, too
                files.unlink(directory / name)
    return directory / prefix


def _open_leases(path: Path) -> LeaseDatabase:
    try:
        return LeaseDatabase(path)
    except DamagedDatabase as error:
        raise DamagedDatabase(
            f"{error}. It has only the sessions of running nodes: stop all nodes of this host, remove it, "
            "and start them again"
        ) from error


def _next_step(files: Files, directory: Path) -> str:
    folder = directory / FOLDER
    backups = list_backups(files, folder)
    if not backups:
        return f"There is no backup in {folder}: look for a copy of {ENTRIES_FILE} elsewhere (docs/backup.md)"
    return (
        "Stop all nodes, then restore the newest backup: "
        f"headrace store restore {folder / backups[-1]} --coordination sqlite:{directory}"
    )


class _SqliteSession(Session):
    def __init__(self, store: SqliteStore, session_id: int, ttl_ms: int) -> None:
        super().__init__(session_id, ttl_ms, store._world.clock)
        self._store = store

    async def _renew(self) -> bool:
        return await self._store.renew(self.id)

    async def _close(self) -> None:
        await self._store.end_session(self.id)


class _ChangeSignal:
    """A file with the version of the last commit, written by every process after each commit.

    Polling costs one cached read every 15 ms, less often for a process that is alone. SQLite's own files must
    not be opened for this: closing one drops the process's locks.
    """

    def __init__(self, world: World, file: File) -> None:
        self._world = world
        self._file = file
        self._own_version = file.pread(8, 0)
        self._poll_often_until = 0.0
        self._waiters: list[asyncio.Future[None]] = []

    def send(self, version: int) -> None:
        """Announce a commit, from any thread. A lost signal only delays others until their next recheck."""
        self._own_version = version.to_bytes(8, "big")
        try:
            write_all(self._file, self._own_version, 0)
        except OSError as error:
            _log.warning("cannot signal a change; other nodes see it at their next poll: %s", error)

    def poll_often(self) -> None:
        """Poll at the fast interval for a while: other processes are active."""
        self._poll_often_until = self._world.clock.monotonic() + _POLL_OFTEN_FOR_S

    def last_sent(self) -> bytes:
        try:
            return self._file.pread(8, 0)
        except OSError:
            return _UNREADABLE

    def wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, seen: bytes, timeout_s: float) -> None:
        """Wait until the signal differs from `seen`; a late signal cannot hide an earlier one."""
        deadline = self._world.clock.monotonic() + timeout_s
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def poll() -> None:
            if waiter.done():
                return
            now, version = self._world.clock.monotonic(), self.last_sent()
            if version not in (seen, self._own_version):
                self.poll_often()
            if version != seen or now >= deadline:
                waiter.set_result(None)
            else:
                pause_s = _FAST_POLL_S if now < self._poll_often_until else _SLOW_POLL_S
                self._world.tasks.call_later(min(pause_s, deadline - now), poll)

        poll()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            waiter.cancel()
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def close(self) -> None:
        self._file.close()
