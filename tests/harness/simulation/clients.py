# SPDX-License-Identifier: Apache-2.0
"""What simulated clients share: a connection over the simulated network, a target, reading of replies.

Simulated clients speak real Kafka bytes and keep the promises of good clients, so that whatever goes wrong
is the broker's doing. Read next: producer.py, consumer.py, one_node.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from headrace.broker.security.node_login import NodeLogin
from headrace.client.connection import Connection
from headrace.client.errors import ClientError
from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.types import TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.batch import crc_ok, read_header
from headrace.wire.error_codes import ErrorCode
from headrace.wire.messages import encode_request
from headrace.wire.records import Record, read_records
from headrace.world import World

EARLIEST, LATEST = -2, -1
PATIENCE_MS = 60_000
"""A broker that is up answers within this; its own time-outs are shorter."""


class BrokenPromise(Exception):
    """The broker did what no fault excuses."""


class TryAgain(Exception):
    """Drop the connection and begin anew."""


class SimConnection(Connection):
    """The client's connection, with a reader that can be made slow and requests that expect no reply."""

    def pause_reading(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    def send(
        self, api_key: int, fields: Mapping[str, Any], *, version: int | None = None
    ) -> asyncio.Future[Any]:
        reply = super().send(api_key, fields, version=version)
        reply.add_done_callback(_look_at)  # a client that gives up leaves replies behind
        return reply

    def send_without_reply(self, api_key: int, fields: Mapping[str, Any], *, version: int) -> None:
        if self._transport is None or self._failure is not None:
            raise ClientError("the connection is closed")
        self._transport.write(encode_request(api_key, version, -1, self._client_id, fields))


def _look_at(reply: asyncio.Future[Any]) -> None:
    if not reply.cancelled():
        reply.exception()


def awake() -> asyncio.Event:
    """Set; clients wait for it before they begin something new."""
    event = asyncio.Event()
    event.set()
    return event


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where the clients of a run connect, and what they read and write."""

    host: str
    port: int
    topic: str
    partitions: int

    @property
    def indexes(self) -> Sequence[int]:
        return range(self.partitions)

    def partition(self, index: int) -> TopicPartition:
        return TopicPartition(self.topic, index)

    async def connect(self, world: World, name: str) -> SimConnection:
        return await open_connection(world, self.host, self.port, name)


async def open_connection(world: World, host: str, port: int, name: str) -> SimConnection:
    connection = await SimConnection.open(
        host, port, client_id=name, connect=world.network.connect, timeout_ms=5_000
    )
    assert isinstance(connection, SimConnection)
    return connection


async def log_in_as_node(connection: Connection, node_id: int, cluster: ClusterMetadata) -> None:
    """With the secret that a node of the cluster knows."""
    login = NodeLogin(node_id=node_id, secret=lambda: cluster.node_secret, random=Random(node_id))
    await login.authenticate(connection)


async def connect(world: World, target: Target, name: str) -> SimConnection:
    return await target.connect(world, name)


def records_in(data: bytes) -> Iterator[Record]:
    """The records of the whole batches in a fetch reply."""
    view, position = memoryview(data), 0
    while position < len(view):
        size = read_header(view, position).size
        yield from read_records(view[position : position + size])
        position += size


def all_sound(data: bytes) -> bool:
    """Whether the whole batches in a fetch reply have the checksums of their bytes."""
    view, position = memoryview(data), 0
    while position < len(view):
        size = read_header(view, position).size
        if not crc_ok(view, position, size):
            return False
        position += size
    return True


def end_of(data: bytes, position: int) -> int:
    """Where a reader of these batches goes on; compaction leaves batches without a record."""
    view, at = memoryview(data), 0
    while at < len(view):
        header = read_header(view, at)
        position = max(position, header.next_offset)
        at += header.size
    return position


async def list_offset(connection: Connection, target: Target, index: int, timestamp: int) -> int:
    partition = {"partition_index": index, "timestamp": timestamp}
    fields = {"replica_id": -1, "topics": [{"name": target.topic, "partitions": [partition]}]}
    reply = await connection.call(ApiKey.LIST_OFFSETS, fields)
    answer = reply.topics[0].partitions[0]
    if answer.error_code is not ErrorCode.none:
        raise TryAgain(answer.error_code.name)
    return int(answer.offset)
