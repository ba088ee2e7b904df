# SPDX-License-Identifier: Apache-2.0
"""The two internal topics of exactly-once sinks, created on first use on any Kafka cluster.

Read next: ledger.py, staging.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.client.errors import BrokerError, ClientError
from headrace.client.network_client import NetworkClient, NoSuchTopic, TopicView
from headrace.client.retry import Backoff, retry
from headrace.client.topic_creation import create_topic
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from pyspark_headrace.client_pool import PooledClient

_MAX_REPLICAS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalTopic:
    name: str
    partitions: int
    settings: Mapping[str, str]


SINKS = InternalTopic(
    name="__headrace_sinks",
    partitions=16,
    settings={
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.ms": "3600000",  # records are compacted only after their segment is closed
    },
)
STAGING = InternalTopic(
    name="__headrace_staging",
    partitions=8,
    settings={
        "cleanup.policy": "delete",
        "retention.ms": "86400000",
        "segment.bytes": "268435456",
        # Batches are copied unchanged: same codec, same timestamps, and none rejected here that the output
        # topic would accept.
        "compression.type": "producer",
        "message.timestamp.type": "CreateTime",
        "max.message.bytes": "67108864",
    },
)


def find(topic: InternalTopic, connections: PooledClient, *, timeout_ms: int) -> TopicView | None:
    """None: no sink has created it yet."""
    client = connections.client
    try:
        return connections.call(retry(lambda: client.topic(topic.name), Backoff(timeout_ms).wait))
    except NoSuchTopic:
        return None


def find_or_create(topic: InternalTopic, connections: PooledClient, *, timeout_ms: int) -> TopicView:
    client = connections.client
    found = find(topic, connections, timeout_ms=timeout_ms)
    if found is not None:
        return found
    connections.call(retry(lambda: _create(topic, client), Backoff(timeout_ms).wait))
    return connections.call(retry(lambda: _created(topic, client), Backoff(timeout_ms).wait))


async def _created(topic: InternalTopic, client: NetworkClient) -> TopicView:
    """Brokers learn of a new topic one after the other."""
    try:
        return await client.topic(topic.name)
    except NoSuchTopic as error:
        raise BrokerError(error.what, ErrorCode.unknown_topic_or_partition) from error


async def _create(topic: InternalTopic, client: NetworkClient) -> None:
    nodes = await client.call_any(ApiKey.METADATA, {"topics": []})
    try:
        await create_topic(
            client,
            topic.name,
            partitions=topic.partitions,
            replication_factor=min(_MAX_REPLICAS, len(nodes.brokers)),
            configs=topic.settings,
        )
    except BrokerError as error:
        if error.retriable:
            raise
        raise ClientError(
            f"exactly-once sinks need a topic of their own: {error.what}",
            next_step="let a permitted user create it as docs/pipelines.md says, or set exactlyOnce=off",
            code=error.code,
        ) from error
