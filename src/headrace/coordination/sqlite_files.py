# SPDX-License-Identifier: Apache-2.0
"""The two SQLite databases of the store, with blocking calls (R5, R10).

`EntryDatabase` is durable (WAL, synchronous=FULL): entries and their versions. `LeaseDatabase` holds the live
sessions: it is never fsynced, and each boot of the machine starts a new one.
Read next: sqlite.py.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from headrace.coordination import store
from headrace.coordination.recovery.integrity import DamagedDatabase, check_integrity, is_damage
from headrace.coordination.store import (
    Applied,
    Changes,
    Check,
    Conflict,
    Create,
    Delete,
    Entry,
    Operation,
    SessionLost,
    Set,
    View,
)
from headrace.errors import CoordinationError, OutcomeUnknown, newer_format

FORMAT = 1
LEASES_FORMAT = 0
"""Of the live sessions: a file that the next boot replaces, but which processes of several releases share."""
APPLICATION_ID = 0x48_52_43_4F  # "HRCO": identifies the file as ours
_BUSY_TIMEOUT_S = 1.0  # below a third of the shortest sensible lease (R10)
_SET_UP_TIMEOUT_S = 10.0
_WAL_ATTEMPTS = 50
_FOREIGN = "{} is a database of another program; use another data directory"
_READ_ALL = "SELECT key, value, version, created, owner FROM entries"
_READ_CHANGED = _READ_ALL + " INDEXED BY entries_by_version WHERE version > ?"

_TRUTH_SCHEMA = (
    "CREATE TABLE state (version INTEGER NOT NULL, horizon INTEGER NOT NULL)",
    "INSERT INTO state VALUES (0, 0)",
    """CREATE TABLE entries (key TEXT PRIMARY KEY NOT NULL, value BLOB NOT NULL,
       version INTEGER NOT NULL, created INTEGER NOT NULL, owner INTEGER)""",
    "CREATE INDEX entries_by_version ON entries (version)",
    "CREATE INDEX entries_by_owner ON entries (owner) WHERE owner IS NOT NULL",
    "CREATE TABLE removed (key TEXT PRIMARY KEY NOT NULL, version INTEGER NOT NULL)",
    "CREATE INDEX removed_by_version ON removed (version)",
)
_LEASES_SCHEMA = """CREATE TABLE IF NOT EXISTS leases (session INTEGER PRIMARY KEY, ttl_ms INTEGER NOT NULL,
       renewals INTEGER NOT NULL, renewed_at REAL NOT NULL)"""

Row = tuple[str, bytes, int, int, int | None]


class EntryDatabase:
    """The durable entries. One thread, one connection."""

    def __init__(self, path: Path, leases: LeaseDatabase, *, remembered_removals: int) -> None:
        self._leases = leases
        self._remembered_removals = remembered_removals
        self._connection = _connect(path)
        try:
            self._set_up(path)
        except BaseException:
            self._connection.close()
            raise

    def _set_up(self, path: Path) -> None:
        with _explained(f"cannot open the coordination database {path}"), _set_up_timeout(self._connection):
            _enter_wal(self._connection)
            self._connection.execute("PRAGMA synchronous = FULL")
            if self._pragma("user_version") == 0:
                self._create(path)
        if self._pragma("application_id") != APPLICATION_ID:
            raise CoordinationError(_FOREIGN.format(path))
        found = self._pragma("user_version")
        if found > FORMAT:
            raise CoordinationError(newer_format(path, found, FORMAT))
        with _explained(f"cannot check the coordination database {path}"):
            check_integrity(self._connection, path)

    def _create(self, path: Path) -> None:
        with self._transaction():
            if self._pragma("user_version") != 0:
                return  # another process created it first
            if self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                raise CoordinationError(_FOREIGN.format(path))
            for statement in _TRUTH_SCHEMA:
                self._connection.execute(statement)
            self._connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            self._connection.execute(f"PRAGMA user_version = {FORMAT}")

    def view(self) -> View:
        with _explained("cannot read the coordination database"), self._snapshot():
            version = self._state()[0]
            return View(version=version, entries=self._entries(_READ_ALL), commits=version)

    def changes_since(self, version: int) -> Changes:
        with _explained("cannot read the coordination database"), self._snapshot():
            current, horizon = self._state()
            if version >= current:
                return Changes(version=current, changed={}, commits=current)
            if version < horizon:
                entries = self._entries(_READ_ALL)
                return Changes(version=current, changed=entries, complete=True, commits=current)
            gone = self._connection.execute("SELECT key FROM removed WHERE version > ?", (version,))
            changed: dict[str, Entry | None] = {key: None for (key,) in gone}
            changed |= self._entries(_READ_CHANGED, version)
            return Changes(version=current, changed=changed, commits=current)

    def commit(self, operations: Sequence[Operation]) -> Applied | Conflict:
        with self._transaction() as transaction:
            self._check_owners(operations)
            current = self._state()[0]
            for operation in operations:
                if not self._apply(operation, current + 1):
                    transaction.rollback()
                    return Conflict(operation.key)
            if all(isinstance(operation, Check) for operation in operations):
                return Applied(current)
            self._finish(current + 1)
        return Applied(current + 1)

    def end_sessions(self, expired: Sequence[tuple[int, int | None]]) -> int:
        """End sessions that are still at that renewal count (None: any), and remove their entries.

        The lease is removed first: its holder notices at its next renewal, and a crash in between
        leaves entries without a lease, which the next call removes. Returns the store's version.
        """
        with self._transaction() as transaction:
            for session, renewals in expired:
                self._leases.remove(session, renewals)
            version = self._state()[0] + 1
            orphans = self._owners() - self._leases.sessions()
            if not orphans:
                transaction.rollback()
                return version - 1
            for owner in sorted(orphans):
                self._remove_owned(owner, version)
            self._finish(version)
        return version

    def has_orphans(self) -> bool:
        with _explained("cannot read the coordination database"):
            return bool(self._owners() - self._leases.sessions())

    def close(self) -> None:
        self._connection.close()
        self._leases.close()

    def _apply(self, operation: Operation, version: int) -> bool:
        execute = self._connection.execute
        match operation:
            case Check(store.WHOLE_STORE, expected):
                return self._state()[0] == expected
            case Check(key, expected):
                found = execute("SELECT 1 FROM entries WHERE key = ? AND version = ?", (key, expected))
                return found.fetchone() is not None
            case Create(key, value, owner):
                created = execute(
                    "INSERT INTO entries VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                    (key, value, version, version, owner),
                )
                execute("DELETE FROM removed WHERE key = ?", (key,))
                return created.rowcount == 1
            case Set(key, value, expected):
                changed = execute(
                    "UPDATE entries SET value = ?, version = ? WHERE key = ? AND version = ?",
                    (value, version, key, expected),
                )
                return changed.rowcount == 1
            case Delete(key, expected):
                gone = execute("DELETE FROM entries WHERE key = ? AND version = ?", (key, expected))
                execute("INSERT OR REPLACE INTO removed VALUES (?, ?)", (key, version))
                return gone.rowcount == 1

    def _remove_owned(self, owner: int, version: int) -> None:
        self._connection.execute(
            "INSERT OR REPLACE INTO removed SELECT key, ? FROM entries WHERE owner = ?", (version, owner)
        )
        self._connection.execute("DELETE FROM entries WHERE owner = ?", (owner,))

    def _finish(self, version: int) -> None:
        self._connection.execute("UPDATE state SET version = ?", (version,))
        surplus = self._connection.execute(
            "SELECT version FROM removed ORDER BY version DESC LIMIT 1 OFFSET ?", (self._remembered_removals,)
        ).fetchone()
        if surplus is not None:
            self._connection.execute("UPDATE state SET horizon = ?", surplus)
            self._connection.execute("DELETE FROM removed WHERE version <= ?", surplus)

    def _check_owners(self, operations: Sequence[Operation]) -> None:
        owners = {op.owner for op in operations if isinstance(op, Create) and op.owner is not None}
        for owner in owners - self._leases.sessions() if owners else ():
            raise SessionLost(f"coordination session {owner} has ended")

    def _entries(self, query: str, *arguments: int) -> dict[str, Entry]:
        return {row[0]: _entry(row) for row in sorted(self._connection.execute(query, arguments))}

    def _owners(self) -> set[int]:
        rows = self._connection.execute("SELECT DISTINCT owner FROM entries WHERE owner IS NOT NULL")
        return {owner for (owner,) in rows}

    def _state(self) -> tuple[int, int]:
        version, horizon = self._connection.execute("SELECT version, horizon FROM state").fetchone()
        return version, horizon

    def _pragma(self, name: str) -> int:
        return int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        self._connection.execute("BEGIN")
        try:
            yield
        finally:
            self._connection.execute("COMMIT")

    @contextmanager
    def _transaction(self) -> Iterator[_Transaction]:
        """A failure before COMMIT is rolled back; after a failed COMMIT the outcome is unknown."""
        with _explained("cannot write the coordination database"):
            self._connection.execute("BEGIN IMMEDIATE")
            transaction = _Transaction()
            try:
                yield transaction
                if transaction.given_up:
                    self._connection.execute("ROLLBACK")
                    return
            except BaseException:
                with suppress(sqlite3.Error):  # SQLite may have rolled back already
                    self._connection.execute("ROLLBACK")
                raise
            try:
                self._connection.execute("COMMIT")
            except sqlite3.Error as error:
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise OutcomeUnknown(f"the coordination database failed while committing: {error}") from error


class _Transaction:
    given_up = False

    def rollback(self) -> None:
        self.given_up = True


class LeaseDatabase:
    """The live sessions. Opened once per thread; each call is one transaction without fsync."""

    def __init__(self, path: Path) -> None:
        self._connection = _connect(path)
        try:
            with _explained(f"cannot open the liveness database {path}"), _set_up_timeout(self._connection):
                self._connection.execute("PRAGMA synchronous = OFF")  # first: the next line writes
                _enter_wal(self._connection)
                self._check_format(path)
                self._connection.execute(_LEASES_SCHEMA)
        except BaseException:
            self._connection.close()
            raise

    def _check_format(self, path: Path) -> None:
        found = int(self._connection.execute("PRAGMA user_version").fetchone()[0])
        if found > LEASES_FORMAT:
            raise CoordinationError(newer_format(path, found, LEASES_FORMAT))

    def add(self, session: int, ttl_ms: int, now: float) -> None:
        with _explained("cannot open a coordination session"):
            self._connection.execute("INSERT INTO leases VALUES (?, ?, 0, ?)", (session, ttl_ms, now))

    def renew(self, session: int, now: float) -> bool:
        with _explained("cannot renew a coordination session"):
            renewed = self._connection.execute(
                "UPDATE leases SET renewals = renewals + 1, renewed_at = ? WHERE session = ?", (now, session)
            )
            return renewed.rowcount == 1

    def remove(self, session: int, renewals: int | None) -> None:
        with _explained("cannot end a coordination session"):
            self._connection.execute(
                "DELETE FROM leases WHERE session = ? AND renewals = coalesce(?, renewals)",
                (session, renewals),
            )

    def sessions(self) -> set[int]:
        return {session for (session, _, _) in self.all()}

    def all(self) -> list[tuple[int, int, int]]:
        """(session, time-to-live in ms, renewals) of every lease."""
        with _explained("cannot read the liveness database"):
            return self._connection.execute("SELECT session, ttl_ms, renewals FROM leases").fetchall()

    def close(self) -> None:
        self._connection.close()


def _connect(path: Path) -> sqlite3.Connection:
    """Open with explicit transactions; the thread that uses it may differ from the one that opened it."""
    with _explained(f"cannot open {path}"):
        return sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)


@contextmanager
def _set_up_timeout(connection: sqlite3.Connection) -> Iterator[None]:
    """A longer busy timeout during set-up, when nodes start together and no lease runs yet."""
    connection.execute(f"PRAGMA busy_timeout = {_SET_UP_TIMEOUT_S * 1000:.0f}")
    yield
    connection.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_S * 1000:.0f}")


def _enter_wal(connection: sqlite3.Connection) -> None:
    """Switch to WAL. Of several processes at once, all but one get "locked" without a wait.

    Taking the write lock does wait, so the switch is retried with it.
    """
    for _ in range(_WAL_ATTEMPTS):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
        with suppress(sqlite3.OperationalError):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
    connection.execute("PRAGMA journal_mode = WAL")


@contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        kind = DamagedDatabase if is_damage(error) else CoordinationError
        raise kind(f"{what}: {error}") from error


def _entry(row: Row) -> Entry:
    _, value, version, created, owner = row
    return Entry(value=value, version=version, created=created, owner=owner)
