# SPDX-License-Identifier: Apache-2.0
"""DescribeCluster 0-2, DescribeLogDirs 1-5, UnregisterBroker 0, and BrokerHeartbeat 0 between nodes.

DescribeCluster lists the nodes that have an endpoint on the client's listener. UnregisterBroker: a node is
registered only as long as its session lasts, so the request succeeds when the node is down and no partition
has it as a replica. BrokerHeartbeat asks this node, the other way round than in Apache Kafka, whether its
view of the cluster has reached a version (controller/change_propagation.py).

Gaps: a node has one log directory, which cannot be cordoned.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from headrace.broker.controller.change_propagation import LIMIT_MS
from headrace.broker.controller.metadata_cache import controller_id, nodes_on
from headrace.broker.controller.reassignments import Reassignments
from headrace.broker.controller.view_waits import ViewWaits
from headrace.broker.network.request_context import Handler, RequestContext
from headrace.broker.network.yielding import yielding
from headrace.broker.partition.partition import Partition
from headrace.broker.partition.registry import Partitions
from headrace.broker.security.node_login import check_node
from headrace.broker.security.visibility import CLUSTER_OPERATIONS
from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.errors import ApiError, CoordinationError
from headrace.types import Node, TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from headrace.world import Files

_BROKERS, _CONTROLLERS = 1, 2


class ClusterHandlers:
    """Handlers of DescribeCluster, DescribeLogDirs, UnregisterBroker and BrokerHeartbeat."""

    def __init__(
        self,
        *,
        node_id: int,
        cluster: ClusterMetadata,
        view_waits: ViewWaits,
        partitions: Partitions,
        files: Files,
        reassignments: Reassignments,
    ) -> None:
        self._node_id = node_id
        self._cluster = cluster
        self._view_waits = view_waits
        self._partitions = partitions
        self._files = files
        self._reassignments = reassignments

    def by_key(self) -> dict[int, Handler]:
        return {
            ApiKey.DESCRIBE_LOG_DIRS: self.describe_log_dirs,
            ApiKey.DESCRIBE_CLUSTER: self.describe_cluster,
            ApiKey.UNREGISTER_BROKER: self.unregister_broker,
            ApiKey.BROKER_HEARTBEAT: self.broker_heartbeat,
        }

    async def describe_cluster(self, context: RequestContext, request: Any) -> dict[str, Any]:
        _check_endpoint_type(getattr(request, "endpoint_type", _BROKERS))
        view = self._cluster.view
        nodes = nodes_on(view, context.listener)
        reply: dict[str, Any] = {
            "cluster_id": view.cluster_id,
            "controller_id": controller_id(view, nodes),
            "endpoint_type": _BROKERS,
            "brokers": _describe_nodes(view.nodes.values(), context.listener, fenced=False),
        }
        if getattr(request, "include_fenced_brokers", False):
            outside = (*view.joining.values(), *view.fenced.values())
            reply["brokers"] += _describe_nodes(outside, context.listener, fenced=True)
        if request.include_cluster_authorized_operations:
            reply["cluster_authorized_operations"] = CLUSTER_OPERATIONS
        return reply

    async def describe_log_dirs(self, context: RequestContext, request: Any) -> dict[str, Any]:
        """All partitions of this node or the requested ones; unknown ones are omitted, as in Kafka."""
        requested = None
        if request.topics is not None:
            requested = {
                TopicPartition(topic.topic, partition)
                async for topic in yielding(request.topics)
                async for partition in yielding(topic.partitions)
            }
        partitions = [
            partition
            async for partition in yielding(list(self._partitions.all()))
            if partition.online and (requested is None or partition.topic_partition in requested)
        ]
        log_dirs = self._partitions.log_dirs()
        return {"results": [await self._describe_log_dir(path, partitions) for path in log_dirs]}

    async def _describe_log_dir(self, path: Path, partitions: Iterable[Partition]) -> dict[str, Any]:
        try:
            total_bytes = self._files.total_bytes(path)
            usable_bytes = self._files.free_bytes(path)
        except OSError:
            return {"error_code": ErrorCode.kafka_storage_error, "log_dir": str(path)}
        topics: dict[str, list[dict[str, Any]]] = {}
        async for partition in yielding(partitions):
            topics.setdefault(partition.topic_partition.topic, []).append(
                {
                    "partition_index": partition.topic_partition.partition,
                    "partition_size": partition.size_bytes,
                    "offset_lag": partition.role.lag,
                }
            )
        return {
            "log_dir": str(path),
            "topics": [{"name": name, "partitions": described} for name, described in topics.items()],
            "total_bytes": total_bytes,
            "usable_bytes": usable_bytes,
        }

    async def unregister_broker(self, context: RequestContext, request: Any) -> dict[str, Any]:
        await self._reassignments.unregister(request.broker_id)
        return {"error_code": ErrorCode.none, "error_message": None}

    async def broker_heartbeat(self, context: RequestContext, request: Any) -> dict[str, Any]:
        """Answers when this node has applied the version and has opened what it is to hold by it."""
        check_node(self._cluster.view, context.principal)
        if (request.broker_id, request.broker_epoch) != (self._node_id, self._cluster.node_epoch):
            raise ApiError(ErrorCode.stale_broker_epoch)
        caught_up = await self._reach(request.current_metadata_offset)
        return {
            "error_code": ErrorCode.none,
            "is_caught_up": caught_up,
            "is_fenced": False,
            "should_shut_down": False,
        }

    async def _reach(self, version: int) -> bool:
        if self._cluster.view.version < version:
            with contextlib.suppress(CoordinationError):  # the view follows when the store answers again
                await self._cluster.refresh()
        reached = await self._view_waits.until(lambda view: view.version >= version, LIMIT_MS)
        if reached:
            await self._partitions.opened()
        return reached


def _describe_nodes(nodes: Iterable[Node], listener: str, *, fenced: bool) -> list[dict[str, Any]]:
    """Reply entries of the nodes that have an endpoint on the listener, by node id."""
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
