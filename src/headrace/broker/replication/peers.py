# SPDX-License-Identifier: Apache-2.0
"""Connections to the other nodes of the cluster, and detection of a node that is down.

One connection for each peer and purpose: a broker answers the requests of a connection in order, so a long
poll must not delay urgent requests. Addresses come from the view. Independent of partitions; what happens to
a dead node is decided in controller/loop.py. Read next: client/connection.py, replication/fetcher.py.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from headrace.broker.network.request_context import EncodedReply
from headrace.broker.security.node_login import NodeLogin
from headrace.client.connection import Connection, RequestTimedOut
from headrace.client.errors import ClientError
from headrace.errors import HeadraceError
from headrace.types import ClusterView, Endpoint, Node
from headrace.wire.api_table import SPOKEN_APIS
from headrace.world import TlsContext, World

logger = logging.getLogger(__name__)

CONTROL, FORWARD, FETCH, FETCH_IDLE, WATCH = "control", "forward", "fetch", "idle fetch", "watch"
VIEW = "view"
REPAIR = "repair"
PEER_CLIENT = "node-"
"""Prefix of the client ids of nodes."""
CONNECT_TIMEOUT_MS = 2_000
_PROBES = 5
_PROBE_PAUSE_S = 0.02
"""A process that exits closes its connections and its listener one after the other."""
_WATCH_AGAIN_S = 0.5

OnRefused = Callable[[int, int], None]
"""Called with node id and node epoch of a peer whose connection ended and that refuses new ones."""


class PeerLost(HeadraceError):
    """No reply from a peer. `sent` False: the request was certainly not sent."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class PeerTimedOut(PeerLost):
    """The reply did not come in time. Those to later requests of the connection can only come after it."""


class NotServed(PeerLost):
    """The peer is of an earlier release and does not serve the API."""


class Peers:
    def __init__(
        self,
        *,
        world: World,
        node_id: int,
        view: Callable[[], ClusterView],
        listener: str | None,
        login: NodeLogin,
        tls: Callable[[], TlsContext] | None = None,
    ) -> None:
        """`tls` when the listener has TLS: gives the context of the next connection."""
        self._world = world
        self._login = login
        self._client_id = f"{PEER_CLIENT}{node_id}"
        self._view = view
        self._listener = listener
        self._tls = tls
        self._connections: dict[tuple[int, str], _PeerConnection] = {}
        self._watched: dict[int, int] = {}
        """Node id to node epoch."""
        self._on_refused: list[OnRefused] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._checking: set[asyncio.Task[Any]] = set()
        self._closed = False

    def on_refused(self, callback: OnRefused) -> None:
        """Called once per ended connection, on the event loop; must not raise."""
        self._on_refused.append(callback)

    @property
    def has_pending_checks(self) -> bool:
        """Whether a connection just ended and it is not known yet whether the node is down."""
        return bool(self._checking)

    async def wait_for_checks(self, timeout_s: float) -> None:
        """Waits until the checks are done and `on_refused` callbacks were called."""
        if self._checking:
            await asyncio.wait(set(self._checking), timeout=timeout_s)

    def watch(self, node_ids: Iterable[int]) -> None:
        """Keeps a connection to each of these nodes, and to no others, whose end is noticed at once."""
        nodes = self._view().nodes
        wanted = {node_id: nodes[node_id].epoch for node_id in node_ids if node_id in nodes}
        new = [node_id for node_id, epoch in wanted.items() if self._watched.get(node_id) != epoch]
        self._watched = wanted
        for node_id in new:
            self._spawn(self._watch_node(node_id, wanted[node_id]), f"watch node {node_id}")

    async def reach(self, node_id: int, purpose: str) -> None:
        """Waits for a connection, so that the next request is sent at once. Raises PeerLost."""
        await self._connection(node_id, purpose)

    async def request(
        self,
        node_id: int,
        api_key: int,
        version: int | None,
        body: Mapping[str, Any],
        timeout_ms: int,
        *,
        purpose: str = CONTROL,
    ) -> Any:
        """The decoded reply; `version` None: the highest that both support. Raises PeerLost."""
        connection = await self._connection(node_id, purpose)
        if api_key not in connection.versions:
            raise NotServed(f"node {node_id} does not serve API {api_key}", sent=False)
        try:
            return await connection.call(api_key, body, version=version, timeout_ms=timeout_ms)
        except RequestTimedOut as error:
            raise PeerTimedOut(f"node {node_id}: {error}", sent=True) from error
        except ClientError as error:
            raise PeerLost(f"node {node_id}: {error}", sent=True) from error

    async def forward(
        self, node_id: int, api_key: int, version: int, body: bytes, timeout_ms: int
    ) -> EncodedReply:
        """Forwards a client's encoded request and returns the encoded reply. Raises PeerLost."""
        header_end = b"\0" if version >= SPOKEN_APIS[api_key].flexible_from else b""
        rest = header_end + body
        frame = await self.request_encoded(node_id, api_key, version, rest, timeout_ms, purpose=FORWARD)
        return EncodedReply(b"".join((len(frame).to_bytes(4, "big"), frame)))

    async def request_encoded(
        self, node_id: int, api_key: int, version: int, rest: bytes, timeout_ms: int, *, purpose: str
    ) -> bytes | memoryview:
        """As Connection.call_raw. Raises PeerLost."""
        connection = await self._connection(node_id, purpose)
        try:
            return await connection.call_raw(api_key, version, rest, timeout_ms=timeout_ms)
        except ClientError as error:
            raise PeerLost(f"node {node_id}: {error}", sent=True) from error

    def send_unanswered(self, node_id: int, api_key: int, version: int, rest: bytes, purpose: str) -> None:
        """Sends a request if the connection is open, and ignores the reply."""
        peer = self._connections.get((node_id, purpose))
        if peer is not None and peer.connection is not None and peer.connection.is_open:
            peer.connection.send_raw(api_key, version, rest).add_done_callback(_ignore)

    def drop(self, node_id: int, purpose: str) -> None:
        """Closes the connection, if there is one, with its pending requests."""
        peer = self._connections.pop((node_id, purpose), None)
        if peer is not None:
            peer.end()

    async def close(self) -> None:
        self._closed = True
        peer, self._connections = self._connections, {}
        for each in peer.values():
            each.end()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # private

    async def _connection(self, node_id: int, purpose: str) -> Connection:
        node = self._view().nodes.get(node_id)
        if node is None or self._closed:
            raise PeerLost(f"node {node_id} is not in the cluster now", sent=False)
        key = (node_id, purpose)
        peer = self._connections.get(key)
        if peer is None or not peer.is_for(node):
            if peer is not None:
                peer.end()
            peer = self._connections[key] = _PeerConnection(node)
        try:
            connection = await peer.get(lambda: self._open(node, peer))
        except (ClientError, OSError) as error:
            raise PeerLost(f"node {node_id}: {error}", sent=False) from error
        if not peer.wanted:
            peer.end()
            raise PeerLost(f"node {node_id}: the connection was closed", sent=False)
        return connection

    async def _open(self, node: Node, peer: _PeerConnection) -> Connection:
        connection = await self._connect(node)
        if self._closed:
            connection.abort()
        self._spawn(self._handle_end(node, peer, connection), f"connection to node {node.node_id}")
        return connection

    async def _connect(self, node: Node) -> Connection:
        endpoint = self._endpoint_of(node)
        return await Connection.open(
            endpoint.host,
            endpoint.port,
            client_id=self._client_id,
            timeout_ms=CONNECT_TIMEOUT_MS,
            connect=partial(self._world.network.connect, tls=None if self._tls is None else self._tls()),
            authenticate=self._login.authenticate,
        )

    def _endpoint_of(self, node: Node) -> Endpoint:
        endpoint = node.endpoint(self._listener) if self._listener is not None else node.endpoints[0]
        if endpoint is None:
            raise PeerLost(
                f"node {node.node_id} has no listener {self._listener}: give every node the same "
                "inter.broker.listener.name",
                sent=False,
            )
        return endpoint

    async def _watch_node(self, node_id: int, epoch: int) -> None:
        """Retries until there is a connection."""
        while self._watched.get(node_id) == epoch and not self._closed:
            try:
                await self._connection(node_id, WATCH)
                return
            except PeerLost as error:
                logger.info("%s", error)
            await self._world.tasks.sleep(_WATCH_AGAIN_S)

    async def _handle_end(self, node: Node, peer: _PeerConnection, connection: Connection) -> None:
        await connection.ended()
        if not peer.wanted or not self._is_registered(node):
            return
        checking = asyncio.current_task()
        assert checking is not None
        self._checking.add(checking)
        try:
            dead = await self._refuses_connections(node)
        finally:
            self._checking.discard(checking)
        if dead:
            for callback in self._on_refused:
                callback(node.node_id, node.epoch)
        await self._watch_node(node.node_id, node.epoch)

    def _is_registered(self, node: Node) -> bool:
        present = self._view().nodes.get(node.node_id)
        return not self._closed and present is not None and present.epoch == node.epoch

    async def _refuses_connections(self, node: Node) -> bool:
        """Only a refused connection counts: a timeout may be caused by the network."""
        for _ in range(_PROBES):
            try:
                connection = await self._connect(node)
            except (ClientError, PeerLost) as error:
                if _is_refusal(error.__cause__):
                    return True
            else:
                connection.abort()
                return False
            await self._world.tasks.sleep(_PROBE_PAUSE_S)
        return False

    def _spawn(self, coroutine: Any, name: str) -> None:
        task: asyncio.Task[None] = self._world.tasks.spawn(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _PeerConnection:
    """A connection to one peer, opened at first use and shared by concurrent callers."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.connection: Connection | None = None
        self._opening = asyncio.Lock()
        self.wanted = True

    def is_for(self, node: Node) -> bool:
        return self._node.epoch == node.epoch and self._node.endpoints == node.endpoints

    async def get(self, open_one: Callable[[], Any]) -> Connection:
        connection = self.connection
        if connection is not None and connection.is_open:
            return connection
        async with self._opening:
            if self.connection is None or not self.connection.is_open:
                self.connection = await open_one()
            return self.connection

    def end(self) -> None:
        self.wanted = False
        if self.connection is not None:
            self.connection.abort()


def _ignore(reply: asyncio.Future[Any]) -> None:
    if not reply.cancelled():
        reply.exception()


def _is_refusal(cause: BaseException | None) -> bool:
    """The error of a host name with several addresses names all failures in one text."""
    return isinstance(cause, ConnectionRefusedError) or f"[Errno {errno.ECONNREFUSED}]" in str(cause)
