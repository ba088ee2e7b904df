# SPDX-License-Identifier: Apache-2.0
"""AlterPartition 3, ElectLeaders 0-2, AlterPartitionReassignments 0-1, ListPartitionReassignments 0.

AlterPartition is sent by partition leaders, the others by operators. All but ListPartitionReassignments are
handled by the controller (dispatch/forwarding.py forwards what operators send to other nodes).
"""

from __future__ import annotations

import asyncio
from typing import Any

from headrace.broker.controller.isr_updater import IsrOutcome, IsrUpdater
from headrace.broker.controller.reassignments import Reassignments
from headrace.broker.network.request_context import Handler, RequestContext
from headrace.broker.network.yielding import yielding
from headrace.broker.security.node_login import check_node
from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.errors import ApiError, CoordinationError
from headrace.machines.replication.leader import IsrProposal
from headrace.types import ClusterView, PartitionState, TopicPartition
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode

_PREFERRED, _UNCLEAN = 0, 1


class ReplicaHandlers:
    """Handlers of AlterPartition, ElectLeaders and partition reassignments."""

    def __init__(
        self, *, cluster: ClusterMetadata, isr_updater: IsrUpdater, reassignments: Reassignments
    ) -> None:
        self._cluster = cluster
        self._isr_updater = isr_updater
        self._reassignments = reassignments

    def by_key(self) -> dict[int, Handler]:
        return {
            ApiKey.ELECT_LEADERS: self.elect_leaders,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: self.alter_partition_reassignments,
            ApiKey.LIST_PARTITION_REASSIGNMENTS: self.list_partition_reassignments,
            ApiKey.ALTER_PARTITION: self.alter_partition,
        }

    async def alter_partition(self, context: RequestContext, request: Any) -> dict[str, Any]:
        check_node(self._cluster.view, context.principal, request.broker_id)
        _check_sender(self._cluster.view, request)
        if not self._cluster.is_controller:
            raise ApiError(ErrorCode.not_controller)
        changes = [(topic.topic_id, partition) for topic in request.topics for partition in topic.partitions]
        submit = self._isr_updater.submit
        results = await asyncio.gather(
            *(
                submit(topic_id, partition.partition_index, _proposal(request, partition))
                for topic_id, partition in changes
            ),
            return_exceptions=True,
        )
        topics: dict[Any, list[dict[str, Any]]] = {topic.topic_id: [] for topic in request.topics}
        for (topic_id, partition), result in zip(changes, results, strict=True):
            topics[topic_id].append({"partition_index": partition.partition_index, **_new_state(result)})
        return {"topics": [{"topic_id": topic_id, "partitions": each} for topic_id, each in topics.items()]}

    async def elect_leaders(self, context: RequestContext, request: Any) -> dict[str, Any]:
        kind = getattr(request, "election_type", _PREFERRED)
        if kind not in (_PREFERRED, _UNCLEAN):
            raise ApiError(ErrorCode.invalid_request, f"there is no election of type {kind}")
        requested: list[TopicPartition] | None = None
        if request.topic_partitions is not None:
            requested = [
                TopicPartition(topic.topic, index)
                async for topic in yielding(request.topic_partitions)
                async for index in yielding(topic.partitions)
            ]
        outcomes = await self._reassignments.elect(requested, unclean=kind == _UNCLEAN)
        topics: dict[str, list[dict[str, Any]]] = {}
        async for partition, outcome in yielding(outcomes.items()):
            topics.setdefault(partition.topic, []).append(
                {"partition_id": partition.partition, **_error_fields(outcome)}
            )
        return {
            "replica_election_results": [
                {"topic": name, "partition_result": results} for name, results in topics.items()
            ]
        }

    async def alter_partition_reassignments(self, context: RequestContext, request: Any) -> dict[str, Any]:
        wanted = {
            TopicPartition(topic.name, each.partition_index): each.replicas
            async for topic in yielding(request.topics)
            async for each in yielding(topic.partitions)
        }
        same_factor = not getattr(request, "allow_replication_factor_change", True)
        outcomes = await self._reassignments.reassign(wanted, same_factor=same_factor)
        return {
            "allow_replication_factor_change": not same_factor,
            "responses": [
                {
                    "name": topic.name,
                    "partitions": [
                        {
                            "partition_index": each.partition_index,
                            **_error_fields(outcomes[TopicPartition(topic.name, each.partition_index)]),
                        }
                        async for each in yielding(topic.partitions)
                    ],
                }
                async for topic in yielding(request.topics)
            ],
        }

    async def list_partition_reassignments(self, context: RequestContext, request: Any) -> dict[str, Any]:
        view = self._cluster.view
        requested = None
        if request.topics is not None:
            requested = {
                (topic.name, index)
                async for topic in yielding(request.topics)
                async for index in yielding(topic.partition_indexes)
            }
        topics = []
        async for topic in yielding(view.topics.values(), 1000):
            partitions = [
                {
                    "partition_index": index,
                    "replicas": topic.partitions[index].replicas,
                    "adding_replicas": move.adding,
                    "removing_replicas": move.removing,
                }
                for index, move in sorted(topic.moves.items())
                if requested is None or (topic.name, index) in requested
            ]
            if partitions:
                topics.append({"name": topic.name, "partitions": partitions})
        return {"error_message": None, "topics": topics}


def _check_sender(view: ClusterView, request: Any) -> None:
    """Only a registered node with its current epoch (R3, S3)."""
    sender = view.nodes.get(request.broker_id) or view.joining.get(request.broker_id)
    if sender is None or sender.epoch != request.broker_epoch:
        raise ApiError(ErrorCode.stale_broker_epoch)


def _proposal(request: Any, partition: Any) -> IsrProposal:
    return IsrProposal(
        leader=request.broker_id,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        isr=tuple((member.broker_id, member.broker_epoch) for member in partition.new_isr_with_epochs),
    )


def _new_state(result: IsrOutcome | BaseException) -> dict[str, Any]:
    if isinstance(result, PartitionState):
        return {
            "error_code": ErrorCode.none,
            "leader_id": result.leader,
            "leader_epoch": result.leader_epoch,
            "isr": result.isr,
            "partition_epoch": result.partition_epoch,
        }
    if isinstance(result, ApiError):
        code = result.code
    elif isinstance(result, CoordinationError):
        code = ErrorCode.request_timed_out
    elif isinstance(result, BaseException):
        raise result
    else:
        code = result
    return {"error_code": code, "leader_id": -1, "leader_epoch": -1, "partition_epoch": -1}


def _error_fields(outcome: ApiError | None) -> dict[str, Any]:
    if outcome is None:
        return {"error_code": ErrorCode.none, "error_message": None}
    return {"error_code": outcome.code, "error_message": outcome.message}
