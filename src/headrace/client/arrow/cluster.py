"""Where a topic's partitions are led, and open connections there: what reading and writing share.

One event loop only. No retries of its own but for the bootstrap addresses; callers ask `topic` again when a
leader moved. Read next: ../connection.py; prefetch.py and sender.py use it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from headrace.client.bootstrap import START_ONE, Address, parse_bootstrap
from headrace.client.connection import DEFAULT_TIMEOUT_MS, Connection, ConnectionLost, RequestTimedOut
from headrace.client.errors import ClientError
from headrace.client.security import PLAINTEXT, Security
from headrace.wire.error_codes import ErrorCode

METADATA = 3
FIND_COORDINATOR = 10
GROUP, TRANSACTION = 0, 1
"""What may have a coordinator."""
_SEVERAL_KEYS_FROM = 4
CLIENT_ID = "headrace-arrow"
_SPREADING_MS = 700
"""How long a new topic may take to be known to all brokers of a cluster."""
_THERE = (ErrorCode.none, ErrorCode.leader_not_available)

LOST = (ConnectionLost, RequestTimedOut)
"""Worth another try elsewhere or later."""


class NoSuchTopic(ClientError):
    """The cluster does not know the topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicView:
    """A topic as the cluster described it. `topic_id` is None on brokers older than topic ids."""

    name: str
    topic_id: UUID | None
    leaders: Mapping[int, int]
    """Partition to node id; -1 while it has no leader."""
    epochs: Mapping[int, int] = field(default_factory=dict)
    """Partition to its leader's epoch; -1 where an older broker tells none."""

    @property
    def partitions(self) -> list[int]:
        return sorted(self.leaders)

    def addressed(self, version: int, first_by_id: int, name_field: str) -> tuple[int, dict[str, Any]]:
        """(the version to use, how a request of that version names the topic: by id where it can).

        Only fields of that version: others would make the encoder load every version of the message.
        """
        if self.topic_id is None or version < first_by_id:
            return min(version, first_by_id - 1), {name_field: self.name}
        return version, {"topic_id": self.topic_id}


class Cluster:
    def __init__(
        self, bootstrap: str, *, security: Security | None = None, timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> None:
        self._bootstrap = parse_bootstrap(bootstrap)
        self._security = security or PLAINTEXT
        self._timeout_ms = timeout_ms
        self._nodes: dict[int, Address] = {}
        self._connections: dict[tuple[Address, str], asyncio.Task[Connection]] = {}

    async def topic(self, name: str) -> TopicView:
        """As the cluster sees it now, without creating it. ConnectionLost when nobody answers."""
        (entry,) = (await self._metadata([name])).topics
        code = ErrorCode(int(entry.error_code))
        if code is ErrorCode.unknown_topic_or_partition:
            raise NoSuchTopic(
                f"topic {name!r} does not exist",
                next_step="list them: headrace topics list",
                code=code.name.upper(),
            )
        if code not in _THERE:
            raise ClientError(f"topic {name!r}: {code.name}", code=code.name.upper())
        return _view(entry)

    async def topics(self, names: Sequence[str] | None) -> dict[str, TopicView]:
        """Those of these topics that are there now; None: all but internal ones."""
        reply = await self._metadata(names)
        return {
            str(entry.name): _view(entry)
            for entry in reply.topics
            if int(entry.error_code) in _THERE and not (names is None and entry.is_internal)
        }

    async def find(self, name: str) -> TopicView:
        """The same for a topic that may have been created a moment ago: not every broker knows it at once."""
        patience = Patience(_SPREADING_MS)
        while True:
            try:
                return await self.topic(name)
            except NoSuchTopic as error:
                await patience.wait(error)

    def learn(self, node_id: int, address: Address) -> None:
        """Where a node is, from another reply than that of Metadata."""
        self._nodes[node_id] = address

    async def connection(self, node_id: int, lane: str = "") -> Connection:
        """An open connection to a node, shared by everybody. ConnectionLost when there is none to be had.

        A broker answers the requests of a connection in turn: what must not wait behind a long one has a
        lane, and so a connection, of its own.
        """
        address = self._nodes.get(node_id)
        if address is None:
            raise ConnectionLost(f"node {node_id} is not in the cluster now")
        return await self._open(address, lane)

    async def any_connection(self) -> Connection:
        """To whichever known node answers first in line."""
        reasons = []
        known = [*self._nodes.values(), *self._bootstrap]
        for address in dict.fromkeys(known):
            try:
                return await self._open(address)
            except ConnectionLost as error:
                reasons.append(error.what)
        raise ConnectionLost(
            f"no Kafka broker can be reached: {'; '.join(reasons)}", next_step=START_ONE, code="_TRANSPORT"
        )

    async def close(self) -> None:
        """Ends every connection at once, and returns when the loop is rid of them."""
        openings, self._connections = self._connections, {}
        for opening in openings.values():
            opening.cancel()
        for found in await asyncio.gather(*openings.values(), return_exceptions=True):
            if isinstance(found, Connection):
                found.abort()
                await found.close()

    async def call_any(self, api_key: int, fields: Mapping[str, Any]) -> Any:
        connection = await self.any_connection()
        return await connection.call(api_key, fields, timeout_ms=self._timeout_ms)

    async def _metadata(self, names: Sequence[str] | None) -> Any:
        topics = None if names is None else [{"name": name} for name in names]
        reply = await self.call_any(METADATA, {"topics": topics, "allow_auto_topic_creation": False})
        self._nodes = {int(node.node_id): Address(str(node.host), int(node.port)) for node in reply.brokers}
        return reply

    async def _open(self, address: Address, lane: str = "") -> Connection:
        """Callers that come while it is being opened wait for the same one."""
        opening = self._connections.get((address, lane))
        if opening is None or _is_over(opening):
            opening = asyncio.ensure_future(
                Connection.open(
                    address.host,
                    address.port,
                    client_id=CLIENT_ID,
                    timeout_ms=self._timeout_ms,
                    **self._security.open_options(),
                )
            )
            self._connections[address, lane] = opening
        return await asyncio.shield(opening)


async def find_coordinator(cluster: Cluster, kind: int, key: str) -> tuple[int, ErrorCode]:
    """(the node that keeps the state of a group or of a transactional id, or why none is known)."""
    connection = await cluster.any_connection()
    version = connection.version_for(FIND_COORDINATOR)
    several = version >= _SEVERAL_KEYS_FROM
    asked = {"coordinator_keys": [key]} if several else {"key": key}
    reply = await connection.call(FIND_COORDINATOR, {**asked, "key_type": kind}, version=version)
    found = reply.coordinators[0] if several else reply
    node_id, code = int(found.node_id), ErrorCode(int(found.error_code))
    if code is ErrorCode.none:
        cluster.learn(node_id, Address(str(found.host), int(found.port)))
    return node_id, code


def _view(entry: Any) -> TopicView:
    return TopicView(
        name=str(entry.name),
        topic_id=getattr(entry, "topic_id", None),
        leaders={int(each.partition_index): int(each.leader_id) for each in entry.partitions},
        epochs={
            int(each.partition_index): int(getattr(each, "leader_epoch", -1)) for each in entry.partitions
        },
    )


def _is_over(opening: asyncio.Task[Connection]) -> bool:
    if not opening.done():
        return False
    return opening.cancelled() or opening.exception() is not None or not opening.result().is_open


class Patience:
    """How long to go on trying: pauses that double, with jitter, until nothing worked for `timeout_ms`."""

    def __init__(self, timeout_ms: int, *, first_ms: int = 50, most_ms: int = 1000) -> None:
        self._timeout_s = timeout_ms / 1000
        self._first_s = first_ms / 1000
        self._most_s = most_ms / 1000
        self.progress()

    def progress(self) -> None:
        self._pause_s = self._first_s
        self._deadline: float | None = None

    async def wait(self, why: ClientError) -> None:
        """Raises `why` when the time is up."""
        now = asyncio.get_running_loop().time()
        if self._deadline is None:
            self._deadline = now + self._timeout_s
        if now >= self._deadline:
            raise why
        await asyncio.sleep(self._pause_s * random.uniform(0.5, 1))
        self._pause_s = min(self._pause_s * 2, self._most_s)
