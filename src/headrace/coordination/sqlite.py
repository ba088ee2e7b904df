"""The coordination store of one host: two SQLite files and a bell, shared by the node processes (R5, R10).

Blocking calls run on two threads, so that a renewal never waits for the fsync of a commit. The files are
sqlite_files.py's; this is the asyncio side: sessions, the watch over leases, noticing others' changes.
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
from headrace.coordination.sqlite_files import Leases, Truth
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

TRUTH_FILE = "coordination.db"
_BELL_FILE = "coordination.bell"
_LEASES_PREFIX = "liveness-"
_REMEMBERED_REMOVALS = 10_000
_BRISK_POLL_S = 0.015
_QUIET_POLL_S = 0.25
_BRISK_FOR_S = 60.0
_RECHECK_S = 1.0
_SESSION_ID_BITS = 62
_UNREADABLE = b""

_log = logging.getLogger(__name__)


class SqliteStore:
    """Open it with `SqliteStore.open`; any number of processes of one host may share a directory."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._truth_thread = world.tasks.thread("coordination")
        self._leases_thread = world.tasks.thread("coordination-liveness")
        self._sessions: list[_SqliteSession] = []
        self._closed = False
        self._watch: asyncio.Task[None] | None = None
        self._truth: Truth
        self._leases: Leases
        self._bell: _Bell

    @classmethod
    async def open(
        cls, world: World, directory: Path, *, remembered_removals: int = _REMEMBERED_REMOVALS
    ) -> SqliteStore:
        store = cls(world)
        try:
            await store._truth_thread.run(store._open_files, directory, remembered_removals)
        except BaseException:
            store._close_threads()
            raise
        store._watch = world.tasks.spawn(store._watch_leases(), name="coordination lease watch")
        return store

    async def view(self) -> View:
        return await self._on_truth(self._truth.view)

    async def commit(self, operations: Sequence[Operation]) -> Applied | Conflict:
        check_operations(operations)
        outcome = await self._on_truth(self._commit, operations)
        self._bell.wake()
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
            heard = self._bell.last_ring()
            found = await self._on_truth(self._truth.changes_since, since_version)
            remaining_s = deadline - self._world.clock.monotonic()
            if found.version > since_version or remaining_s <= 0:
                return found
            # The bell may have been left unrung by a process that died after its commit, hence the recheck.
            await self._bell.wait(heard, min(remaining_s, _RECHECK_S))

    async def close(self) -> None:
        if self._closed:
            return
        for session in self._sessions:
            with contextlib.suppress(CoordinationError):  # what stays behind expires
                await session.close()
        self._closed = True
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
        self._bell.wake()
        await self._leases_thread.run(self._leases.close)
        await self._truth_thread.run(self._close_truth)
        self._close_threads()

    async def renew(self, session_id: int) -> bool:
        self._check_open()
        return await self._leases_thread.run(self._leases.renew, session_id, self._world.clock.monotonic())

    async def end_session(self, session_id: int) -> None:
        await self._on_truth(self._end_sessions, [(session_id, None)])
        self._bell.wake()

    async def _on_truth(self, function: Callable[..., T], *args: object) -> T:
        self._check_open()
        return await self._truth_thread.run(function, *args)

    async def _watch_leases(self) -> None:
        watch = LeaseWatch()
        while True:
            await self._world.tasks.sleep(watch.next_look_s)
            try:
                leases = await self._leases_thread.run(self._leases.all)
                if {session for session, _, _ in leases} - {session.id for session in self._sessions}:
                    self._bell.be_brisk()
                expired = watch.observe(leases, self._world.clock.monotonic())
                if expired or watch.somebody_left:
                    await self._on_truth(self._end_sessions, expired)
                    self._bell.wake()
            except CoordinationError as error:
                _log.warning("will look again for ended sessions: %s", error)
            except Exception:  # noqa: BLE001  else nobody would notice ended sessions any more
                _log.exception("will look again for ended sessions")

    def _check_open(self) -> None:
        if self._closed:
            raise CoordinationError("the coordination store is closed")

    def _close_threads(self) -> None:
        self._truth_thread.close()
        self._leases_thread.close()

    # Below: on the truth thread.

    def _open_files(self, directory: Path, remembered_removals: int) -> None:
        files = self._world.files
        files.make_directory(directory)
        if kind := network_file_system(files, directory):
            raise CoordinationError(
                f"{directory} is on a network file system ({kind}), where SQLite loses its locks: "
                "give a directory on a local disk"
            )
        leases_path = _leases_path(files, directory)
        self._leases = Leases(leases_path)
        self._bell = _Bell(self._world, files.open(directory / _BELL_FILE, "create"))
        self._truth = Truth(
            directory / TRUTH_FILE, Leases(leases_path), remembered_removals=remembered_removals
        )
        if self._truth.has_orphans():  # left by another boot of this machine
            self._end_sessions([])

    def _commit(self, operations: Sequence[Operation]) -> Applied | Conflict:
        outcome = self._truth.commit(operations)
        if isinstance(outcome, Applied):
            self._bell.ring(outcome.version)
        return outcome

    def _end_sessions(self, expired: Sequence[tuple[int, int | None]]) -> None:
        self._bell.ring(self._truth.end_sessions(expired))

    def _close_truth(self) -> None:
        self._truth.close()
        self._bell.close()


def _leases_path(files: Files, directory: Path) -> Path:
    """A file per boot: another boot voids every lease, and what was never fsynced is never read again."""
    prefix = f"{_LEASES_PREFIX}{boot_id(files) or 'unknown-boot'}.db"
    for name in files.listdir(directory):
        if name.startswith(_LEASES_PREFIX) and not name.startswith(prefix):
            with contextlib.suppress(FileNotFoundError):  # another node of this host is starting too
                files.unlink(directory / name)
    return directory / prefix


class _SqliteSession(Session):
    def __init__(self, store: SqliteStore, session_id: int, ttl_ms: int) -> None:
        super().__init__(session_id, ttl_ms, store._world.clock)
        self._store = store

    async def _renew(self) -> bool:
        return await self._store.renew(self.id)

    async def _close(self) -> None:
        await self._store.end_session(self.id)


class _Bell:
    """Eight bytes, the version of the last commit, rung by every process after each commit.

    A plain file costs its listeners one cached read every 15 ms, and a process that is alone looks still
    more rarely. SQLite's own files must not be opened beside it: closing one drops the process's locks.
    """

    def __init__(self, world: World, file: File) -> None:
        self._world = world
        self._file = file
        self._own_ring = file.pread(8, 0)
        self._brisk_until = 0.0
        self._waiters: list[asyncio.Future[None]] = []

    def ring(self, version: int) -> None:
        """From any thread. What it tells has taken place: who does not hear it looks again before long."""
        self._own_ring = version.to_bytes(8, "big")
        try:
            write_all(self._file, self._own_ring, 0)
        except OSError as error:
            _log.warning("other nodes notice a change only when they look again: %s", error)

    def be_brisk(self) -> None:
        """There are other processes: listen closely for a while."""
        self._brisk_until = self._world.clock.monotonic() + _BRISK_FOR_S

    def last_ring(self) -> bytes:
        try:
            return self._file.pread(8, 0)
        except OSError:
            return _UNREADABLE

    def wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, heard: bytes, timeout_s: float) -> None:
        """Until it was rung after `heard` was read; a process that rings late cannot hide an earlier ring."""
        deadline = self._world.clock.monotonic() + timeout_s
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def listen() -> None:
            if waiter.done():
                return
            now, ring = self._world.clock.monotonic(), self.last_ring()
            if ring not in (heard, self._own_ring):
                self.be_brisk()
            if ring != heard or now >= deadline:
                waiter.set_result(None)
            else:
                pause_s = _BRISK_POLL_S if now < self._brisk_until else _QUIET_POLL_S
                self._world.tasks.call_later(min(pause_s, deadline - now), listen)

        listen()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            waiter.cancel()
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def close(self) -> None:
        self._file.close()
