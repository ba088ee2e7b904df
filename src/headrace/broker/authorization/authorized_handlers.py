# SPDX-License-Identifier: Apache-2.0
"""Handlers behind their guards: what the dispatcher calls when there is an authorizer.

Read next: guard.py, dispatch/dispatcher.py.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NoReturn

from headrace.broker.authorization import (
    cluster_requests,
    config_requests,
    group_requests,
    member_requests,
    topic_requests,
    transaction_requests,
)
from headrace.broker.authorization.guard import Guard
from headrace.broker.authorization.member_requests import MemberGuard
from headrace.broker.network.deferred_reply import DeferredHandler, DeferredReply
from headrace.broker.network.request_context import Handler, Reply, RequestContext
from headrace.broker.security.authorization import Authorization
from headrace.errors import ApiError
from headrace.types import ClusterView
from headrace.wire.api_key import ApiKey

IN_HANDLERS = frozenset(
    {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.DESCRIBE_TOPIC_PARTITIONS, ApiKey.ENVELOPE}
)
"""Authorized where they are handled: on the fast path, or from a cache of what a principal may see. An
Envelope: by the dispatcher, which takes it from nodes only."""
UNRESTRICTED = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})


def guards(view: Callable[[], ClusterView]) -> dict[int, Guard]:
    return {
        **cluster_requests.by_key(),
        **config_requests.by_key(),
        **group_requests.by_key(view),
        **topic_requests.by_key(view),
        **transaction_requests.by_key(),
    }


def deferred_guards() -> dict[int, MemberGuard]:
    return {**member_requests.by_key(), **transaction_requests.of_producers()}


def authorized(
    handlers: Mapping[int, Handler], authorization: Authorization, view: Callable[[], ClusterView]
) -> dict[int, Handler]:
    """KeyError for an API that nothing authorizes."""
    by_key = guards(view)
    open_keys = IN_HANDLERS | UNRESTRICTED
    return {
        key: handler if key in open_keys else _guarded(handler, by_key[key], authorization)
        for key, handler in handlers.items()
    }


def _guarded(handler: Handler, guard: Guard, authorization: Authorization) -> Handler:
    async def call(context: RequestContext, request: Any) -> Reply:
        caller = authorization.caller(context)
        if caller.access.unlimited:
            return await handler(context, request)
        return await guard(caller, context, request, handler)

    return call


def authorized_members(
    handlers: Mapping[int, DeferredHandler], authorization: Authorization
) -> dict[int, DeferredHandler]:
    by_key = deferred_guards()
    return {
        key: handler if key in UNRESTRICTED else _guarded_member(handler, by_key[key], authorization)
        for key, handler in handlers.items()
    }


def _guarded_member(
    handler: DeferredHandler, guard: MemberGuard, authorization: Authorization
) -> DeferredHandler:
    def call(
        context: RequestContext, request: Any, reply: DeferredReply
    ) -> Coroutine[Any, Any, Reply] | None:
        caller = authorization.caller(context)
        refusal = None if caller.access.unlimited else guard(caller, context, request)
        if refusal is None:
            return handler(context, request, reply)
        if isinstance(refusal, bytes):
            reply.send(refusal)
        else:
            reply.answer_with(_raise)(refusal)
        return None

    return call


def _raise(refusal: ApiError) -> NoReturn:
    raise refusal
