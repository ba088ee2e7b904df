# SPDX-License-Identifier: Apache-2.0
"""Log end offsets and last epochs of replicas, by which an election after data loss is decided (R19b).

Asked with ListOffsets and replica id -2, as Kafka's tools query a replica that is not the leader.
Read next: controller/loop.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.broker.partition.registry import Partitions
from headrace.broker.replication.peers import PeerLost, Peers
from headrace.machines.replication.election import LogEnd
from headrace.types import TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode

ANY_REPLICA = -2
_LATEST = -1
_VERSION = 7
_TIMEOUT_MS = 5_000


async def log_ends(
    peers: Peers, node_id: int, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, LogEnd]:
    """Of another node's replicas; without those that it does not hold, empty when it did not answer."""
    by_topic: dict[str, list[int]] = {}
    for partition in partitions:
        by_topic.setdefault(partition.topic, []).append(partition.partition)
    body = {
        "replica_id": ANY_REPLICA,
        "isolation_level": 0,
        "topics": [
            {
                "name": name,
                "partitions": [
                    {"partition_index": index, "current_leader_epoch": -1, "timestamp": _LATEST}
                    for index in indexes
                ],
            }
            for name, indexes in by_topic.items()
        ],
    }
    try:
        reply = await peers.request(node_id, ApiKey.LIST_OFFSETS, _VERSION, body, _TIMEOUT_MS)
    except PeerLost:
        return {}
    return {
        TopicPartition(topic.name, each.partition_index): LogEnd(each.leader_epoch, each.offset)
        for topic in reply.topics
        for each in topic.partitions
        if each.error_code == ErrorCode.none
    }


def own_log_end(held: Partitions, name: TopicPartition) -> LogEnd | None:
    """Of this node's replica; None when it holds none, or that is offline."""
    partition = held.get(name.topic, name.partition)
    if partition is None or not partition.online:
        return None
    return LogEnd(partition.log.epochs.latest, partition.log_end_offset)
