"""The two topics that exactly-once sinks keep for themselves, made on first use on any Kafka.

Read next: sink_ledger.py, staging.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.client.arrow.bounds import TryAgain
from headrace.client.arrow.cluster import METADATA, Cluster, NoSuchTopic, TopicView
from headrace.client.bootstrap import Address
from headrace.client.errors import ClientError
from headrace.wire.error_codes import ErrorCode
from pyspark_headrace.connections import Kept
from pyspark_headrace.patience import patiently

CREATE_TOPICS = 19
_MAX_REPLICAS = 3
_CREATION_MS = 15_000


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
        "segment.ms": "3600000",  # what is newest is compacted only once its segment is done
    },
)
STAGING = InternalTopic(
    name="__headrace_staging",
    partitions=8,
    settings={
        "cleanup.policy": "delete",
        "retention.ms": "86400000",
        "segment.bytes": "268435456",
        # Batches are moved on as they are: no other codec, no other time, and none refused here that its own
        # topic would take.
        "compression.type": "producer",
        "message.timestamp.type": "CreateTime",
        "max.message.bytes": "67108864",
    },
)


def find_or_create(topic: InternalTopic, connections: Kept, *, timeout_ms: int) -> TopicView:
    cluster = connections.cluster
    try:
        return connections.call(patiently(lambda: cluster.topic(topic.name), timeout_ms=timeout_ms))
    except NoSuchTopic:
        connections.call(patiently(lambda: _create(topic, cluster), timeout_ms=timeout_ms))
    return connections.call(patiently(lambda: _created(topic, cluster), timeout_ms=timeout_ms))


async def _created(topic: InternalTopic, cluster: Cluster) -> TopicView:
    """Brokers hear of a new topic one after the other."""
    try:
        return await cluster.topic(topic.name)
    except NoSuchTopic as error:
        raise TryAgain(error.what, ErrorCode.unknown_topic_or_partition) from error


async def _create(topic: InternalTopic, cluster: Cluster) -> None:
    nodes = await cluster.call_any(METADATA, {"topics": []})
    for node in nodes.brokers:
        cluster.learn(int(node.node_id), Address(str(node.host), int(node.port)))
    controller = await cluster.connection(int(nodes.controller_id))
    entry = {
        "name": topic.name,
        "num_partitions": topic.partitions,
        "replication_factor": min(_MAX_REPLICAS, len(nodes.brokers)),
        "assignments": [],
        "configs": [{"name": name, "value": value} for name, value in topic.settings.items()],
    }
    reply = await controller.call(CREATE_TOPICS, {"topics": [entry], "timeout": _CREATION_MS})
    (made,) = reply.topics
    code = ErrorCode(int(made.error_code))
    if code in (ErrorCode.none, ErrorCode.topic_already_exists):  # another sink was quicker
        return
    refused = TryAgain(f"topic {topic.name!r}: {code.name}", code)
    if refused.retriable:
        raise refused
    raise ClientError(
        f"topic {topic.name!r}, which exactly-once sinks need, cannot be created: "
        f"{made.error_message or code.name}",
        next_step="have somebody create it who may, as docs/pipelines.md says; or exactlyOnce=off",
        code=code.name.upper(),
    )
