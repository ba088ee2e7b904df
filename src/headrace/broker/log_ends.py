"""How far the logs of replicas reach, asked of the nodes themselves: what R19b chooses by.

ListOffsets as Kafka's own tools ask a replica that does not lead: replica id -2, and the answer is the log's
end and last epoch. Read next: controller_office.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.broker.peers import PeerLost
from headrace.machines.election import LogEnd
from headrace.types import TopicPartition
from headrace.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.node import Broker

LIST_OFFSETS_KEY = 2
ANY_REPLICA = -2
_LATEST = -1
_VERSION = 7
_WITHIN_MS = 5_000


async def log_ends(
    broker: Broker, node_id: int, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, LogEnd]:
    """Of those the node holds and could tell; none when it did not answer."""
    if node_id == broker.node_id:
        return {each: end for each in partitions if (end := own_log_end(broker, each)) is not None}
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
        reply = await broker.peers.request(node_id, LIST_OFFSETS_KEY, _VERSION, body, _WITHIN_MS)
    except PeerLost:
        return {}
    return {
        TopicPartition(topic.name, each.partition_index): LogEnd(each.leader_epoch, each.offset)
        for topic in reply.topics
        for each in topic.partitions
        if each.error_code == ErrorCode.none
    }


def own_log_end(broker: Broker, name: TopicPartition) -> LogEnd | None:
    partition = broker.partitions.get(name.topic, name.partition)
    if partition is None or not partition.online:
        return None
    return LogEnd(partition.log.epochs.latest, partition.log_end_offset)
