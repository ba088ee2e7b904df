"""Headrace's znodes: how entries, their one version number and the news of changes lie in ZooKeeper.

Blocking calls, made on World threads; knows no asyncio and no session's renewal: that is zookeeper.py.
Why it lies so, and what was measured: docs/decisions/0009-coordination-in-zookeeper.md.
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
    Applied,
    Check,
    Conflict,
    Create,
    Delete,
    Entry,
    Operation,
    SessionLost,
    Set,
)
from headrace.coordination.zookeeper_mirror import Mirror
from headrace.coordination.zookeeper_reads import read_many_async
from headrace.errors import CoordinationError, OutcomeUnknown

ANSWER_TIMEOUT_S = 5.0
"""Reading waits so long for a lost connection to come back; a commit is refused without one."""
_NEWS_PAGES = 128
_OPERATION_BYTES = 100  # in a packet, beside key and value
_PACKET_BYTES = 1_030_000  # ZooKeeper closes a connection that sends more than 1 MiB
_READS_AT_ONCE = 100
_READS_IN_FLIGHT = 1_000
_MAX_TURNS = 100

_UNKNOWN = (
    ConnectionLoss, ConnectionClosedError, SessionExpiredError, SessionMovedError, OperationTimeoutError,
    KazooTimeoutError,
)  # fmt: skip


class Position(NamedTuple):
    """Where the store stands: read from the stat of one node."""

    version: int
    commits: int


class Tree:
    """One process's access to the tree below `root`, read through one connection.

    Every commit sets `entries` at the version it knew, which counts the commits, and writes the keys it
    touched into the news page of its number. Whoever is behind reads the pages between.
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
        """Makes the tree when it is not there, whole or not at all."""
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
            self._base = _answer(self._client.exists_async(self._entries)).czxid

    def on_disconnection(self) -> None:
        """From any thread. Watches end with a connection: they are set again, whatever the version."""
        self._disconnections += 1

    def lease_path(self, session_id: int) -> str:
        return f"{self._sessions}/{session_id & 0xFFFFFFFFFFFFFFFF:016x}"

    # Reading

    def position(self) -> Position:
        """The newest, of the whole ensemble."""
        with explained("cannot read from ZooKeeper"):
            synced = self._client.sync_async(self._entries)
            stat = self._client.exists_async(self._entries)
            _answer(synced)
            return self._position(_answer(stat))

    def catch_up(self) -> None:
        """Brings the mirror to a state that the store had as a whole, not older than this call (R6).

        A reading counts when the position was the same before and after it.
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
        with explained("cannot read from ZooKeeper"):
            synced = self._client.sync_async(self._entries)
            stat = self._client.exists_async(self._entries, watch=self._on_news)
            _answer(synced)
            position = self._position(_answer(stat))
        self._known_commits = max(self._known_commits, position.commits)
        return position

    def _position(self, stat: Any) -> Position:
        if stat is None or stat.czxid != self._base:
            raise CoordinationError(f"{self._entries} was removed from ZooKeeper: restart the node")
        return Position(max(stat.mzxid, stat.pzxid) - self._base, stat.version)

    def _keys_behind(self, position: Position) -> set[str]:
        """Every key that may differ from the mirror. Entries of sessions can go without a commit."""
        keys = self._news_between(self.mirror.commits, position.commits) if self.mirror.loaded else None
        if keys is None:
            with explained("cannot list the entries in ZooKeeper"):
                names = _answer(self._client.get_children_async(self._entries))
            keys = self.mirror.keys() | {"/" + name.replace(":", "/") for name in names}
        return keys | self.mirror.owned

    def _news_between(self, before: int, now: int) -> set[str] | None:
        """None when a page was written over, or says that it could not hold its keys."""
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
        """Entries of sessions go without a commit, so their end is watched for each."""
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
        """Through the connection of the session that shall own what is created."""
        if not operations:
            return Applied(self.position().version)
        while True:
            outcome = self._try_commit(client, owner, operations)
            if outcome is not None:
                return outcome
            self._known_commits = self.position().commits  # another process was quicker

    def _try_commit(
        self, client: KazooClient, owner: int | None, operations: Sequence[Operation]
    ) -> Applied | Conflict | None:
        transaction = client.transaction()
        if owner is not None:  # gone with its session: a late write of an ended one cannot take place (R7)
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
            raise CoordinationError("ZooKeeper does not answer: no connection")
        try:
            results: list[Any] = _answer(transaction.commit_async())
        except _UNKNOWN as error:
            self._let_it_end(client)
            raise OutcomeUnknown(f"the connection to ZooKeeper was lost in a commit: {error!r}") from error
        except KazooException as error:
            raise CoordinationError(f"ZooKeeper refused a commit: {error!r}") from error
        return results

    def _let_it_end(self, client: KazooClient) -> None:
        """Once the session is answered again, what it sent before has taken place or never will.

        The re-reading goes through the connection of this tree, which is in order with its own writes only.
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
        """All entries lie side by side: in ZooKeeper an ephemeral node can have no children."""
        return f"{self._entries}/{key[1:].replace('/', ':')}"

    def _page(self, number: int) -> str:
        return f"{self._news}/{number % _NEWS_PAGES}"


@contextmanager
def explained(what: str) -> Iterator[None]:
    try:
        yield
    except (KazooException, KazooTimeoutError) as error:
        raise CoordinationError(f"{what}: {error!r}") from error


def _answer(result: Any) -> Any:
    return result.get(timeout=ANSWER_TIMEOUT_S)


def _is_cause(result: Any) -> bool:
    """Of a refused transaction one result says why; those before it were rolled back."""
    return isinstance(result, Exception) and not isinstance(result, RolledBackError)


def _news_page(number: int, operations: Sequence[Operation]) -> bytes:
    """Keys that would make the packet too large are left to a listing of all."""
    keys = dict.fromkeys(each.key for each in operations if not isinstance(each, Check))
    page = "\n".join((str(number), *keys)).encode()
    spent = sum(len(each.key) + len(getattr(each, "value", b"")) + _OPERATION_BYTES for each in operations)
    return page if spent + len(page) <= _PACKET_BYTES else b"many"
