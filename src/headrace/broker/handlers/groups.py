"""DescribeGroups 0-6, ListGroups 0-5, DeleteGroups 0-2, ConsumerGroupDescribe 0-1: groups as tools see them.

A group of the consumer protocol (KIP-848) is Dead to DescribeGroups, and a classic one is not found by
ConsumerGroupDescribe, as in Apache Kafka; tools ask for both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.broker.context import Handler, RequestContext
from headrace.broker.turns import in_turns
from headrace.errors import ApiError
from headrace.machines.consumer_events import DescribedConsumer
from headrace.machines.group_events import DeleteGroup, ErrorReply, GroupDescription
from headrace.types import ClusterView
from headrace.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.node import Broker

_NOT_FOUND_FROM = 6
_DELETED_TOGETHER = 100
_DEAD = "Dead"
_CLASSIC = "Classic"
_NOT_ASKED = -(2**31)
_GROUP_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
"""Read, delete, describe, describe configs, alter configs: all, while there are no ACLs."""


def _operations(request: Any) -> int:
    asked = getattr(request, "include_authorized_operations", False)
    return _GROUP_OPERATIONS if asked else _NOT_ASKED


# ListGroups


async def list_groups(broker: Broker, context: RequestContext, request: Any) -> dict[str, Any]:
    states = {state.lower() for state in getattr(request, "states_filter", ())}
    types = {kind.lower() for kind in getattr(request, "types_filter", ())}
    listed = []
    async for group in in_turns(await broker.groups.listed()):
        found = group.describe()
        if found.state == _DEAD:
            continue
        if (not states or found.state.lower() in states) and (not types or found.group_type.lower() in types):
            listed.append(
                {
                    "group_id": found.group_id,
                    "protocol_type": found.protocol_type,
                    "group_state": found.state,
                    "group_type": found.group_type,
                }
            )
    return {"groups": listed}


# DescribeGroups


async def describe_groups(broker: Broker, context: RequestContext, request: Any) -> dict[str, Any]:
    operations = _operations(request)
    described = []
    async for group_id in in_turns(request.groups):
        answer = {"group_id": group_id, **await _described(broker, context, group_id)}
        described.append({**answer, "authorized_operations": operations})
    return {"groups": described}


async def _described(broker: Broker, context: RequestContext, group_id: str) -> dict[str, Any]:
    try:
        group = await broker.groups.group(group_id)
    except ApiError as error:
        broker.metrics.request_error(context.api_key, error.code)
        return {"error_code": error.code}
    found = None if group is None else group.describe()
    if found is None or found.state == _DEAD:
        return _not_classic(context, f"Group {group_id} not found.")
    if found.group_type != _CLASSIC:
        return _not_classic(context, f"Group {group_id} is not a classic group.")
    return _classic_group(found)


def _not_classic(context: RequestContext, message: str) -> dict[str, Any]:
    if context.api_version < _NOT_FOUND_FROM:
        return {"group_state": _DEAD}
    return {
        "error_code": ErrorCode.group_id_not_found,
        "error_message": message,
        "group_state": _DEAD,
    }


def _classic_group(found: GroupDescription) -> dict[str, Any]:
    return {
        "group_state": found.state,
        "protocol_type": found.protocol_type,
        "protocol_data": found.protocol,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata,
                "member_assignment": member.assignment,
            }
            for member in found.members
        ],
    }


# ConsumerGroupDescribe


async def consumer_group_describe(broker: Broker, context: RequestContext, request: Any) -> dict[str, Any]:
    operations = _operations(request)
    described = []
    async for group_id in in_turns(request.group_ids):
        try:
            answer = await _consumer_group(broker, group_id)
        except ApiError as error:
            broker.metrics.request_error(context.api_key, error.code)
            answer = {"error_code": error.code, "error_message": error.message}
        described.append({"group_id": group_id, **answer, "authorized_operations": operations})
    return {"groups": described}


async def _consumer_group(broker: Broker, group_id: str) -> dict[str, Any]:
    group = await broker.groups.group(group_id)
    if group is None or group.describe().state == _DEAD:
        raise ApiError(ErrorCode.group_id_not_found, f"Group {group_id} not found.")
    found = group.describe_consumer_group()
    if found is None:
        raise ApiError(ErrorCode.group_id_not_found, f"Group {group_id} is not a consumer group.")
    view = broker.cluster.view
    return {
        "group_state": found.state,
        "group_epoch": found.group_epoch,
        "assignment_epoch": found.assignment_epoch,
        "assignor_name": found.assignor,
        "members": [_consumer(member, view) for member in found.members],
    }


def _consumer(member: DescribedConsumer, view: ClusterView) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.member_epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": member.subscribed_topic_names,
        "subscribed_topic_regex": member.subscribed_topic_regex,
        "assignment": _assignment(member.assignment, view),
        "target_assignment": _assignment(member.target, view),
        "member_type": member.member_type,
    }


def _assignment(assignment: Mapping[str, tuple[int, ...]], view: ClusterView) -> dict[str, Any]:
    return {
        "topic_partitions": [
            {"topic_id": view.topics[name].topic_id, "topic_name": name, "partitions": partitions}
            for name, partitions in assignment.items()
            if name in view.topics
        ]
    }


# DeleteGroups


async def delete_groups(broker: Broker, context: RequestContext, request: Any) -> dict[str, Any]:
    """Many together, so that they share what is written and waited for."""
    results: list[dict[str, Any]] = []
    names = request.groups_names
    for start in range(0, len(names), _DELETED_TOGETHER):
        some = names[start : start + _DELETED_TOGETHER]
        codes = await asyncio.gather(*(_delete(broker, context, group_id) for group_id in some))
        pairs = zip(some, codes, strict=True)
        results += ({"group_id": group_id, "error_code": code} for group_id, code in pairs)
    return {"results": results}


async def _delete(broker: Broker, context: RequestContext, group_id: str) -> ErrorCode:
    version = context.api_version
    try:
        body = await broker.groups.ask(group_id, lambda token: DeleteGroup(token=token, version=version))
        code = body.error if isinstance(body, ErrorReply) else ErrorCode.unknown_server_error
    except ApiError as error:
        code = error.code
    if code is not ErrorCode.none:
        broker.metrics.request_error(context.api_key, code)
    return code


HANDLERS: dict[int, Handler] = {
    15: describe_groups,
    16: list_groups,
    42: delete_groups,
    69: consumer_group_describe,
}
