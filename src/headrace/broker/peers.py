"""Connections to the other nodes of the cluster, and the notice that one of them is dead.

One kept connection for each peer and purpose: a broker answers a connection's requests in their order, so
that a long poll must not stand in the way of what is urgent. Addresses come from the view. Knows no partition
and decides nothing about a dead node. Read next: client/connection.py, replica_fetcher.py, controller.py.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headrace.broker.context import EncodedReply
from headrace.client.connection import Connection
from headrace.client.errors import ClientError
from headrace.errors import HeadraceError
from headrace.types import ClusterView, Endpoint, Node
from headrace.wire.api_table import request_header_flexible
from headrace.world import World

logger = logging.getLogger(__name__)

CONTROL, RELAY, FETCH, FETCH_IDLE, WATCH = "control", "relay", "fetch", "idle fetch", "watch"
PEER_CLIENT = "node-"
"""How client ids of nodes begin."""
CONNECT_TIMEOUT_MS = 2_000
_PROBES = 5
_PROBE_PAUSE_S = 0.02
"""A process that ends closes its connections and its listener one after the other."""
_WATCH_AGAIN_S = 0.5

OnRefused = Callable[[int, int], None]
"""Node id and node epoch of a peer whose connection ended and that lets nobody in any more."""


class PeerLost(HeadraceError):
    """No answer from a peer. `sent` False: the request surely did not reach it."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class Peers:
    def __init__(
        self, *, world: World, node_id: int, view: Callable[[], ClusterView], listener: str | None
    ) -> None:
        self._world = world
        self._client_id = f"{PEER_CLIENT}{node_id}"
        self._view = view
        self._listener = listener
        self._kept: dict[tuple[int, str], _Kept] = {}
        self._watched: dict[int, int] = {}
        """Node id to node epoch."""
        self._on_refused: list[OnRefused] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._judging: set[asyncio.Task[Any]] = set()
        self._closed = False

    def on_refused(self, callback: OnRefused) -> None:
        """Told once per ended connection, on the loop; must not raise."""
        self._on_refused.append(callback)

    @property
    def in_doubt(self) -> bool:
        """Whether a connection ended by itself just now, and it is not known yet whether the node did."""
        return bool(self._judging)

    async def be_sure(self, timeout_s: float) -> None:
        """Returns when that is known, and those told who asked by `on_refused`."""
        if self._judging:
            await asyncio.wait(set(self._judging), timeout=timeout_s)

    def watch(self, node_ids: Iterable[int]) -> None:
        """These nodes, and no others, have a connection from now on whose end is noticed unasked."""
        nodes = self._view().nodes
        wanted = {node_id: nodes[node_id].epoch for node_id in node_ids if node_id in nodes}
        new = [node_id for node_id, epoch in wanted.items() if self._watched.get(node_id) != epoch]
        self._watched = wanted
        for node_id in new:
            self._spawn(self._keep_watched(node_id, wanted[node_id]), f"watch node {node_id}")

    async def reach(self, node_id: int, purpose: str) -> None:
        """Returns when there is a connection: what is asked on it next leaves at once. Raises PeerLost."""
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
        """The decoded reply; `version` None: the highest that both know. Raises PeerLost."""
        connection = await self._connection(node_id, purpose)
        try:
            return await connection.call(api_key, body, version=version, timeout_ms=timeout_ms)
        except ClientError as error:
            raise PeerLost(f"node {node_id}: {error}", sent=True) from error

    async def relay(
        self, node_id: int, api_key: int, version: int, body: bytes, timeout_ms: int
    ) -> EncodedReply:
        """A client's request as it came, and the reply as it comes. Raises PeerLost."""
        header_end = b"\0" if request_header_flexible(api_key, version) else b""
        rest = header_end + body
        frame = await self.request_encoded(node_id, api_key, version, rest, timeout_ms, purpose=RELAY)
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
        """On a connection that is open; nobody looks at the reply."""
        kept = self._kept.get((node_id, purpose))
        if kept is not None and kept.connection is not None and kept.connection.is_open:
            kept.connection.send_raw(api_key, version, rest).add_done_callback(_ignore)

    def drop(self, node_id: int, purpose: str) -> None:
        """Ends the connection, if there is one: what was asked on it is not waited for any more."""
        kept = self._kept.pop((node_id, purpose), None)
        if kept is not None:
            kept.end()

    async def close(self) -> None:
        self._closed = True
        kept, self._kept = self._kept, {}
        for each in kept.values():
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
        kept = self._kept.get(key)
        if kept is None or not kept.is_for(node):
            if kept is not None:
                kept.end()
            kept = self._kept[key] = _Kept(node)
        try:
            connection = await kept.get(lambda: self._open(node, kept))
        except (ClientError, OSError) as error:
            raise PeerLost(f"node {node_id}: {error}", sent=False) from error
        if not kept.wanted:
            kept.end()
            raise PeerLost(f"node {node_id}: the connection was given up", sent=False)
        return connection

    async def _open(self, node: Node, kept: _Kept) -> Connection:
        connection = await self._connect(node)
        if self._closed:
            connection.abort()
        self._spawn(self._notice_end(node, kept, connection), f"connection to node {node.node_id}")
        return connection

    async def _connect(self, node: Node) -> Connection:
        endpoint = self._endpoint_of(node)
        return await Connection.open(
            endpoint.host,
            endpoint.port,
            client_id=self._client_id,
            timeout_ms=CONNECT_TIMEOUT_MS,
            connect=self._world.network.connect,
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

    async def _keep_watched(self, node_id: int, epoch: int) -> None:
        """Until there is a connection: a node that could not be reached once is not left unwatched."""
        while self._watched.get(node_id) == epoch and not self._closed:
            try:
                await self._connection(node_id, WATCH)
                return
            except PeerLost as error:
                logger.info("%s", error)
            await self._world.tasks.sleep(_WATCH_AGAIN_S)

    async def _notice_end(self, node: Node, kept: _Kept, connection: Connection) -> None:
        await connection.ended()
        if not kept.wanted or not self._is_registered(node):
            return
        judging = asyncio.current_task()
        assert judging is not None
        self._judging.add(judging)
        try:
            dead = await self._lets_nobody_in(node)
        finally:
            self._judging.discard(judging)
        if dead:
            for callback in self._on_refused:
                callback(node.node_id, node.epoch)
        await self._keep_watched(node.node_id, node.epoch)

    def _is_registered(self, node: Node) -> bool:
        present = self._view().nodes.get(node.node_id)
        return not self._closed and present is not None and present.epoch == node.epoch

    async def _lets_nobody_in(self, node: Node) -> bool:
        """Only a refusal counts: silence may be the network's."""
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


class _Kept:
    """The place of one connection: opened by the first who needs it, for all who ask meanwhile."""

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
    """A name with several addresses has all its failures in one text."""
    return isinstance(cause, ConnectionRefusedError) or f"[Errno {errno.ECONNREFUSED}]" in str(cause)
