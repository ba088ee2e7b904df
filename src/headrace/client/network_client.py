# SPDX-License-Identifier: Apache-2.0
"""Metadata of topics, and an open connection to each node of the cluster.

One event loop only. Tries the known addresses one after the other, until one answers; retries nothing else.
Callers ask for `topic` again when a leader moved. Read next: connection.py, retry.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from headrace.client.bootstrap import START_ONE, Address, parse_bootstrap
from headrace.client.connection import DEFAULT_TIMEOUT_MS, Connection, ConnectionLost
from headrace.client.errors import ClientError
from headrace.client.kafka_errors import code_error
from headrace.client.retry import Backoff, retry
from headrace.client.security import PLAINTEXT, Security
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode

CLIENT_ID = "headrace-arrow"
_TOPIC_PROPAGATION_MS = 700
"""How long a new topic may take to be known to all brokers of a cluster."""
_EXISTS = (ErrorCode.none, ErrorCode.leader_not_available)


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
    """Partition to its leader's epoch; -1 where an older broker does not send it."""

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


class NetworkClient:
    """Connections to the nodes of one cluster, and the metadata that says which node to ask."""

    def __init__(
        self, bootstrap: str, *, security: Security | None = None, timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> None:
        self._bootstrap = parse_bootstrap(bootstrap)
        self._security = security or PLAINTEXT
        self._timeout_ms = timeout_ms
        self._nodes: dict[int, Address] = {}
        self._connections: dict[tuple[Address, str], asyncio.Task[Connection]] = {}

    async def topic(self, name: str, *, create: bool = False) -> TopicView:
        """Metadata of a topic. ConnectionLost when no broker answers.

        `create`: a broker that creates topics by itself may create it; NoSuchTopic until it is there.
        """
        (entry,) = (await self._metadata([name], create=create)).topics
        code = ErrorCode(int(entry.error_code))
        if code is ErrorCode.unknown_topic_or_partition:
            raise NoSuchTopic(
                f"topic {name!r} does not exist",
                next_step="list them: headrace topics list",
                code=code.name.upper(),
            )
        if code not in _EXISTS:
            raise code_error(code.name.upper(), name=name)
        return _view(entry)

    async def topics(self, names: Sequence[str] | None) -> dict[str, TopicView]:
        """Metadata of those of these topics that exist; None: all but internal ones."""
        reply = await self._metadata(names)
        return {
            str(entry.name): _view(entry)
            for entry in reply.topics
            if int(entry.error_code) in _EXISTS and not (names is None and entry.is_internal)
        }

    async def find(self, name: str) -> TopicView:
        """As `topic`, with retries for a new topic that is not known to every broker yet."""
        return await retry(
            lambda: self.topic(name),
            Backoff(_TOPIC_PROPAGATION_MS).wait,
            retriable=lambda error: isinstance(error, NoSuchTopic),
        )

    def learn(self, node_id: int, address: Address) -> None:
        """Adds a node's address from another reply than Metadata."""
        self._nodes[node_id] = address

    async def controller(self) -> Connection:
        """A connection to the node that creates topics."""
        return await self.connection(int((await self._metadata([])).controller_id))

    async def connection(self, node_id: int, lane: str = "") -> Connection:
        """The shared connection to a node. ConnectionLost when it cannot be opened.

        A broker answers the requests of a connection in order, so requests that must not wait behind a long
        one name a lane: each lane has its own connection.
        """
        address = self._nodes.get(node_id)
        if address is None:
            raise ConnectionLost(f"node {node_id} is not in the cluster now")
        return await self._open(address, lane)

    async def any_connection(self) -> Connection:
        """A connection to the first known node that answers."""
        reasons = []
        for address in self._known():
            try:
                return await self._open(address)
            except ConnectionLost as error:
                reasons.append(error.what)
        raise ConnectionLost(
            f"no Kafka broker can be reached: {'; '.join(reasons)}", next_step=START_ONE, code="_TRANSPORT"
        )

    async def close(self) -> None:
        """Aborts every connection, and returns when their transports are closed."""
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

    def _known(self) -> Sequence[Address]:
        return list(dict.fromkeys([*self._nodes.values(), *self._bootstrap]))

    async def _ask_for_metadata(self, fields: Mapping[str, Any]) -> Any:
        """Again, where a node stops before it has answered: the others know as much."""
        for _ in self._known():
            connection = await self.any_connection()
            with suppress(ConnectionLost):
                return await connection.call(ApiKey.METADATA, fields, timeout_ms=self._timeout_ms)
        return await self.call_any(ApiKey.METADATA, fields)

    async def _metadata(self, names: Sequence[str] | None, *, create: bool = False) -> Any:
        topics = None if names is None else [{"name": name} for name in names]
        reply = await self._ask_for_metadata({"topics": topics, "allow_auto_topic_creation": create})
        self._nodes = {int(node.node_id): Address(str(node.host), int(node.port)) for node in reply.brokers}
        return reply

    async def _open(self, address: Address, lane: str = "") -> Connection:
        """Concurrent callers share one opening."""
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
