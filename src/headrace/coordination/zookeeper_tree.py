# SPDX-License-Identifier: Apache-2.0
"""Headrace's znodes: the layout of entries, the store version and change pages in ZooKeeper.

Blocking calls, made on World threads; asyncio and session renewal are in zookeeper.py.
Reasons and measurements: docs/decisions/0009-coordination-in-zookeeper.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import (
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    OperationTimeoutError,
    RolledBackError,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.handlers.threading import KazooTimeoutError

from headrace.coordination.store import (
    WHOLE_STORE,
    Applied,
    Check,
    Conflict,
    Create,
    Delete,
    Entry,
    Operation,
    SessionLost,
    Set,
    StoreWentBack,
)
from headrace.coordination.zookeeper_mirror import Mirror
from headrace.coordination.zookeeper_reads import read_many_async
from headrace.errors import CoordinationError, OutcomeUnknown, newer_format

LAYOUT = 1
"""How entries, change pages and sessions lie below the root. Layout 1 has no mark; a later one has its number
as the data of the node `news`, so that this release refuses it."""
ANSWER_TIMEOUT_S = 5.0
"""How long reads wait for a reconnection; commits fail at once without a connection."""
_NEWS_PAGES = 128
_OPERATION_BYTES = 100  # in a packet, besides key and value
_PACKET_BYTES = 1_030_000  # ZooKeeper closes a connection that sends more than 1 MiB
_READS_AT_ONCE = 100
_READS_IN_FLIGHT = 1_000
_MAX_TURNS = 100

_UNKNOWN = (
    ConnectionLoss, ConnectionClosedError, SessionExpiredError, SessionMovedError, OperationTimeoutError,
    KazooTimeoutError,
)  # fmt: skip


class Position(NamedTuple):
    """The position of the store, from the stat of one znode."""

    version: int
    commits: int


class Tree:
    """One process's access to the tree below `root`, read through one connection.

    Every commit sets `entries` at the expected version, which counts the commits, and writes the changed keys
    to the change page of its number. Processes that are behind read the pages in between.
    """

    def __init__(
        self, client: KazooClient, root: str, remembered_removals: int, on_news: Callable[..., None]
    ) -> None:
        self.mirror = Mirror(remembered_removals=remembered_removals)
        self._client = client
        self._entries = f"{root}/entries"
        self._news = f"{root}/news"
        self._sessions = f"{root}/sessions"
        self._root = root
        self._on_news = on_news
        self._base = 0
        self._known_commits = 0
        self._disconnections = 0
        self._watched_since = 0

    def prepare(self) -> None:
        """Create the tree atomically if it does not exist."""
        with explained("cannot prepare the tree in ZooKeeper"):
            if _answer(self._client.exists_async(self._entries)) is None:
                _answer(self._client.ensure_path_async(self._root))
                transaction = self._client.transaction()
                for path in (self._sessions, self._news, *map(self._page, range(_NEWS_PAGES)), self._entries):
                    transaction.create(path)
                results = _answer(transaction.commit_async())
                failure = next((r for r in results if _is_cause(r)), None)
                if failure is not None and not isinstance(failure, NodeExistsError):
                    raise failure
            mark, _ = _answer(self._client.get_async(self._news))
            self._base = _answer(self._client.exists_async(self._entries)).czxid
        check_layout(self._news, mark)

    def restrict(self, acl: Sequence[Any]) -> None:
        """Give every entry this access list; entries of an earlier start may be open to all (S11)."""
        with explained("cannot restrict the entries in ZooKeeper"):
            present, _ = _answer(self._client.get_acls_async(self._root))
            if list(present) != list(acl):
                self._restrict_below(self._root, acl)

    def _restrict_below(self, path: str, acl: Sequence[Any]) -> None:
        """The root last: its access list says that all below it is restricted."""
        with suppress(NoNodeError):  # removed meanwhile
            for child in _answer(self._client.get_children_async(path)):
                self._restrict_below(f"{path}/{child}", acl)
            _answer(self._client.set_acls_async(path, acl))

    def on_disconnection(self) -> None:
        """Called from any thread. Watches end with a connection and are set again."""
        self._disconnections += 1

    def lease_path(self, session_id: int) -> str:
        return f"{self._sessions}/{session_id & 0xFFFFFFFFFFFFFFFF:016x}"

    # Reading

    def position(self, client: KazooClient | None = None) -> Position:
        """The latest position of the whole ensemble. `client`: a connection other than the tree's own."""
        client = client or self._client
        least = self._known_commits
        with explained("cannot read from ZooKeeper"):
            synced = client.sync_async(self._entries)
            stat = client.exists_async(self._entries)
            _answer(synced)
            return self._checked(self._position(_answer(stat)), least)

    def _checked(self, position: Position, least: int) -> Position:
        """`least`: the commits known before the question; the answer cannot have fewer, or it went back."""
        if position.commits < least:
            raise StoreWentBack(
                f"ZooKeeper has {position.commits} commits below {self._root}, and this node has read "
                f"{least}: it was restored from an older snapshot"
            )
        return position

    def catch_up(self) -> None:
        """Update the mirror to a consistent state that is not older than this call (R6).

        A read is consistent when the position was the same before and after it.
        """
        unread: set[str] = set()
        disconnections = self._disconnections
        position = self._watched_position()
        for _ in range(_MAX_TURNS):
            if position.version == self.mirror.version and self._watched_since == disconnections:
                return
            unread |= self._keys_behind(position)
            found = self._read(unread)
            after = self._watched_position()
            if after == position:
                self.mirror.fold(position.version, position.commits, found)
                self._watched_since = disconnections
                return
            position = after
        raise CoordinationError("ZooKeeper's entries change faster than they can be read")

    def _watched_position(self) -> Position:
        least = self._known_commits
        with explained("cannot read from ZooKeeper"):
            synced = self._client.sync_async(self._entries)
            stat = self._client.exists_async(self._entries, watch=self._on_news)
            _answer(synced)
            position = self._checked(self._position(_answer(stat)), least)
        self._known_commits = max(self._known_commits, position.commits)
        return position

    def _position(self, stat: Any) -> Position:
        if stat is None or stat.czxid != self._base:
            raise CoordinationError(f"{self._entries} was removed from ZooKeeper: restart the node")
        return Position(max(stat.mzxid, stat.pzxid) - self._base, stat.version)

    def _keys_behind(self, position: Position) -> set[str]:
        """Every key that may differ from the mirror. Ephemeral entries can disappear without a commit."""
        keys = self._news_between(self.mirror.commits, position.commits) if self.mirror.loaded else None
        if keys is None:
            with explained("cannot list the entries in ZooKeeper"):
                names = _answer(self._client.get_children_async(self._entries))
            keys = self.mirror.keys() | {"/" + name.replace(":", "/") for name in names}
        return keys | self.mirror.owned

    def _news_between(self, before: int, now: int) -> set[str] | None:
        """Keys changed in between; None when a page was overwritten or its keys did not fit."""
        if not 0 <= now - before <= _NEWS_PAGES:
            return None
        keys: set[str] = set()
        with explained("cannot read the news in ZooKeeper"):
            asked = [(n, self._client.get_async(self._page(n))) for n in range(before + 1, now + 1)]
            for number, answer in asked:
                head, *listed = _answer(answer)[0].decode().split("\n")
                if head != str(number):
                    return None
                keys.update(listed)
        return keys

    def _read(self, keys: Iterable[str]) -> dict[str, Entry | None]:
        found: dict[str, Entry | None] = {}
        waiting = list(keys)
        with explained("cannot read the entries in ZooKeeper"):
            for start in range(0, len(waiting), _READS_IN_FLIGHT):
                found.update(self._read_many(waiting[start : start + _READS_IN_FLIGHT]))
            owned = {key for key, entry in found.items() if entry is not None and entry.owner is not None}
            found.update(self._read_watched(owned))
        return found

    def _read_many(self, keys: Sequence[str]) -> Iterator[tuple[str, Entry | None]]:
        parts = [keys[start : start + _READS_AT_ONCE] for start in range(0, len(keys), _READS_AT_ONCE)]
        asked = [read_many_async(self._client, [self._path(key) for key in part]) for part in parts]
        for part, answer in zip(parts, asked, strict=True):
            for key, node in zip(part, _answer(answer), strict=True):
                yield key, None if node is None else self._entry(*node)

    def _read_watched(self, keys: Iterable[str]) -> Iterator[tuple[str, Entry | None]]:
        """Ephemeral entries disappear without a commit, so each is watched."""
        asked = {key: self._client.get_async(self._path(key), watch=self._on_news) for key in keys}
        for key, answer in asked.items():
            try:
                yield key, self._entry(*_answer(answer))
            except NoNodeError:
                yield key, None

    def _entry(self, value: bytes, stat: Any) -> Entry:
        return Entry(
            value=value,
            version=stat.version,
            created=stat.czxid - self._base,
            owner=stat.ephemeralOwner or None,
        )

    # Writing

    def commit(
        self, client: KazooClient, owner: int | None, operations: Sequence[Operation]
    ) -> Applied | Conflict:
        """Commit through the connection of the session that owns created entries."""
        if not operations:
            return Applied(self.position().version)
        while True:
            outcome = self._try_commit(client, owner, operations)
            if outcome is not None:
                return outcome
            self._known_commits = self.position().commits  # another process committed first

    def _try_commit(
        self, client: KazooClient, owner: int | None, operations: Sequence[Operation]
    ) -> Applied | Conflict | None:
        transaction = client.transaction()
        if owner is not None:  # removed with its session: its late writes cannot be applied (R7)
            transaction.check(self.lease_path(owner), 0)
        for operation in operations:
            self._add(transaction, operation)
        written = any(not isinstance(each, Check) for each in operations)
        if written:
            number = self._known_commits + 1
            # The page needs no condition of its own: its number is taken by the condition on `entries`.
            transaction.set_data(self._page(number), _news_page(number, operations))
            transaction.set_data(self._entries, b"", self._known_commits)
        results = self._send(client, transaction)
        failed = next((index for index, result in enumerate(results) if _is_cause(result)), None)
        if failed is None:
            if not written:
                return Applied(self.position().version)
            position = self._position(results[-1])
            self._known_commits = max(self._known_commits, position.commits)
            return Applied(position.version)
        if owner is not None:
            failed -= 1
        if failed < 0:
            raise SessionLost(f"coordination session {owner} has ended")
        return Conflict(operations[failed].key) if failed < len(operations) else None

    def _send(self, client: KazooClient, transaction: Any) -> list[Any]:
        if not client.connected:
            raise CoordinationError("ZooKeeper does not respond: no connection")
        try:
            results: list[Any] = _answer(transaction.commit_async())
        except _UNKNOWN as error:
            self._wait_for_session(client)
            raise OutcomeUnknown(f"the connection to ZooKeeper was lost in a commit: {error!r}") from error
        except KazooException as error:
            raise CoordinationError(f"ZooKeeper refused a commit: {error!r}") from error
        return results

    def _wait_for_session(self, client: KazooClient) -> None:
        """Wait until the session gets replies again: earlier requests are then applied or lost.

        The later read goes through this tree's connection, which is ordered with its own writes only.
        """
        if client is not self._client:
            with suppress(KazooException, KazooTimeoutError):
                _answer(client.sync_async("/"))

    def _add(self, transaction: Any, operation: Operation) -> None:
        path = self._path(operation.key)
        match operation:
            case Check(_, version):
                transaction.check(path, version)
            case Create(_, value, owner):
                transaction.create(path, value, ephemeral=owner is not None)
            case Set(_, value, version):
                transaction.set_data(path, value, version)
            case Delete(_, version):
                transaction.delete(path, version)

    def _path(self, key: str) -> str:
        """Entries are siblings: in ZooKeeper an ephemeral node cannot have children."""
        if key == WHOLE_STORE:
            return self._entries
        return f"{self._entries}/{key[1:].replace('/', ':')}"

    def _page(self, number: int) -> str:
        return f"{self._news}/{number % _NEWS_PAGES}"


def check_layout(path: str, mark: bytes) -> None:
    """Raises CoordinationError for a tree of a later release."""
    found = mark.decode("utf-8", "replace")
    if found and found != str(LAYOUT):
        raise CoordinationError(newer_format(f"the tree of {path} in ZooKeeper", found[:100], LAYOUT))


@contextmanager
def explained(what: str) -> Iterator[None]:
    try:
        yield
    except (KazooException, KazooTimeoutError) as error:
        raise CoordinationError(f"{what}: {error!r}") from error


def _answer(result: Any) -> Any:
    return result.get(timeout=ANSWER_TIMEOUT_S)


def _is_cause(result: Any) -> bool:
    """In a failed transaction one result is the cause; those before it were rolled back."""
    return isinstance(result, Exception) and not isinstance(result, RolledBackError)


def _news_page(number: int, operations: Sequence[Operation]) -> bytes:
    """A change page; empty of keys when they would make the packet too large."""
    keys = dict.fromkeys(each.key for each in operations if not isinstance(each, Check))
    page = "\n".join((str(number), *keys)).encode()
    spent = sum(len(each.key) + len(getattr(each, "value", b"")) + _OPERATION_BYTES for each in operations)
    return page if spent + len(page) <= _PACKET_BYTES else b"many"
