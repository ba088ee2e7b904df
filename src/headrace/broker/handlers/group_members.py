"""JoinGroup 0-9, SyncGroup 0-5, Heartbeat 0-4, LeaveGroup 0-5, ConsumerGroupHeartbeat 0-1.

From a request's version to the machine's event, and from its reply back; what is decided is in
machines/group_classic.py and group_consumer.py. What a machine may not have (chance, addresses, an engine for
regular expressions) comes with the event.
"""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.broker.context import RequestContext
from headrace.broker.quick_reply import QuickHandler, QuickReply
from headrace.errors import ApiError
from headrace.machines.consumer_events import ConsumerGroupHeartbeat, ConsumerGroupHeartbeatReply
from headrace.machines.consumer_member import Partitions
from headrace.machines.group_events import (
    ErrorReply,
    Heartbeat,
    JoinGroup,
    JoinGroupReply,
    JoinProtocol,
    LeaveGroup,
    LeaveGroupReply,
    LeavingMember,
    SyncGroup,
    SyncGroupReply,
)
from headrace.machines.machine import ReplyBody, ReplyToken
from headrace.wire.error_codes import ErrorCode
from headrace.world import new_uuid

if TYPE_CHECKING:
    from headrace.broker.node import Broker

_BATCHED_LEAVE_FROM = 3
_NULLABLE_PROTOCOL_FROM = 7
_MILLISECOND = timedelta(milliseconds=1)

B = TypeVar("B", bound=ReplyBody)


def _expect(body: ReplyBody | ApiError, wanted: type[B]) -> B:
    if isinstance(body, ApiError):
        raise body
    if not isinstance(body, wanted):
        raise TypeError(f"{body!r} is no {wanted.__name__}")
    return body


def _is_loading(body: ReplyBody | ApiError) -> bool:
    return isinstance(body, ApiError) and body.code is ErrorCode.coordinator_load_in_progress


def _count(broker: Broker, context: RequestContext, code: ErrorCode) -> None:
    if code is not ErrorCode.none:
        broker.metrics.request_error(context.api_key, code)


def _client_host(context: RequestContext) -> str:
    """As Java prints an address."""
    return "/" + context.peer.rpartition(":")[0]


def _fresh_member_id(broker: Broker, prefix: str | None) -> str:
    return f"{prefix}-{new_uuid(broker.world.random)}"


# JoinGroup


def join_group(broker: Broker, context: RequestContext, request: Any, reply: QuickReply) -> None:
    session_timeout_ms = request.session_timeout // _MILLISECOND
    rebalance_timeout = getattr(request, "rebalance_timeout", None)
    instance_id = getattr(request, "group_instance_id", None)
    client_id = context.client_id or ""
    fresh_id = _fresh_member_id(broker, instance_id or client_id)

    def event(token: ReplyToken) -> JoinGroup:
        return JoinGroup(
            token=token,
            version=context.api_version,
            member_id=request.member_id,
            group_instance_id=instance_id,
            client_id=client_id,
            client_host=_client_host(context),
            protocol_type=request.protocol_type,
            protocols=tuple(JoinProtocol(each.name, each.metadata) for each in request.protocols),
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=(
                session_timeout_ms if rebalance_timeout is None else rebalance_timeout // _MILLISECOND
            ),
            fresh_member_id=fresh_id,
            reason=getattr(request, "reason", None),
        )

    def finish(body: ReplyBody | ApiError) -> dict[str, Any]:
        joined = _expect(body, JoinGroupReply)
        _count(broker, context, joined.error)
        missing = None if context.api_version >= _NULLABLE_PROTOCOL_FROM else ""
        return {
            "error_code": joined.error,
            "generation_id": joined.generation,
            "protocol_type": joined.protocol_type,
            "protocol_name": missing if joined.protocol is None else joined.protocol,
            "leader": joined.leader,
            "skip_assignment": joined.skip_assignment,
            "member_id": joined.member_id,
            "members": [
                {
                    "member_id": member.member_id,
                    "group_instance_id": member.group_instance_id,
                    "metadata": member.metadata,
                }
                for member in joined.members
            ],
        }

    reply.ask_group(request.group_id, event, finish)


# SyncGroup


def sync_group(broker: Broker, context: RequestContext, request: Any, reply: QuickReply) -> None:
    def event(token: ReplyToken) -> SyncGroup:
        return SyncGroup(
            token=token,
            version=context.api_version,
            member_id=request.member_id,
            group_instance_id=getattr(request, "group_instance_id", None),
            generation=request.generation_id,
            protocol_type=getattr(request, "protocol_type", None),
            protocol=getattr(request, "protocol_name", None),
            assignments=tuple((each.member_id, each.assignment) for each in request.assignments),
        )

    def finish(body: ReplyBody | ApiError) -> dict[str, Any]:
        if _is_loading(body):  # the rebalance is lost; Java's consumer throws at the code for loading
            body = SyncGroupReply(error=ErrorCode.rebalance_in_progress)
        synced = _expect(body, SyncGroupReply)
        _count(broker, context, synced.error)
        return {
            "error_code": synced.error,
            "protocol_type": synced.protocol_type,
            "protocol_name": synced.protocol,
            "assignment": synced.assignment,
        }

    reply.ask_group(request.group_id, event, finish)


# Heartbeat


def heartbeat(broker: Broker, context: RequestContext, request: Any, reply: QuickReply) -> None:
    def event(token: ReplyToken) -> Heartbeat:
        return Heartbeat(
            token=token,
            version=context.api_version,
            member_id=request.member_id,
            group_instance_id=getattr(request, "group_instance_id", None),
            generation=request.generation_id,
        )

    def finish(body: ReplyBody | ApiError) -> dict[str, Any]:
        if _is_loading(body):  # as Kafka: every session begins anew once the group is there
            body = ErrorReply(error=ErrorCode.none)
        error = _expect(body, ErrorReply).error
        _count(broker, context, error)
        return {"error_code": error}

    reply.ask_group(request.group_id, event, finish)


# LeaveGroup


def leave_group(broker: Broker, context: RequestContext, request: Any, reply: QuickReply) -> None:
    batched = context.api_version >= _BATCHED_LEAVE_FROM

    def event(token: ReplyToken) -> LeaveGroup:
        return LeaveGroup(
            token=token,
            version=context.api_version,
            members=(
                tuple(
                    LeavingMember(each.member_id, each.group_instance_id, getattr(each, "reason", None))
                    for each in request.members
                )
                if batched
                else (LeavingMember(request.member_id),)
            ),
        )

    def finish(body: ReplyBody | ApiError) -> dict[str, Any]:
        left = _expect(body, LeaveGroupReply)
        _count(broker, context, left.error)
        return {
            "error_code": left.error,
            "members": [
                {
                    "member_id": member.member_id,
                    "group_instance_id": member.group_instance_id,
                    "error_code": member.error,
                }
                for member in (left.members if batched else ())
            ],
        }

    reply.ask_group(request.group_id, event, finish)


# ConsumerGroupHeartbeat


def consumer_group_heartbeat(
    broker: Broker, context: RequestContext, request: Any, reply: QuickReply
) -> Coroutine[Any, Any, dict[str, Any]] | None:
    pattern = getattr(request, "subscribed_topic_regex", None)
    if pattern:
        return _heartbeat_with_pattern(broker, context, request, pattern)

    def finish(body: ReplyBody | ApiError) -> dict[str, Any]:
        return _consumer_reply(broker, context, body)

    reply.ask_group(
        request.group_id, lambda token: _consumer_event(broker, context, request, token, None), finish
    )
    return None


async def _heartbeat_with_pattern(
    broker: Broker, context: RequestContext, request: Any, pattern: str
) -> dict[str, Any]:
    problem = await broker.groups.regex_problem(pattern)
    body = await broker.groups.ask(
        request.group_id, lambda token: _consumer_event(broker, context, request, token, problem)
    )
    return _consumer_reply(broker, context, body)


def _consumer_event(
    broker: Broker, context: RequestContext, request: Any, token: ReplyToken, regex_problem: str | None
) -> ConsumerGroupHeartbeat:
    names = request.subscribed_topic_names
    return ConsumerGroupHeartbeat(
        token=token,
        version=context.api_version,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout // _MILLISECOND,
        subscribed_topic_names=None if names is None else tuple(names),
        subscribed_topic_regex=getattr(request, "subscribed_topic_regex", None),
        server_assignor=request.server_assignor,
        owned_partitions=_owned(request.topic_partitions),
        client_id=context.client_id or "",
        client_host=_client_host(context),
        fresh_member_id="" if request.member_id else str(new_uuid(broker.world.random)),
        regex_error=regex_problem,
    )


def _owned(topics: Any) -> Partitions | None:
    if topics is None:
        return None
    return {each.topic_id: frozenset(each.partitions) for each in topics if each.partitions and each.topic_id}


def _consumer_reply(broker: Broker, context: RequestContext, body: ReplyBody | ApiError) -> dict[str, Any]:
    beaten = _expect(body, ConsumerGroupHeartbeatReply)
    _count(broker, context, beaten.error)
    return {
        "error_code": beaten.error,
        "error_message": beaten.error_message,
        "member_id": beaten.member_id,
        "member_epoch": beaten.member_epoch,
        "heartbeat_interval": beaten.heartbeat_interval_ms,
        "assignment": None
        if beaten.assignment is None
        else {
            "topic_partitions": [
                {"topic_id": topic_id, "partitions": sorted(partitions)}
                for topic_id, partitions in beaten.assignment.items()
            ]
        },
    }


QUICK_HANDLERS: dict[int, QuickHandler] = {
    11: join_group,
    12: heartbeat,
    13: leave_group,
    14: sync_group,
    68: consumer_group_heartbeat,
}
