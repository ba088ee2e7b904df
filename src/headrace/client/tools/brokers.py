# SPDX-License-Identifier: Apache-2.0
"""Requests to particular brokers that confluent-kafka lacks, for tools. Blocking.

Built on connection.py. What confluent-kafka can do is in admin.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from headrace.client.bootstrap import START_ONE, Address, parse_bootstrap
from headrace.client.cluster import Cluster, as_cluster
from headrace.client.connection import DEFAULT_TIMEOUT_MS, Connection, ConnectionLost
from headrace.client.errors import ClientError
from headrace.client.settings import CLIENT_ID
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode

T = TypeVar("T")

_EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSize:
    """Size of one replica in one log directory."""

    node_id: int
    directory: str
    topic: str
    partition: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveProducer:
    """An idempotent producer that a partition's leader remembers."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    """Of the last transaction marker; -1 before the first."""
    transaction_start_offset: int | None


class Brokers:
    """Short-lived connections, one per node. Use it as an async context manager."""

    def __init__(self, bootstrap: str | Cluster, *, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> None:
        cluster = as_cluster(bootstrap)
        self._bootstrap = parse_bootstrap(cluster.bootstrap)
        self._open_options = cluster.security.security().open_options()
        self._client_id = cluster.client_id or CLIENT_ID
        self._timeout_ms = cluster.request_timeout_ms or timeout_ms
        self._nodes: dict[int, Address] = {}
        self._connections: dict[Address, Connection] = {}

    async def __aenter__(self) -> Brokers:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for connection in self._connections.values():
            await connection.close()

    async def any_connection(self) -> Connection:
        """To the first bootstrap address that answers: it says what the broker there serves."""
        failure: ClientError | None = None
        for address in self._bootstrap:
            try:
                return await self._connection(address)
            except ConnectionLost as error:
                failure = failure or error
        assert failure is not None
        raise _unreachable(failure)

    async def call_any(self, api_key: int, fields: Mapping[str, Any]) -> Any:
        """Calls the first bootstrap address that answers."""
        failure: ClientError | None = None
        for address in self._bootstrap:
            try:
                return await self._call(address, api_key, fields)
            except ConnectionLost as error:
                failure = failure or error
        assert failure is not None
        raise _unreachable(failure)

    async def call_node(
        self, node_id: int, api_key: int, fields: Mapping[str, Any], *, newest: int | None = None
    ) -> Any:
        """`newest`: the highest version that the caller understands, where that is not our highest."""
        return await self._call(await self._address(node_id), api_key, fields, newest)

    async def version_of(self, node_id: int, api_key: int) -> int:
        """The version in which `call_node` asks this node."""
        return (await self._connection(await self._address(node_id))).version_for(api_key)

    async def metadata(self, topics: list[str] | None) -> Any:
        """Nodes, and the named topics (None: all), without creating any."""
        fields = {
            "topics": None if topics is None else [{"name": name} for name in topics],
            "allow_auto_topic_creation": False,
        }
        reply = await self.call_any(ApiKey.METADATA, fields)
        self._nodes = {int(node.node_id): Address(str(node.host), int(node.port)) for node in reply.brokers}
        return reply

    async def node_ids(self) -> list[int]:
        await self.metadata([])
        return sorted(self._nodes)

    async def _address(self, node_id: int) -> Address:
        if not self._nodes:
            await self.metadata([])
        if node_id not in self._nodes:
            raise ClientError(f"node {node_id} is not in the cluster now", code="BROKER_NOT_AVAILABLE")
        return self._nodes[node_id]

    async def _call(
        self, address: Address, api_key: int, fields: Mapping[str, Any], newest: int | None = None
    ) -> Any:
        connection = await self._connection(address)
        version = connection.version_for(api_key)
        version = version if newest is None else min(version, newest)
        return await connection.call(api_key, fields, version=version, timeout_ms=self._timeout_ms)

    async def _connection(self, address: Address) -> Connection:
        connection = self._connections.get(address)
        if connection is None or not connection.is_open:
            connection = await Connection.open(
                address.host,
                address.port,
                client_id=self._client_id,
                timeout_ms=self._timeout_ms,
                **self._open_options,
            )
            self._connections[address] = connection
        return connection


def _unreachable(failure: ClientError) -> ConnectionLost:
    """The same failure with what to do about it."""
    return ConnectionLost(failure.what, next_step=failure.next_step or START_ONE, code="_TRANSPORT")


def describe_log_dirs(bootstrap: str | Cluster, topic: str | None = None) -> list[ReplicaSize]:
    """The size of every replica, or of one topic's, on every node."""

    async def ask() -> list[ReplicaSize]:
        async with Brokers(bootstrap) as brokers:
            found = []
            for node_id in await brokers.node_ids():
                reply = await brokers.call_node(node_id, ApiKey.DESCRIBE_LOG_DIRS, {"topics": None})
                found += _replica_sizes(node_id, reply)
            return [replica for replica in found if topic is None or replica.topic == topic]

    return run(ask())


def describe_producers(bootstrap: str | Cluster, topic: str) -> list[ActiveProducer]:
    """The producers that the leaders of a topic's partitions remember."""

    async def ask() -> list[ActiveProducer]:
        async with Brokers(bootstrap) as brokers:
            found = []
            for partition in partitions_of(topic, await brokers.metadata([topic])):
                index = int(partition.partition_index)
                fields = {"topics": [{"name": topic, "partition_indexes": [index]}]}
                reply = await brokers.call_node(int(partition.leader_id), ApiKey.DESCRIBE_PRODUCERS, fields)
                found += active_producers(reply)
            return found

    return run(ask())


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine in a new event loop; in another thread where one runs already, as in notebooks."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


def _replica_sizes(node_id: int, reply: Any) -> list[ReplicaSize]:
    found = []
    for directory in reply.results:
        _check(directory.error_code, f"log directory {directory.log_dir} of node {node_id}")
        found += [
            ReplicaSize(
                node_id=node_id,
                directory=str(directory.log_dir),
                topic=str(topic.name),
                partition=int(partition.partition_index),
                size_bytes=int(partition.partition_size),
            )
            for topic in directory.topics
            for partition in topic.partitions
        ]
    return found


def partitions_of(topic: str, metadata: Any) -> list[Any]:
    """In their order, from a reply of Metadata. Raises ClientError when there is no such topic."""
    for entry in metadata.topics:
        if entry.name == topic and int(entry.error_code) != ErrorCode.unknown_topic_or_partition:
            _check(entry.error_code, f"topic {topic!r}")
            return sorted(entry.partitions, key=lambda partition: int(partition.partition_index))
    raise ClientError(f"topic {topic!r} does not exist", next_step="list them: headrace topics list")


def active_producers(reply: Any) -> list[ActiveProducer]:
    """From a reply of DescribeProducers. Raises ClientError when it has an error."""
    found = []
    for topic, partition in ((str(entry.name), each) for entry in reply.topics for each in entry.partitions):
        _check(partition.error_code, f"partition {partition.partition_index} of topic {topic!r}")
        found += [
            ActiveProducer(
                topic=topic,
                partition=int(partition.partition_index),
                producer_id=int(producer.producer_id),
                producer_epoch=int(producer.producer_epoch),
                last_sequence=int(producer.last_sequence),
                last_timestamp_ms=milliseconds(producer.last_timestamp),
                coordinator_epoch=int(producer.coordinator_epoch),
                transaction_start_offset=(
                    None if producer.current_txn_start_offset < 0 else int(producer.current_txn_start_offset)
                ),
            )
            for producer in partition.active_producers
        ]
    return found


def milliseconds(moment: Any) -> int:
    """kio returns timestamps as datetimes (None for -1) or as numbers, by schema."""
    if moment is None:
        return -1
    return (moment - _EPOCH) // timedelta(milliseconds=1) if isinstance(moment, datetime) else int(moment)


def _check(code: Any, where: str) -> None:
    if int(code) != 0:
        raise ClientError(f"{where}: {ErrorCode(int(code)).name}", code=ErrorCode(int(code)).name.upper())
