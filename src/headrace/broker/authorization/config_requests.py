# SPDX-License-Identifier: Apache-2.0
"""Authorizes requests about configs: of topics and groups by themselves, of nodes by the cluster.

Read next: guard.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headrace.acls import CLUSTER_NAME, ResourceType
from headrace.broker.authorization.guard import (
    CLUSTER_DENIED,
    GROUP_DENIED,
    TOPIC_DENIED,
    Guard,
    denied_fields,
    plain_reply,
)
from headrace.broker.network.request_context import Handler, Reply, RequestContext
from headrace.broker.security.authorization import Caller
from headrace.wire.api_authorization import NEEDED
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode

_CONFIG_TOPIC, _CONFIG_GROUP = 2, 32
_CONFIG_OF_CLUSTER = frozenset({4, 8, 16})
"""Nodes, loggers and client metrics. These types of resources that have configs are not those of ACLs."""


def by_key() -> dict[int, Guard]:
    return {
        ApiKey.DESCRIBE_CONFIGS: _describe_configs,
        ApiKey.ALTER_CONFIGS: _alter_configs,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: _alter_configs,
    }


async def _describe_configs(caller: Caller, context: RequestContext, request: Any, handler: Handler) -> Reply:
    return await _split(caller, context, request, handler, "results")


async def _alter_configs(caller: Caller, context: RequestContext, request: Any, handler: Handler) -> Reply:
    return await _split(caller, context, request, handler, "responses")


async def _split(
    caller: Caller, context: RequestContext, request: Any, handler: Handler, reply_field: str
) -> Reply:
    refusals = [_refusal(caller, resource) for resource in request.resources]
    if not any(refusals):
        return await handler(context, request)
    pairs = list(zip(request.resources, refusals, strict=True))
    allowed = tuple(resource for resource, refusal in pairs if refusal is None)
    refused = [
        {
            "resource_type": resource.resource_type,
            "resource_name": resource.resource_name,
            **denied_fields(refusal),
            **({"configs": []} if context.api_key == ApiKey.DESCRIBE_CONFIGS else {}),
        }
        for resource, refusal in pairs
        if refusal is not None
    ]
    reply = await plain_reply(handler, context, replace(request, resources=allowed)) if allowed else {}
    entries = reply.get(reply_field, [])  # a list, or entries that are encoded already
    for entry in refused:
        entries.append(entry)
    return {**reply, reply_field: entries}


def _refusal(caller: Caller, resource: Any) -> ErrorCode | None:
    """None also for a type that does not exist: the handler says so."""
    needed, name, kind = NEEDED[caller.api_key], resource.resource_name, resource.resource_type
    if kind == _CONFIG_TOPIC:
        operation, asked, code = needed.topic, (ResourceType.TOPIC, name), TOPIC_DENIED
    elif kind == _CONFIG_GROUP:
        operation, asked, code = needed.group, (ResourceType.GROUP, name), GROUP_DENIED
    elif kind in _CONFIG_OF_CLUSTER:
        operation, asked, code = needed.cluster, (ResourceType.CLUSTER, CLUSTER_NAME), CLUSTER_DENIED
    else:
        return None
    assert operation is not None
    return None if caller.may(operation, *asked) else code
