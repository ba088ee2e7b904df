# SPDX-License-Identifier: Apache-2.0
"""Loads the key ranges that are stored with a topic, before rows are partitioned.

Read next: ../../partitioning/stored_ranges.py (where they are stored), writer.py.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode

from headrace.client.arrow.fetch.sections import sections_of
from headrace.client.arrow.read.bounds import Bounds
from headrace.client.arrow.read.prefetch import Chunk, Prefetch
from headrace.client.errors import BrokerError
from headrace.client.network_client import NetworkClient, TopicView
from headrace.client.partitioning.partitioners import RangePartitioner
from headrace.client.partitioning.stored_ranges import (
    OUTSIDE_CONFIG,
    RANGES_CONFIG,
    STORE_TOPIC,
    StoredRanges,
    read_configs,
    read_record,
)
from headrace.client.retry import Backoff, retry
from headrace.types import NO_TOPIC_ID
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from headrace.wire.records import iter_records

_TOPIC_RESOURCE = 2
_NOT_SHOWN = (ErrorCode.topic_authorization_failed, ErrorCode.cluster_authorization_failed)


async def load_ranges(client: NetworkClient, topic: str, *, timeout_ms: int) -> RangePartitioner | None:
    """None when the topic has no key ranges."""
    configs = await retry(lambda: _configs(client, topic), Backoff(timeout_ms).wait)
    stored = read_configs(topic, "", configs)
    if stored is None:
        views = await retry(lambda: client.topics([topic, STORE_TOPIC]), Backoff(timeout_ms).wait)
        if topic in views and STORE_TOPIC in views:
            stored = await _recorded(client, views[topic], timeout_ms)
    return None if stored is None else stored.partitioner()


async def _configs(client: NetworkClient, topic: str) -> dict[str, str | None]:
    """The topic's ranges as Headrace has them in its configs; nothing on brokers that do not know these."""
    connection = await client.any_connection()
    if ApiKey.DESCRIBE_CONFIGS not in connection.versions:
        return {}
    resource = {
        "resource_type": _TOPIC_RESOURCE,
        "resource_name": topic,
        "configuration_keys": [RANGES_CONFIG, OUTSIDE_CONFIG],
    }
    reply = await client.call_any(ApiKey.DESCRIBE_CONFIGS, {"resources": [resource]})
    (result,) = reply.results
    code = ErrorCode(int(result.error_code))
    if code is ErrorCode.none:
        return {str(entry.name): entry.value for entry in result.configs}
    if code in _NOT_SHOWN:
        return {}
    raise BrokerError(f"the configs of topic {topic!r}: {code.name}", code)


async def _recorded(client: NetworkClient, view: TopicView, timeout_ms: int) -> StoredRanges | None:
    """The newest record of the store; one for a deleted topic of the same name does not count."""
    prefetch = Prefetch(client, STORE_TOPIC, Bounds(partitions=(0,)), timeout_ms=timeout_ms)
    newest = None
    await prefetch.open()
    try:
        while (chunk := await prefetch.next_chunk()) is not None:
            for value in _values(chunk, view.name.encode()):
                newest = value
    finally:
        await prefetch.close()
    stored = None if newest is None else read_record(view.name, newest)
    return stored if stored is not None and stored.topic_id == _id_text(view) else None


def _values(chunk: Chunk, key: bytes) -> list[bytes | None]:
    return [
        record.value
        for fetched in chunk
        for section in sections_of(fetched)
        for record in iter_records(section.batch)
        if record.key == key
    ]


def _id_text(view: TopicView) -> str:
    """The topic id as Kafka's tools write it."""
    return urlsafe_b64encode((view.topic_id or NO_TOPIC_ID).bytes).decode().rstrip("=")
