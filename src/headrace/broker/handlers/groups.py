# SPDX-License-Identifier: Apache-2.0
"""ListGroups 0-5, DescribeGroups 0-6, ConsumerGroupDescribe 0-1, DeleteGroups 0-2.

As in Apache Kafka, DescribeGroups reports a group of the consumer protocol (KIP-848) as Dead, and
ConsumerGroupDescribe does not find a classic group; tools send both requests.

Gaps: share groups are not served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from headrace.acls import SUPPORTED_OPERATIONS, ResourceType
from headrace.broker.groups.coordinator import GroupCoordinator
from headrace.broker.metrics import Metrics
from headrace.broker.network.request_context import Handler, RequestContext
from headrace.broker.network.yielding import unique, yielding
from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.errors import ApiError
from headrace.machines.groups.consumer.events import DescribedConsumer
from headrace.machines.groups.events import DeleteGroup, ErrorReply, GroupDescription
from headrace.types import ClusterView
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode

_NOT_FOUND_FROM = 6
_DELETED_CONCURRENTLY = 100
_DEAD = "Dead"
_CLASSIC = "Classic"
_NOT_REQUESTED = -(2**31)
_GROUP_OPERATIONS = sum(1 << operation for operation in SUPPORTED_OPERATIONS[ResourceType.GROUP])
"""All: broker/authorization/ replaces it by what the sender may do."""


class GroupHandlers:
    """Handlers of the group APIs that admin tools use."""

    def __init__(self, *, cluster: ClusterMetadata, groups: GroupCoordinator, metrics: Metrics) -> None:
        self._cluster = cluster
        self._groups = groups
        self._metrics = metrics

    def by_key(self) -> dict[int, Handler]:
        return {
            ApiKey.DESCRIBE_GROUPS: self.describe_groups,
            ApiKey.LIST_GROUPS: self.list_groups,
            ApiKey.DELETE_GROUPS: self.delete_groups,
            ApiKey.CONSUMER_GROUP_DESCRIBE: self.consumer_group_describe,
        }

    # ListGroups

    async def list_groups(self, context: RequestContext, request: Any) -> dict[str, Any]:
        states = {state.lower() for state in getattr(request, "states_filter", ())}
        types = {kind.lower() for kind in getattr(request, "types_filter", ())}
        listed = []
        async for group in yielding(await self._groups.listed()):
            found = group.describe()
            if found.state == _DEAD:
                continue
            has_state = not states or found.state.lower() in states
            has_type = not types or found.group_type.lower() in types
            if has_state and has_type:
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

    async def describe_groups(self, context: RequestContext, request: Any) -> dict[str, Any]:
        operations = _operations(request)
        described = []
        async for group_id in yielding(await unique(request.groups)):
            fields = {"group_id": group_id, **await self._describe_classic(context, group_id)}
            described.append({**fields, "authorized_operations": operations})
        return {"groups": described}

    async def _describe_classic(self, context: RequestContext, group_id: str) -> dict[str, Any]:
        try:
            group = await self._groups.group(group_id)
        except ApiError as error:
            self._metrics.request_error(context.api_key, error.code, context.activity)
            return {"error_code": error.code}
        found = None if group is None else group.describe()
        if found is None or found.state == _DEAD:
            return _not_classic(context, f"Group {group_id} not found.")
        if found.group_type != _CLASSIC:
            return _not_classic(context, f"Group {group_id} is not a classic group.")
        return _classic_group(found)

    # ConsumerGroupDescribe

    async def consumer_group_describe(self, context: RequestContext, request: Any) -> dict[str, Any]:
        operations = _operations(request)
        described = []
        async for group_id in yielding(await unique(request.group_ids)):
            try:
                fields = {**await self._describe_consumer(group_id), "authorized_operations": operations}
            except ApiError as error:
                self._metrics.request_error(context.api_key, error.code, context.activity)
                fields = {"error_code": error.code, "error_message": error.message}
            described.append({"group_id": group_id, **fields})
        return {"groups": described}

    async def _describe_consumer(self, group_id: str) -> dict[str, Any]:
        group = await self._groups.group(group_id)
        if group is None or group.describe().state == _DEAD:
            raise ApiError(ErrorCode.group_id_not_found, f"Group {group_id} not found.")
        found = group.describe_consumer_group()
        if found is None:
            raise ApiError(ErrorCode.group_id_not_found, f"Group {group_id} is not a consumer group.")
        view = self._cluster.view
        return {
            "group_state": found.state,
            "group_epoch": found.group_epoch,
            "assignment_epoch": found.assignment_epoch,
            "assignor_name": found.assignor,
            "members": [_consumer(member, view) for member in found.members],
        }

    # DeleteGroups

    async def delete_groups(self, context: RequestContext, request: Any) -> dict[str, Any]:
        """Groups are deleted concurrently, so that they share batches and waits for replication."""
        results: list[dict[str, Any]] = []
        names = await unique(request.groups_names)
        for start in range(0, len(names), _DELETED_CONCURRENTLY):
            some = names[start : start + _DELETED_CONCURRENTLY]
            codes = await asyncio.gather(*(self._delete(context, group_id) for group_id in some))
            pairs = zip(some, codes, strict=True)
            results += ({"group_id": group_id, "error_code": code} for group_id, code in pairs)
        return {"results": results}

    async def _delete(self, context: RequestContext, group_id: str) -> ErrorCode:
        version = context.api_version
        try:
            body = await self._groups.ask(group_id, lambda token: DeleteGroup(token=token, version=version))
            code = body.error if isinstance(body, ErrorReply) else ErrorCode.unknown_server_error
        except ApiError as error:
            code = error.code
        if code is not ErrorCode.none:
            self._metrics.request_error(context.api_key, code, context.activity)
        return code


def _operations(request: Any) -> int:
    included = getattr(request, "include_authorized_operations", False)
    return _GROUP_OPERATIONS if included else _NOT_REQUESTED


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
