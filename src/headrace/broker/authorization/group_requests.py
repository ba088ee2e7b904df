# SPDX-License-Identifier: Apache-2.0
"""Authorizes the requests of tools about groups, and the look-up of coordinators and committed offsets.

Read next: guard.py, member_requests.py (requests of group members).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from headrace.acls import CLUSTER_NAME, Operation, ResourceType
from headrace.broker.authorization.guard import (
    GROUP_DENIED,
    TOPIC_DENIED,
    TRANSACTIONAL_ID_DENIED,
    Guard,
    denied_fields,
    plain_reply,
)
from headrace.broker.network.request_context import Handler, Reply, RequestContext
from headrace.broker.security.authorization import Caller
from headrace.types import NO_NODE, ClusterView
from headrace.wire.api_authorization import NEEDED
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode

_GROUP, _TRANSACTION = 0, 1
_BATCHED_COORDINATORS_FROM = 4
_BATCHED_OFFSETS_FROM = 8
_OFFSETS_BY_ID_FROM = 10
_OFFSETS_ERROR_FROM = 2
_GROUP_MESSAGE_FROM = 6
"""First version of DescribeGroups whose entries have a message."""
_NO_OFFSET = {"committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""}
_HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."


def by_key(view: Callable[[], ClusterView]) -> dict[int, Guard]:
    return {
        ApiKey.FIND_COORDINATOR: _find_coordinator,
        ApiKey.OFFSET_FETCH: _OffsetFetch(view).offset_fetch,
        ApiKey.DESCRIBE_GROUPS: _describe_groups,
        ApiKey.LIST_GROUPS: _list_groups,
        ApiKey.DELETE_GROUPS: _delete_groups,
        ApiKey.CONSUMER_GROUP_DESCRIBE: _consumer_group_describe,
    }


def may_on_group(caller: Caller, group_id: str) -> bool:
    operation = NEEDED[caller.api_key].group
    assert operation is not None
    return caller.may(operation, ResourceType.GROUP, group_id)


async def _split(
    caller: Caller,
    context: RequestContext,
    request: Any,
    handler: Handler,
    fields: tuple[str, str],
    refusal: dict[str, Any],
) -> dict[str, Any]:
    """For a request with group ids; `fields`: of the ids in the request, of the entries in the reply."""
    asked, answered = fields
    group_ids: tuple[str, ...] = getattr(request, asked)
    allowed = tuple(group_id for group_id in group_ids if may_on_group(caller, group_id))
    if len(allowed) == len(group_ids):
        return await plain_reply(handler, context, request)
    reply: dict[str, Any] = {}
    if allowed:
        reply = await plain_reply(handler, context, replace(request, **{asked: allowed}))
    kept = set(allowed)
    refused = [{"group_id": each, **refusal} for each in group_ids if each not in kept]
    return {**reply, answered: [*reply.get(answered, ()), *refused]}


async def _delete_groups(caller: Caller, context: RequestContext, request: Any, handler: Handler) -> Reply:
    fields = "groups_names", "results"
    return await _split(caller, context, request, handler, fields, {"error_code": GROUP_DENIED})


async def _describe_groups(caller: Caller, context: RequestContext, request: Any, handler: Handler) -> Reply:
    has_message = context.api_version >= _GROUP_MESSAGE_FROM
    refusal = denied_fields(GROUP_DENIED) if has_message else {"error_code": GROUP_DENIED}
    reply = await _split(caller, context, request, handler, ("groups", "groups"), refusal)
    return _with_operations(caller, request, reply)


async def _consumer_group_describe(
    caller: Caller, context: RequestContext, request: Any, handler: Handler
) -> Reply:
    """A group is not described to who must not describe a topic of its members."""
    fields = "group_ids", "groups"
    reply = await _split(caller, context, request, handler, fields, denied_fields(GROUP_DENIED))
    entries = [_without_hidden_topics(caller, entry) for entry in reply["groups"]]
    return _with_operations(caller, request, {**reply, "groups": entries})


def _without_hidden_topics(caller: Caller, entry: dict[str, Any]) -> dict[str, Any]:
    names = {
        topic["topic_name"]
        for member in entry.get("members", ())
        for assignment in (member["assignment"], member["target_assignment"])
        for topic in assignment["topic_partitions"]
    }
    if not caller.denied_topics(Operation.DESCRIBE, names):
        return entry
    return {"group_id": entry["group_id"], "error_code": TOPIC_DENIED, "error_message": _HIDDEN_TOPICS}


def _with_operations(caller: Caller, request: Any, reply: dict[str, Any]) -> dict[str, Any]:
    if not getattr(request, "include_authorized_operations", False):
        return reply
    access = caller.access
    return {
        **reply,
        "groups": [
            entry
            if entry.get("error_code", ErrorCode.none)
            else {**entry, "authorized_operations": access.operations(ResourceType.GROUP, entry["group_id"])}
            for entry in reply["groups"]
        ],
    }


async def _list_groups(caller: Caller, context: RequestContext, request: Any, handler: Handler) -> Reply:
    """Nothing is refused: groups that must not be described are not listed."""
    reply = await plain_reply(handler, context, request)
    access = caller.access
    if access.allows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return reply
    return {
        **reply,
        "groups": [
            entry
            for entry in reply["groups"]
            if access.allows(Operation.DESCRIBE, ResourceType.GROUP, entry["group_id"])
        ],
    }


# FindCoordinator


async def _find_coordinator(caller: Caller, context: RequestContext, request: Any, handler: Handler) -> Reply:
    batched = context.api_version >= _BATCHED_COORDINATORS_FROM
    keys = request.coordinator_keys if batched else (request.key,)
    code = _coordinator_denial(getattr(request, "key_type", _GROUP))
    allowed = tuple(key for key in keys if code is None or _may_find(caller, code, key))
    if code is None or len(allowed) == len(keys):
        return await handler(context, request)
    refusal = {**denied_fields(code), "node_id": NO_NODE, "host": "", "port": -1}
    if not batched:
        return refusal
    reply: dict[str, Any] = {}
    if allowed:
        reply = await plain_reply(handler, context, replace(request, coordinator_keys=allowed))
    kept = set(allowed)
    refused = [{"key": key, **refusal} for key in keys if key not in kept]
    return {**reply, "coordinators": [*reply.get("coordinators", ()), *refused]}


def _coordinator_denial(key_type: int) -> ErrorCode | None:
    return {_GROUP: GROUP_DENIED, _TRANSACTION: TRANSACTIONAL_ID_DENIED}.get(key_type)


def _may_find(caller: Caller, code: ErrorCode, key: str) -> bool:
    if code is GROUP_DENIED:
        return may_on_group(caller, key)
    operation = NEEDED[caller.api_key].transactional_id
    assert operation is not None
    return caller.may(operation, ResourceType.TRANSACTIONAL_ID, key)


# OffsetFetch


class _OffsetFetch:
    """Groups and topics of OffsetFetch; without topics, all of the group that may be described."""

    def __init__(self, view: Callable[[], ClusterView]) -> None:
        self._view = view

    async def offset_fetch(
        self, caller: Caller, context: RequestContext, request: Any, handler: Handler
    ) -> Reply:
        if context.api_version >= _BATCHED_OFFSETS_FROM:
            return await self._batched(caller, context, request, handler)
        if not may_on_group(caller, request.group_id):
            if context.api_version >= _OFFSETS_ERROR_FROM:
                return {"error_code": GROUP_DENIED, "topics": []}
            return {"topics": [self._refused(topic, GROUP_DENIED) for topic in request.topics]}
        allowed, refused = self._divide(caller, context, request)
        reply: dict[str, Any] = {}
        if allowed is request or allowed.topics:
            reply = await plain_reply(handler, context, allowed)
        return self._merged(caller, request, reply, refused)

    async def _batched(
        self, caller: Caller, context: RequestContext, request: Any, handler: Handler
    ) -> Reply:
        groups = [group for group in request.groups if may_on_group(caller, group.group_id)]
        divided = [self._divide(caller, context, group) for group in groups]
        entries: list[dict[str, Any]] = []
        if groups:
            rest = replace(request, groups=tuple(allowed for allowed, _ in divided))
            entries = (await plain_reply(handler, context, rest))["groups"]
        answered = [
            self._merged(caller, group, entry, refused)
            for group, entry, (_, refused) in zip(groups, entries, divided, strict=True)
        ]
        kept = {group.group_id for group in groups}
        denied = [
            {"group_id": group.group_id, "error_code": GROUP_DENIED, "topics": []}
            for group in request.groups
            if group.group_id not in kept
        ]
        return {"groups": answered + denied}

    def _divide(
        self, caller: Caller, context: RequestContext, group: Any
    ) -> tuple[Any, list[dict[str, Any]]]:
        """The group with the topics that may be described, and the entries of the others."""
        if group.topics is None:
            return group, []
        by_id = context.api_version >= _OFFSETS_BY_ID_FROM
        allowed, refused = [], []
        for topic in group.topics:
            name = self._view().topic_names.get(topic.topic_id) if by_id else topic.name
            if name is None or caller.may_on_topic(Operation.DESCRIBE, name):
                allowed.append(topic)
            else:
                refused.append(self._refused(topic, TOPIC_DENIED))
        return (replace(group, topics=tuple(allowed)), refused) if refused else (group, [])

    def _refused(self, topic: Any, code: ErrorCode) -> dict[str, Any]:
        named = {"name": topic.name} if hasattr(topic, "name") else {"topic_id": topic.topic_id}
        return {
            **named,
            "partitions": [
                {"partition_index": index, **_NO_OFFSET, "error_code": code}
                for index in topic.partition_indexes
            ],
        }

    def _merged(
        self, caller: Caller, group: Any, reply: dict[str, Any], refused: list[dict[str, Any]]
    ) -> dict[str, Any]:
        topics = reply.get("topics", [])
        if group.topics is None:
            topics = [topic for topic in topics if self._is_visible(caller, topic)]
        if reply.get("error_code", ErrorCode.none):
            refused = []
        return {"error_code": ErrorCode.none, **reply, "topics": [*topics, *refused]}

    def _is_visible(self, caller: Caller, topic: dict[str, Any]) -> bool:
        name = topic["name"] if "name" in topic else self._view().topic_names.get(topic["topic_id"])
        return name is not None and caller.access.allows(Operation.DESCRIBE, ResourceType.TOPIC, name)
