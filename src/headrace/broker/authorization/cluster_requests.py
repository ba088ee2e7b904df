# SPDX-License-Identifier: Apache-2.0
"""Authorizes requests that need an operation on the cluster as a whole, among them those of other nodes (S3).

Read next: guard.py.
"""

from __future__ import annotations

from typing import Any

from headrace.acls import Operation, ResourceType
from headrace.broker.authorization.guard import (
    CLUSTER_DENIED,
    TRANSACTIONAL_ID_DENIED,
    Guard,
    denied,
    denied_fields,
    plain_reply,
)
from headrace.broker.network.request_context import Handler, Reply, RequestContext
from headrace.broker.security.authorization import Caller
from headrace.broker.security.visibility import Visibility
from headrace.wire.api_authorization import NEEDED
from headrace.wire.api_key import ApiKey

_LOG_DIRS_ERROR_FROM = 3
"""First version whose reply has an error code for the whole request."""


def by_key() -> dict[int, Guard]:
    return {
        ApiKey.DESCRIBE_ACLS: _whole_request,
        ApiKey.CREATE_ACLS: _create_acls,
        ApiKey.DELETE_ACLS: _delete_acls,
        ApiKey.DESCRIBE_LOG_DIRS: _describe_log_dirs,
        ApiKey.ELECT_LEADERS: _elect_leaders,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: _reassign,
        ApiKey.LIST_PARTITION_REASSIGNMENTS: _whole_request,
        ApiKey.DESCRIBE_CLIENT_QUOTAS: _whole_request,
        ApiKey.ALTER_CLIENT_QUOTAS: _alter_quotas,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _describe_users,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _alter_users,
        ApiKey.ALTER_PARTITION: _whole_request,
        ApiKey.DESCRIBE_CLUSTER: _describe_cluster,
        ApiKey.BROKER_HEARTBEAT: _whole_request,
        ApiKey.UNREGISTER_BROKER: _whole_request,
        ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    }


def _is_allowed(caller: Caller) -> bool:
    operation = NEEDED[caller.api_key].cluster
    assert operation is not None
    return caller.may_on_cluster(operation)


async def _whole_request(caller: Caller, context: RequestContext, request: Any, handler: Handler) -> Reply:
    if not _is_allowed(caller):
        raise denied(CLUSTER_DENIED)
    return await handler(context, request)


async def _create_acls(caller: Caller, context: RequestContext, request: Any, handler: Handler) -> Reply:
    if _is_allowed(caller):
        return await handler(context, request)
    return {"results": [denied_fields(CLUSTER_DENIED) for _ in request.creations]}


async def _delete_acls(caller: Caller, context: RequestContext, request: Any, handler: Handler) -> Reply:
    if _is_allowed(caller):
        return await handler(context, request)
    refusal = {**denied_fields(CLUSTER_DENIED), "matching_acls": []}
    return {"filter_results": [refusal for _ in request.filters]}


async def _alter_quotas(caller: Caller, context: RequestContext, request: Any, handler: Handler) -> Reply:
    if _is_allowed(caller):
        return await handler(context, request)
    refused = denied_fields(CLUSTER_DENIED)
    return {
        "entries": [
            {
                **refused,
                "entity": [
                    {"entity_type": part.entity_type, "entity_name": part.entity_name}
                    for part in entry.entity
                ],
            }
            for entry in request.entries
        ]
    }


async def _describe_users(caller: Caller, context: RequestContext, request: Any, handler: Handler) -> Reply:
    """The error is in the entry of each user, too."""
    if _is_allowed(caller):
        return await handler(context, request)
    refused = denied_fields(CLUSTER_DENIED)
    names = dict.fromkeys(each.name for each in request.users or ())
    return {**refused, "results": [{"user": name, **refused, "credential_infos": []} for name in names]}


async def _alter_users(caller: Caller, context: RequestContext, request: Any, handler: Handler) -> Reply:
    if _is_allowed(caller):
        return await handler(context, request)
    names = dict.fromkeys(each.name for each in (*request.deletions, *request.upsertions))
    return {"results": [{"user": name, **denied_fields(CLUSTER_DENIED)} for name in names]}


async def _describe_log_dirs(
    caller: Caller, context: RequestContext, request: Any, handler: Handler
) -> Reply:
    if context.api_version < _LOG_DIRS_ERROR_FROM and not _is_allowed(caller):
        return {"results": []}
    return await _whole_request(caller, context, request, handler)


async def _elect_leaders(caller: Caller, context: RequestContext, request: Any, handler: Handler) -> Reply:
    """The error is in each partition, too: the first version has no other."""
    if _is_allowed(caller):
        return await handler(context, request)
    return {
        "error_code": CLUSTER_DENIED,
        "replica_election_results": [
            {
                "topic": topic.topic,
                "partition_result": [
                    {"partition_id": index, **denied_fields(CLUSTER_DENIED)} for index in topic.partitions
                ],
            }
            for topic in request.topic_partitions or ()
        ],
    }


async def _reassign(caller: Caller, context: RequestContext, request: Any, handler: Handler) -> Reply:
    """The error is in each partition, too."""
    if _is_allowed(caller):
        return await handler(context, request)
    refused = denied_fields(CLUSTER_DENIED)
    return {
        **refused,
        "responses": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": partition.partition_index, **refused}
                    for partition in topic.partitions
                ],
            }
            for topic in request.topics
        ],
    }


async def _describe_cluster(caller: Caller, context: RequestContext, request: Any, handler: Handler) -> Reply:
    reply = await plain_reply(handler, context, request)
    if request.include_cluster_authorized_operations:
        reply = {**reply, "cluster_authorized_operations": Visibility(caller).cluster_operations()}
    return reply


async def _init_producer_id(caller: Caller, context: RequestContext, request: Any, handler: Handler) -> Reply:
    """Whoever may write to any topic may be an idempotent producer (KIP-679)."""
    needed = NEEDED[caller.api_key]
    assert needed.transactional_id is not None
    if request.transactional_id is not None:
        kind = ResourceType.TRANSACTIONAL_ID
        if not caller.may(needed.transactional_id, kind, request.transactional_id):
            raise denied(TRANSACTIONAL_ID_DENIED)
    elif not caller.access.allows_on_any(Operation.WRITE, ResourceType.TOPIC) and not _is_allowed(caller):
        raise denied(CLUSTER_DENIED)
    return await handler(context, request)
