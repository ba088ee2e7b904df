# SPDX-License-Identifier: Apache-2.0
"""What authorizes the requests of one API: called in place of its handler, calls it with what is allowed.

Handlers stay free of authorization, except where splitting a request would cost too much (Produce, Fetch,
Metadata, OffsetCommit, AddPartitionsToTxn). Read next: authorized_handlers.py, wire/api_authorization.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from headrace.broker.network.request_context import Handler, Reply, RequestContext
from headrace.broker.security.authorization import Caller
from headrace.errors import ApiError
from headrace.wire.error_codes import ErrorCode

Guard = Callable[[Caller, RequestContext, Any, Handler], Awaitable[Reply]]
"""Raises ApiError where the whole request is denied and its reply has one error for all."""

CLUSTER_DENIED = ErrorCode.cluster_authorization_failed
GROUP_DENIED = ErrorCode.group_authorization_failed
TOPIC_DENIED = ErrorCode.topic_authorization_failed
TRANSACTIONAL_ID_DENIED = ErrorCode.transactional_id_authorization_failed

_MESSAGES = {
    CLUSTER_DENIED: "Cluster authorization failed.",
    GROUP_DENIED: "Group authorization failed.",
    TOPIC_DENIED: "Topic authorization failed.",
    TRANSACTIONAL_ID_DENIED: "Transactional Id authorization failed.",
}


def denied(code: ErrorCode) -> ApiError:
    return ApiError(code, _MESSAGES[code])


def denied_fields(code: ErrorCode) -> dict[str, Any]:
    """Of an entry of a reply that has room for a message."""
    return {"error_code": code, "error_message": _MESSAGES[code]}


async def plain_reply(handler: Handler, context: RequestContext, request: Any) -> dict[str, Any]:
    """The reply of a handler that encodes nothing by itself."""
    reply = await handler(context, request)
    if not isinstance(reply, dict):
        raise TypeError(f"the reply to API {context.api_key} is encoded and cannot be filtered")
    return reply
