# SPDX-License-Identifier: Apache-2.0
"""Authorizes requests that name topics: those denied get an error of their own, the others are handled.

An unauthorized topic is answered TOPIC_AUTHORIZATION_FAILED, whether it exists or not (S20).
Read next: guard.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from headrace.acls import CLUSTER_NAME, Operation, ResourceType
from headrace.broker.authorization.guard import (
    GROUP_DENIED,
    TOPIC_DENIED,
    Guard,
    denied,
    denied_fields,
    plain_reply,
)
from headrace.broker.network.request_context import Handler, Reply, RequestContext
from headrace.broker.security.authorization import Caller
from headrace.types import NO_TOPIC_ID, ClusterView
from headrace.wire.api_authorization import NEEDED
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode

_DELETE_BY_ID_FROM = 6
_CONFIGS_FROM = 5
"""First version of CreateTopics whose reply has configs."""


def by_key(view: Callable[[], ClusterView]) -> dict[int, Guard]:
    deletion = _TopicDeletion(view)
    return {
        ApiKey.LIST_OFFSETS: _split("topics", "name", _denied_partitions),
        ApiKey.CREATE_TOPICS: _create_topics,
        ApiKey.DELETE_TOPICS: deletion.delete_topics,
        ApiKey.DELETE_RECORDS: _split("topics", "name", _undeleted_records),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: _split("topics", "topic", _denied_epochs),
        ApiKey.CREATE_PARTITIONS: _split("results", "name", _denied_topic),
        ApiKey.OFFSET_DELETE: _offset_delete,
        ApiKey.DESCRIBE_PRODUCERS: _split("topics", "name", _denied_producers),
    }


def _split(reply_field: str, name_field: str, refusal: Callable[[Any], dict[str, Any]]) -> Guard:
    """A guard for a request with `topics`; `refusal` makes the entry of a denied one in the reply."""

    async def guard(caller: Caller, context: RequestContext, request: Any, handler: Handler) -> Reply:
        needed = NEEDED[caller.api_key]
        assert needed.topic is not None
        if needed.cluster_suffices and _is_allowed_on_cluster(caller):
            return await handler(context, request)
        names = caller.denied_topics(needed.topic, (getattr(each, name_field) for each in request.topics))
        if not names:
            return await handler(context, request)
        allowed = tuple(each for each in request.topics if getattr(each, name_field) not in names)
        refused = [refusal(each) for each in request.topics if getattr(each, name_field) in names]
        reply: dict[str, Any] = {}
        if allowed:
            reply = await plain_reply(handler, context, replace(request, topics=allowed))
        return {**reply, reply_field: [*reply.get(reply_field, ()), *refused]}

    return guard


def _is_allowed_on_cluster(caller: Caller) -> bool:
    """Not reported when it is denied: the operation on the topics is asked for next."""
    operation = NEEDED[caller.api_key].cluster
    assert operation is not None
    return caller.access.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME)


def _denied_topic(topic: Any) -> dict[str, Any]:
    return {"name": topic.name, **denied_fields(TOPIC_DENIED)}


def _denied_partitions(topic: Any) -> dict[str, Any]:
    return {
        "name": topic.name,
        "partitions": [
            {"partition_index": each.partition_index, "error_code": TOPIC_DENIED} for each in topic.partitions
        ],
    }


def _undeleted_records(topic: Any) -> dict[str, Any]:
    entry = _denied_partitions(topic)
    return {**entry, "partitions": [{**each, "low_watermark": -1} for each in entry["partitions"]]}


def _denied_epochs(topic: Any) -> dict[str, Any]:
    return {
        "topic": topic.topic,
        "partitions": [
            {"partition": each.partition, "error_code": TOPIC_DENIED} for each in topic.partitions
        ],
    }


def _denied_producers(topic: Any) -> dict[str, Any]:
    return {
        "name": topic.name,
        "partitions": [
            {"partition_index": index, **denied_fields(TOPIC_DENIED)} for index in topic.partition_indexes
        ],
    }


_offset_delete_topics = _split("topics", "name", _denied_partitions)


async def _offset_delete(caller: Caller, context: RequestContext, request: Any, handler: Handler) -> Reply:
    needed = NEEDED[caller.api_key]
    assert needed.group is not None
    if not caller.may(needed.group, ResourceType.GROUP, request.group_id):
        raise denied(GROUP_DENIED)
    return await _offset_delete_topics(caller, context, request, handler)


_create_allowed = _split("topics", "name", _denied_topic)


async def _create_topics(caller: Caller, context: RequestContext, request: Any, handler: Handler) -> Reply:
    async def hiding_configs(context: RequestContext, request: Any) -> Reply:
        reply = await plain_reply(handler, context, request)
        if context.api_version >= _CONFIGS_FROM:
            reply = {**reply, "topics": [_without_hidden_configs(caller, each) for each in reply["topics"]]}
        return reply

    return await _create_allowed(caller, context, request, hiding_configs)


def _without_hidden_configs(caller: Caller, entry: dict[str, Any]) -> dict[str, Any]:
    if entry["error_code"] or caller.may_on_topic(Operation.DESCRIBE_CONFIGS, entry["name"]):
        return entry
    hidden = {"configs": [], "num_partitions": -1, "replication_factor": -1}
    return {**entry, **hidden, "topic_config_error_code": TOPIC_DENIED}


class _TopicDeletion:
    """DeleteTopics by name and by id: the name of a topic is not told to who must not describe it."""

    def __init__(self, view: Callable[[], ClusterView]) -> None:
        self._view = view

    async def delete_topics(
        self, caller: Caller, context: RequestContext, request: Any, handler: Handler
    ) -> Reply:
        if _is_allowed_on_cluster(caller):
            return await handler(context, request)
        if context.api_version < _DELETE_BY_ID_FROM:
            targets = {name: self._refusal(caller, name, None) for name in request.topic_names}
            allowed = tuple(name for name in request.topic_names if targets[name] is None)
            rest = replace(request, topic_names=allowed)
        else:
            pairs = [(each.name, each.topic_id) for each in request.topics]
            targets = {pair: self._refusal(caller, *pair) for pair in pairs}
            allowed = tuple(each for each in request.topics if targets[each.name, each.topic_id] is None)
            rest = replace(request, topics=allowed)
        refused = [refusal for refusal in targets.values() if refusal is not None]
        if not refused:
            return await handler(context, request)
        reply = await plain_reply(handler, context, rest) if allowed else {}
        return {**reply, "responses": [*reply.get("responses", ()), *refused]}

    def _refusal(self, caller: Caller, name: str | None, topic_id: Any) -> dict[str, Any] | None:
        """None: the handler answers, also that there is no such topic or that the request is wrong."""
        view = self._view()
        found = name if name is not None else view.topic_names.get(topic_id)
        if found is None or caller.access.allows(Operation.DELETE, ResourceType.TOPIC, found):
            return None
        may_describe = caller.access.allows(Operation.DESCRIBE, ResourceType.TOPIC, found)
        if may_describe and found not in view.topics:
            return None
        caller.may_on_topic(Operation.DELETE, found)  # reports the denial
        return {
            "name": found if may_describe or name is not None else None,
            "topic_id": topic_id or NO_TOPIC_ID,
            **denied_fields(ErrorCode.topic_authorization_failed),
        }
