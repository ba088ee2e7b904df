"""The two topics that exactly-once sinks keep for themselves, made on first use on any Kafka.

Read next: sink_ledger.py, staging.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.client.admin import Admin
from headrace.client.arrow.bounds import TryAgain
from headrace.client.arrow.cluster import Cluster, NoSuchTopic, TopicView
from headrace.client.errors import ClientError
from headrace.wire.error_codes import ErrorCode
from pyspark_headrace.connections import Kept
from pyspark_headrace.patience import patiently

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


def find_or_create(topic: InternalTopic, connections: Kept, bootstrap: str, *, timeout_ms: int) -> TopicView:
    cluster = connections.cluster
    try:
        return connections.call(patiently(lambda: cluster.topic(topic.name), timeout_ms=timeout_ms))
    except NoSuchTopic:
        _create(topic, bootstrap)
    return connections.call(patiently(lambda: _created(topic, cluster), timeout_ms=timeout_ms))


async def _created(topic: InternalTopic, cluster: Cluster) -> TopicView:
    """Brokers hear of a new topic one after the other."""
    try:
        return await cluster.topic(topic.name)
    except NoSuchTopic as error:
        raise TryAgain(error.what, ErrorCode.unknown_topic_or_partition) from error


def _create(topic: InternalTopic, bootstrap: str) -> None:
    admin = Admin(bootstrap)
    try:
        admin.create_topic(
            topic.name,
            partitions=topic.partitions,
            replication_factor=min(_MAX_REPLICAS, len(admin.describe_cluster().nodes)),
            configs=topic.settings,
        )
    except ClientError as error:
        if error.code != "TOPIC_ALREADY_EXISTS":  # another sink was quicker
            raise ClientError(
                f"topic {topic.name!r}, which exactly-once sinks need, cannot be created: {error.what}",
                next_step="have somebody create it who may, as docs/pipelines.md says; or exactlyOnce=off",
                code=error.code,
            ) from error
