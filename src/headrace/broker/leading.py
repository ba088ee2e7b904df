"""The partition a request is about, or the error code that tells the client where it went wrong.

Produce and Fetch look partitions up themselves (handlers/produce.py, handlers/fetch.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import ApiError
from headrace.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.node import Broker
    from headrace.broker.partition import Partition


def leading_partition(broker: Broker, topic_name: str, partition_index: int) -> Partition:
    """Raises ApiError unless this node leads the partition and can read it."""
    topic = broker.cluster.view.topics.get(topic_name)
    if topic is None or not 0 <= partition_index < len(topic.partitions):
        raise ApiError(ErrorCode.unknown_topic_or_partition)
    if topic.partitions[partition_index].leader != broker.node_id:
        raise ApiError(ErrorCode.not_leader_or_follower)
    partition = broker.partitions.find(topic_name, None, partition_index)
    if not partition.online:
        raise ApiError(ErrorCode.kafka_storage_error, f"{topic_name}-{partition_index} is offline")
    if not partition.leads:  # its session is in doubt (R7)
        raise ApiError(ErrorCode.not_leader_or_follower)
    return partition
