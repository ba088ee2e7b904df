# SPDX-License-Identifier: Apache-2.0
"""JoinGroup 0-9, SyncGroup 0-5, Heartbeat 0-4, LeaveGroup 0-5, ConsumerGroupHeartbeat 0-1.

Translates requests of any version to events of the group state machine and its replies back. The decisions
are in machines/groups/classic/group.py and machines/groups/consumer/group.py. What a state machine must not
compute itself (random member ids, client addresses, checks of regular expressions) is part of the event.
"""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import timedelta
from random import Random
from typing import Any, TypeVar

from headrace.broker.groups.coordinator import GroupCoordinator
from headrace.broker.metrics import Metrics
from headrace.broker.network.deferred_reply import DeferredHandler, DeferredReply
from headrace.broker.network.request_context import RequestContext
from headrace.errors import ApiError
from headrace.machines.groups.consumer.events import ConsumerGroupHeartbeat, ConsumerGroupHeartbeatReply
from headrace.machines.groups.consumer.member import Partitions
from headrace.machines.groups.events import (
    NO_TOKEN,
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
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from headrace.wire.requests.group_membership import (
    JoinGroupRequest,
    SyncGroupRequest,
    write_join_group_reply,
    write_sync_group_reply,
)
from headrace.world import new_uuid

_BATCHED_LEAVE_FROM = 3
_MILLISECOND = timedelta(milliseconds=1)
_NO_ERROR = {"error_code": ErrorCode.none}

B = TypeVar("B", bound=ReplyBody)


class GroupMemberHandlers:
    """Handlers of JoinGroup, SyncGroup, Heartbeat, LeaveGroup and ConsumerGroupHeartbeat."""

    def __init__(self, *, groups: GroupCoordinator, metrics: Metrics, random: Random) -> None:
        self._groups = groups
        self._metrics = metrics
        self._random = random

    def by_key(self) -> dict[int, DeferredHandler]:
        return {
            ApiKey.JOIN_GROUP: self.join_group,
            ApiKey.HEARTBEAT: self.heartbeat,
            ApiKey.LEAVE_GROUP: self.leave_group,
            ApiKey.SYNC_GROUP: self.sync_group,
            ApiKey.CONSUMER_GROUP_HEARTBEAT: self.consumer_group_heartbeat,
        }

    def _count_error(self, context: RequestContext, code: ErrorCode) -> None:
        if code is not ErrorCode.none:
            self._metrics.request_error(context.api_key, code, context.activity)

    def _new_member_id(self, prefix: str | None) -> str:
        return f"{prefix}-{new_uuid(self._random)}"

    # JoinGroup

    def join_group(self, context: RequestContext, request: JoinGroupRequest, reply: DeferredReply) -> None:
        version, client_id = context.api_version, context.client_id or ""
        session_ms, rebalance_ms = request.session_timeout_ms, request.rebalance_timeout_ms
        fresh_id = "" if request.member_id else self._new_member_id(request.instance_id or client_id)

        def event(token: ReplyToken) -> JoinGroup:
            return JoinGroup(
                token=token,
                version=version,
                member_id=request.member_id,
                group_instance_id=request.instance_id,
                client_id=client_id,
                client_host=_client_host(context),
                protocol_type=request.protocol_type,
                protocols=tuple(map(JoinProtocol._make, request.protocols)),
                session_timeout_ms=session_ms,
                rebalance_timeout_ms=session_ms if rebalance_ms is None else rebalance_ms,
                fresh_member_id=fresh_id,
                reason=request.reason,
                principal=context.principal,
            )

        def finish(body: ReplyBody | ApiError) -> bytes:
            joined = _expect(body, JoinGroupReply)
            self._count_error(context, joined.error)
            return write_join_group_reply(
                version,
                context.correlation_id,
                error=joined.error,
                generation=joined.generation,
                protocol_type=joined.protocol_type,
                protocol=joined.protocol,
                leader=joined.leader,
                skip_assignment=joined.skip_assignment,
                member_id=joined.member_id,
                members=joined.members,
            )

        self._groups.submit(request.group_id, event, reply.answer_with(finish))

    # SyncGroup

    def sync_group(self, context: RequestContext, request: SyncGroupRequest, reply: DeferredReply) -> None:
        version = context.api_version

        def event(token: ReplyToken) -> SyncGroup:
            return SyncGroup(
                token=token,
                version=version,
                member_id=request.member_id,
                group_instance_id=request.instance_id,
                generation=request.generation,
                protocol_type=request.protocol_type,
                protocol=request.protocol,
                assignments=request.assignments,
            )

        def finish(body: ReplyBody | ApiError) -> bytes:
            if _is_loading(body):  # the Java consumer fails on COORDINATOR_LOAD_IN_PROGRESS
                body = SyncGroupReply(error=ErrorCode.rebalance_in_progress)
            synced = _expect(body, SyncGroupReply)
            self._count_error(context, synced.error)
            return write_sync_group_reply(
                version,
                context.correlation_id,
                error=synced.error,
                protocol_type=synced.protocol_type,
                protocol=synced.protocol,
                assignment=synced.assignment,
            )

        self._groups.submit(request.group_id, event, reply.answer_with(finish))

    # Heartbeat

    def heartbeat(self, context: RequestContext, request: Any, reply: DeferredReply) -> None:
        def finish(body: ReplyBody | ApiError) -> dict[str, Any]:
            if isinstance(body, ErrorReply) and body.error is ErrorCode.none:
                return _NO_ERROR
            if _is_loading(body):  # as in Kafka: loading restarts every session
                body = ErrorReply(error=ErrorCode.none)
            error = _expect(body, ErrorReply).error
            self._count_error(context, error)
            return {"error_code": error}

        event = reply.prepared(_heartbeat, request)
        self._groups.submit(request.group_id, event.numbered, reply.answer_with(finish))

    # LeaveGroup

    def leave_group(self, context: RequestContext, request: Any, reply: DeferredReply) -> None:
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
            self._count_error(context, left.error)
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

        self._groups.submit(request.group_id, event, reply.answer_with(finish))

    # ConsumerGroupHeartbeat

    def consumer_group_heartbeat(
        self, context: RequestContext, request: Any, reply: DeferredReply
    ) -> Coroutine[Any, Any, dict[str, Any]] | None:
        regex = getattr(request, "subscribed_topic_regex", None)
        if regex:
            return self._heartbeat_with_regex(context, request, regex)

        def finish(body: ReplyBody | ApiError) -> dict[str, Any]:
            return self._consumer_reply(context, body)

        if request.member_id:
            event = reply.prepared(self._consumer_event, request)
        else:  # it is given an id of its own
            event = self._consumer_event(context, request)
        self._groups.submit(request.group_id, event.numbered, reply.answer_with(finish))
        return None

    async def _heartbeat_with_regex(
        self, context: RequestContext, request: Any, regex: str
    ) -> dict[str, Any]:
        event = self._consumer_event(context, request)
        event.regex_error = await self._groups.regex_problem(regex)
        body = await self._groups.ask(request.group_id, event.numbered)
        return self._consumer_reply(context, body)

    def _consumer_event(self, context: RequestContext, request: Any) -> ConsumerGroupHeartbeat:
        names = request.subscribed_topic_names
        return ConsumerGroupHeartbeat(
            token=NO_TOKEN,
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
            fresh_member_id="" if request.member_id else str(new_uuid(self._random)),
            principal=context.principal,
        )

    def _consumer_reply(self, context: RequestContext, body: ReplyBody | ApiError) -> dict[str, Any]:
        result = _expect(body, ConsumerGroupHeartbeatReply)
        self._count_error(context, result.error)
        return {
            "error_code": result.error,
            "error_message": result.error_message,
            "member_id": result.member_id,
            "member_epoch": result.member_epoch,
            "heartbeat_interval": result.heartbeat_interval_ms,
            "assignment": None
            if result.assignment is None
            else {
                "topic_partitions": [
                    {"topic_id": topic_id, "partitions": sorted(partitions)}
                    for topic_id, partitions in result.assignment.items()
                ]
            },
        }


def _heartbeat(context: RequestContext, request: Any) -> Heartbeat:
    return Heartbeat(
        token=NO_TOKEN,
        version=context.api_version,
        member_id=request.member_id,
        group_instance_id=getattr(request, "group_instance_id", None),
        generation=request.generation_id,
    )


def _expect(body: ReplyBody | ApiError, wanted: type[B]) -> B:
    if isinstance(body, ApiError):
        raise body
    if not isinstance(body, wanted):
        raise TypeError(f"expected {wanted.__name__}, not {body!r}")
    return body


def _is_loading(body: ReplyBody | ApiError) -> bool:
    return isinstance(body, ApiError) and body.code is ErrorCode.coordinator_load_in_progress


def _client_host(context: RequestContext) -> str:
    """The address as Java prints it."""
    return "/" + context.peer.rpartition(":")[0]


def _owned(topics: Any) -> Partitions | None:
    if topics is None:
        return None
    return {each.topic_id: frozenset(each.partitions) for each in topics if each.partitions and each.topic_id}
