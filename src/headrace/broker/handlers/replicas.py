"""AlterPartition 3, ElectLeaders 0-2, Alter- and ListPartitionReassignments: who holds and leads partitions.

AlterPartition comes from leaders, the others from operators; all but the list are the controller's to carry
out (relay.py brings them there). Gap: no ACLs, so any registered node's id and epoch are believed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from headrace.broker.context import Handler, RequestContext
from headrace.broker.isr_desk import Judgement
from headrace.errors import ApiError, CoordinationError
from headrace.machines.leader import IsrProposal
from headrace.types import ClusterView, PartitionState, TopicPartition
from headrace.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.node import Broker

_PREFERRED, _UNCLEAN = 0, 1


async def alter_partition(broker: Broker, context: RequestContext, request: Any) -> dict[str, Any]:
    _check_sender(broker.cluster.view, request)
    if not broker.cluster.is_controller:
        raise ApiError(ErrorCode.not_controller)
    asked = [(topic.topic_id, partition) for topic in request.topics for partition in topic.partitions]
    answers = await asyncio.gather(
        *(
            broker.office.isr.submit(topic_id, partition.partition_index, _proposal(request, partition))
            for topic_id, partition in asked
        ),
        return_exceptions=True,
    )
    topics: dict[Any, list[dict[str, Any]]] = {topic.topic_id: [] for topic in request.topics}
    for (topic_id, partition), answer in zip(asked, answers, strict=True):
        topics[topic_id].append({"partition_index": partition.partition_index, **_judgement(answer)})
    return {
        "topics": [{"topic_id": topic_id, "partitions": answered} for topic_id, answered in topics.items()]
    }


def _check_sender(view: ClusterView, request: Any) -> None:
    """R3, S3: only a registered node, in its present incarnation."""
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


def _judgement(answer: Judgement | BaseException) -> dict[str, Any]:
    if isinstance(answer, PartitionState):
        return {
            "error_code": ErrorCode.none,
            "leader_id": answer.leader,
            "leader_epoch": answer.leader_epoch,
            "isr": answer.isr,
            "partition_epoch": answer.partition_epoch,
        }
    if isinstance(answer, ApiError):
        code = answer.code
    elif isinstance(answer, CoordinationError):
        code = ErrorCode.request_timed_out
    elif isinstance(answer, BaseException):
        raise answer
    else:
        code = answer
    return {"error_code": code, "leader_id": -1, "leader_epoch": -1, "partition_epoch": -1}


async def elect_leaders(broker: Broker, context: RequestContext, request: Any) -> dict[str, Any]:
    kind = getattr(request, "election_type", _PREFERRED)
    if kind not in (_PREFERRED, _UNCLEAN):
        raise ApiError(ErrorCode.invalid_request, f"there is no election of type {kind}")
    asked: list[TopicPartition] | None = None
    if request.topic_partitions is not None:
        asked = [
            TopicPartition(topic.topic, index)
            for topic in request.topic_partitions
            for index in topic.partitions
        ]
    outcomes = await broker.assignments.elect(asked, unclean=kind == _UNCLEAN)
    topics: dict[str, list[dict[str, Any]]] = {}
    for partition, outcome in outcomes.items():
        topics.setdefault(partition.topic, []).append(
            {"partition_id": partition.partition, **_error_fields(outcome)}
        )
    return {
        "replica_election_results": [
            {"topic": name, "partition_result": results} for name, results in topics.items()
        ]
    }


async def alter_partition_reassignments(
    broker: Broker, context: RequestContext, request: Any
) -> dict[str, Any]:
    wanted = {
        TopicPartition(topic.name, each.partition_index): each.replicas
        for topic in request.topics
        for each in topic.partitions
    }
    same_factor = not getattr(request, "allow_replication_factor_change", True)
    outcomes = await broker.assignments.reassign(wanted, same_factor=same_factor)
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
                    for each in topic.partitions
                ],
            }
            for topic in request.topics
        ],
    }


async def list_partition_reassignments(
    broker: Broker, context: RequestContext, request: Any
) -> dict[str, Any]:
    view = broker.cluster.view
    asked = None
    if request.topics is not None:
        asked = {(topic.name, index) for topic in request.topics for index in topic.partition_indexes}
    topics = []
    for topic in view.topics.values():
        partitions = [
            {
                "partition_index": index,
                "replicas": topic.partitions[index].replicas,
                "adding_replicas": move.adding,
                "removing_replicas": move.removing,
            }
            for index, move in sorted(topic.moves.items())
            if asked is None or (topic.name, index) in asked
        ]
        if partitions:
            topics.append({"name": topic.name, "partitions": partitions})
    return {"error_message": None, "topics": topics}


def _error_fields(outcome: ApiError | None) -> dict[str, Any]:
    if outcome is None:
        return {"error_code": ErrorCode.none, "error_message": None}
    return {"error_code": outcome.code, "error_message": outcome.message}


HANDLERS: dict[int, Handler] = {
    43: elect_leaders,
    45: alter_partition_reassignments,
    46: list_partition_reassignments,
    56: alter_partition,
}
