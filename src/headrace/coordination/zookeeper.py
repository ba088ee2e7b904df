# SPDX-License-Identifier: Apache-2.0
"""The ZooKeeper coordination store for several hosts, through kazoo (R1-R3, R6-R8).

kazoo has its own threads and blocking calls; only this module connects them to asyncio, on World threads.
The znodes are in zookeeper_tree.py; this is the asyncio side: sessions and waiting for changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import SessionExpiredError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState
from kazoo.security import make_digest_acl

from headrace.coordination.store import (
    Applied,
    Changes,
    Conflict,
    Create,
    Operation,
    Session,
    SessionLost,
    View,
    check_operations,
)
from headrace.coordination.zookeeper_security import ZooKeeperSecurity
from headrace.coordination.zookeeper_tree import ANSWER_TIMEOUT_S, Tree, explained
from headrace.errors import CoordinationError
from headrace.world import World

T = TypeVar("T")

_log = logging.getLogger(__name__)

_REMEMBERED_REMOVALS = 10_000
_CONNECTION_TTL_MS = 10_000
_SHORTEST_TTL_MS = 2_000
_CONNECT_TIMEOUT_MS = 30_000
"""Containers of one file start together, and ZooKeeper takes longer than a node."""
_HANDSHAKES_PER_TTL = 6
_LISTEN_S = 30.0
_OPEN_TO_ALL = ZooKeeperSecurity()
_PUBLIC = (
    "the entries in ZooKeeper, and so the secret of the nodes, are open to everybody who reaches it: "
    "set zookeeper.set.acl=true (docs/security.md), or keep ZooKeeper on a network of its own"
)
_RECONNECT = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 0.5}


class ZooKeeperStore:
    """Open it with `ZooKeeperStore.open`; any number of processes on any hosts may share a root."""

    def __init__(self, world: World, hosts: str, root: str, options: Mapping[str, Any]) -> None:
        self._world = world
        self._hosts = hosts
        self._options = options
        self._root = root
        self._reading = world.tasks.thread("coordination-read")
        self._writing = world.tasks.thread("coordination-write")
        self._liveness = world.tasks.thread("coordination-liveness")
        self._listening = world.tasks.thread("coordination-listen")
        self._sessions: dict[int, _ZooKeeperSession] = {}
        self._closed = False
        self._signals = 0
        self._waiters: list[asyncio.Future[None]] = []
        self._listener: asyncio.Task[None] | None = None
        self._client = self._new_client(_CONNECTION_TTL_MS)
        self._news = self._client.handler.event_object()
        self._tree: Tree

    @classmethod
    async def open(
        cls,
        world: World,
        hosts: str,
        *,
        root: str = "/headrace",
        remembered_removals: int = _REMEMBERED_REMOVALS,
        connect_timeout_ms: int = _CONNECT_TIMEOUT_MS,
        security: ZooKeeperSecurity = _OPEN_TO_ALL,
    ) -> ZooKeeperStore:
        """`hosts` as "h1:2181,h2:2181"."""
        if not security.set_acl:
            _log.warning(_PUBLIC)
        store = cls(world, hosts, root, _client_options(security))
        store._tree = Tree(store._client, root, remembered_removals, lambda event: store._news.set())
        try:
            await store._reading.run(store._connect, connect_timeout_ms)
        except BaseException:
            await store._reading.run(_end, store._client)
            store._close_threads()
            raise
        store._listener = world.tasks.spawn(store._listen(), name="coordination news")
        return store

    async def view(self) -> View:
        return await self._read(self._tree.mirror.view)

    async def commit(self, operations: Sequence[Operation]) -> Applied | Conflict:
        self._check_open()
        check_operations(operations)
        session = self._owner(operations)
        client, owner = (self._client, None) if session is None else (session.client, session.id)
        try:
            outcome = await self._writing.run(self._tree.commit, client, owner, operations)
        finally:
            self._ring()
        return outcome

    async def open_session(self, ttl_ms: int) -> Session:
        self._check_open()
        session = _ZooKeeperSession(self, self._new_client(max(ttl_ms, _SHORTEST_TTL_MS)), ttl_ms)
        await self.on_liveness(session.connect)
        self._sessions[session.id] = session
        session.guard()
        return session

    async def changes(self, since_version: int, timeout_ms: int) -> Changes:
        deadline = self._world.clock.monotonic() + timeout_ms / 1000
        while True:
            seen = self._signals
            found = await self._read(self._tree.mirror.changes_since, since_version)
            remaining_s = deadline - self._world.clock.monotonic()
            if found.version > since_version or remaining_s <= 0:
                return found
            await self._wait(seen, remaining_s)

    async def close(self) -> None:
        if self._closed:
            return
        for session in list(self._sessions.values()):
            with contextlib.suppress(CoordinationError):  # leftovers expire
                await session.close()
        self._closed = True
        self._news.set()
        if self._listener is not None:
            await self._listener
        self._ring()
        await self._reading.run(_end, self._client)
        self._close_threads()

    def on_liveness(self, function: Callable[..., T], *args: object) -> Awaitable[T]:
        self._check_open()
        return self._liveness.run(function, *args)

    def forget(self, session: _ZooKeeperSession) -> None:
        self._sessions.pop(session.id, None)

    def _owner(self, operations: Sequence[Operation]) -> _ZooKeeperSession | None:
        owners = {each.owner for each in operations if isinstance(each, Create) and each.owner is not None}
        if not owners:
            return None
        session = self._sessions.get(owners.pop())
        if session is None or session.lost:
            raise SessionLost("the coordination session has ended, or was opened through another store")
        if owners:
            raise CoordinationError("a ZooKeeper commit can create entries of one session only")
        return session

    async def _read(self, function: Callable[..., T], *args: object) -> T:
        def caught_up() -> T:
            self._tree.catch_up()
            return function(*args)

        self._check_open()
        return await self._reading.run(caught_up)

    async def _listen(self) -> None:
        """Wake waiters when entries may have changed (level-triggered), also on a lost connection."""
        while not self._closed:
            await self._listening.run(self._wait_for_news)
            self._ring()

    def _wait_for_news(self) -> None:
        self._news.wait(_LISTEN_S)
        self._news.clear()

    def _ring(self) -> None:
        self._signals += 1
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            _wake(waiter)

    async def _wait(self, seen: int, timeout_s: float) -> None:
        """Wait for the next signal after `seen` of them."""
        if self._signals != seen:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        timer = self._world.tasks.call_later(timeout_s, _wake, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def _new_client(self, ttl_ms: int) -> KazooClient:
        """kazoo allows a handshake the session timeout divided by the number of addresses.

        Repeating the addresses makes a server that accepts and never replies (one that starts) cost less.
        """
        addresses = self._hosts.split(",")
        turns = -(-_HANDSHAKES_PER_TTL // len(addresses))
        return KazooClient(
            hosts=",".join(addresses * turns),
            timeout=ttl_ms / 1000,
            connection_retry=dict(_RECONNECT),
            **self._options,
        )

    def _connect(self, timeout_ms: int) -> None:
        _start(self._client, self._hosts, timeout_ms)
        self._client.add_listener(self._on_state)
        self._tree.prepare()
        if self._client.default_acl:
            self._tree.restrict(self._client.default_acl)
        self._tree.catch_up()

    def _on_state(self, state: str) -> None:
        """On a kazoo thread."""
        if state == KazooState.CONNECTED:
            _log.info("reconnected to ZooKeeper")
        else:
            if not self._closed:
                _log.warning("lost the connection to ZooKeeper at %s, reconnecting", self._hosts)
            self._tree.on_disconnection()
        self._news.set()

    def _check_open(self) -> None:
        if self._closed:
            raise CoordinationError("the coordination store is closed")

    def _close_threads(self) -> None:
        for thread in (self._reading, self._writing, self._liveness, self._listening):
            thread.close()


class _ZooKeeperSession(Session):
    """A separate connection whose ZooKeeper session owns the entries.

    kazoo keeps that session alive from a thread even when the loop is blocked; so a guard thread ends it when
    the loop has not renewed it for its time-to-live (R8).
    """

    def __init__(self, store: ZooKeeperStore, client: KazooClient, ttl_ms: int) -> None:
        super().__init__(0, ttl_ms, store._world.clock)
        self.client = client
        self._store = store
        self._thread = store._world.tasks.thread("coordination-guard")
        self._ended = client.handler.event_object()
        self._guarding: Awaitable[None] | None = None

    def connect(self) -> None:
        try:
            _start(self.client, self._store._hosts, max(self.ttl_ms, _SHORTEST_TTL_MS))
            self.client.add_listener(self._on_state)
            self.id = self.client.client_id[0]
            self._store._tree.position(self.client)  # an old snapshot refuses only connections that are older
            with explained("cannot open a coordination session"):
                lease = self._store._tree.lease_path(self.id)
                self.client.create_async(lease, ephemeral=True).get(timeout=ANSWER_TIMEOUT_S)
        except BaseException:
            _end(self.client)
            self._thread.close()
            raise

    def guard(self) -> None:
        self._guarding = self._thread.run(self._watch_renewals)

    def _on_state(self, state: str) -> None:
        """On a kazoo thread, and only after a reconnection: `may_have_expired` has come first (R7)."""
        if state == KazooState.LOST:
            self.lost = True
            self._ended.set()

    def _watch_renewals(self) -> None:
        while True:
            age_s = self._clock.monotonic() - self._renewed_at
            if self._ended.wait(max(self.ttl_ms / 1000 - age_s, 0.0)):
                break
            if (self._clock.monotonic() - self._renewed_at) * 1000 >= self.ttl_ms:
                self.lost = True
                break
        _end(self.client)

    async def _renew(self) -> bool:
        return await self._store.on_liveness(self._ask)

    def _ask(self) -> bool:
        """`sync` needs the ensemble's leader: a server that is cut off from it cannot renew."""
        if not self.client.connected:
            if self.lost:
                return False
            raise CoordinationError("ZooKeeper does not respond: no connection")
        try:
            with explained("cannot renew a coordination session"):
                self.client.sync_async("/").get(timeout=min(self.ttl_ms / 1000, ANSWER_TIMEOUT_S))
        except CoordinationError as error:
            if isinstance(error.__cause__, SessionExpiredError):
                return False
            raise
        return not self.lost

    async def _close(self) -> None:
        self._ended.set()
        if self._guarding is not None:
            await self._guarding
        self._thread.close()
        self._store.forget(self)


def _client_options(security: ZooKeeperSecurity) -> dict[str, Any]:
    """Arguments of KazooClient."""
    options: dict[str, Any] = {}
    if security.user is not None:
        options["auth_data"] = [("digest", f"{security.user}:{security.password}")]
    if security.set_acl:
        options["default_acl"] = [make_digest_acl(security.user, security.password, all=True)]
    if security.tls:
        options |= {"use_ssl": True, "verify_certs": True, "check_hostname": security.check_host}
        options |= {"ca": security.authorities, "certfile": security.certificate}
        options |= {"keyfile": security.certificate, "keyfile_password": security.key_password}
    return options


def _start(client: KazooClient, hosts: str, timeout_ms: int) -> None:
    _log.info("connecting to ZooKeeper at %s", hosts)
    try:
        client.start(timeout=timeout_ms / 1000)
    except KazooTimeoutError as error:
        raise CoordinationError(
            f"cannot reach ZooKeeper at {hosts} within {timeout_ms / 1000:.0f} s: "
            "check that a majority of its servers runs, and their addresses"
        ) from error


def _end(client: KazooClient) -> None:
    """End the session at once; when ZooKeeper is unreachable it expires there."""
    with contextlib.suppress(Exception):
        client.stop()
    with contextlib.suppress(Exception):
        client.close()


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
