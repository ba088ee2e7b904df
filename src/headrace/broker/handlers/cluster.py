"""DescribeCluster 0-2, DescribeLogDirs 1-5, UnregisterBroker 0: the nodes, and what lies on this one's disk.

A node is registered as long as its session lasts, so that UnregisterBroker only says whether one is gone for
good: it is down, and no partition counts on it.

Gaps: no ACLs, so every operation is authorized; no log directory is cordoned, none is moved between
directories.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.broker.context import Handler, RequestContext
from headrace.broker.metadata_replies import CLUSTER_OPERATIONS, controller_id, reach
from headrace.errors import ApiError
from headrace.types import Node, TopicPartition
from headrace.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.node import Broker
    from headrace.broker.partition import Partition

_BROKERS, _CONTROLLERS = 1, 2


async def describe_cluster(broker: Broker, context: RequestContext, request: Any) -> dict[str, Any]:
    _check_endpoint_type(getattr(request, "endpoint_type", _BROKERS))
    view = broker.cluster.view
    seen = reach(view, context.listener)
    reply: dict[str, Any] = {
        "cluster_id": view.cluster_id,
        "controller_id": controller_id(view, seen),
        "endpoint_type": _BROKERS,
        "brokers": _described(view.nodes.values(), context.listener, fenced=False),
    }
    if getattr(request, "include_fenced_brokers", False):
        outside = (*view.joining.values(), *view.fenced.values())
        reply["brokers"] += _described(outside, context.listener, fenced=True)
    if request.include_cluster_authorized_operations:
        reply["cluster_authorized_operations"] = CLUSTER_OPERATIONS
    return reply


def _described(nodes: Iterable[Node], listener: str, *, fenced: bool) -> list[dict[str, Any]]:
    """Those that can be reached by this listener."""
    found = ((node, node.endpoint(listener)) for node in sorted(nodes, key=lambda node: node.node_id))
    return [
        {
            "broker_id": node.node_id,
            "host": endpoint.host,
            "port": endpoint.port,
            "rack": node.rack,
            "is_fenced": fenced,
        }
        for node, endpoint in found
        if endpoint is not None
    ]


def _check_endpoint_type(endpoint_type: int) -> None:
    if endpoint_type == _CONTROLLERS:
        raise ApiError(ErrorCode.mismatched_endpoint_type, "this is an endpoint for brokers, not controllers")
    if endpoint_type != _BROKERS:
        raise ApiError(ErrorCode.unsupported_endpoint_type, f"endpoint type {endpoint_type} does not exist")


async def describe_log_dirs(broker: Broker, context: RequestContext, request: Any) -> dict[str, Any]:
    """All partitions of this node, or those asked for; unknown ones are left out, as Kafka does."""
    asked = None
    if request.topics is not None:
        asked = {
            TopicPartition(topic.topic, partition)
            for topic in request.topics
            for partition in topic.partitions
        }
    partitions = [
        partition
        for partition in broker.partitions.all()
        if partition.online and (asked is None or partition.topic_partition in asked)
    ]
    # A node has one log directory.
    return {"results": [_describe_log_dir(broker, path, partitions) for path in broker.partitions.log_dirs()]}


def _describe_log_dir(broker: Broker, path: Path, partitions: Iterable[Partition]) -> dict[str, Any]:
    try:
        total_bytes = broker.world.files.total_bytes(path)
        usable_bytes = broker.world.files.free_bytes(path)
    except OSError:
        return {"error_code": ErrorCode.kafka_storage_error, "log_dir": str(path)}
    topics: dict[str, list[dict[str, Any]]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic_partition.topic, []).append(
            {
                "partition_index": partition.topic_partition.partition,
                "partition_size": partition.size_bytes,
                "offset_lag": 0 if partition.following is None else partition.following.machine.lag,
            }
        )
    return {
        "log_dir": str(path),
        "topics": [{"name": name, "partitions": described} for name, described in topics.items()],
        "total_bytes": total_bytes,
        "usable_bytes": usable_bytes,
    }


async def unregister_broker(broker: Broker, context: RequestContext, request: Any) -> dict[str, Any]:
    await broker.assignments.unregister(request.broker_id)
    return {"error_code": ErrorCode.none, "error_message": None}


HANDLERS: dict[int, Handler] = {35: describe_log_dirs, 60: describe_cluster, 64: unregister_broker}
