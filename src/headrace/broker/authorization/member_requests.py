# SPDX-License-Identifier: Apache-2.0
"""Authorizes the requests of group members, which are answered without a task.

The topics of OffsetCommit are authorized where they are looked up (handlers/group_offsets.py).
Read next: guard.py, group_requests.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.acls import Operation
from headrace.broker.authorization.group_requests import may_on_group
from headrace.broker.authorization.guard import GROUP_DENIED, TOPIC_DENIED, denied
from headrace.broker.network.request_context import RequestContext
from headrace.broker.security.authorization import Caller
from headrace.errors import ApiError
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode
from headrace.wire.requests.offset_commit import OffsetCommitRequest, write_offset_commit_reply

Refusal = ApiError | bytes
"""Of the whole request: an error for its reply, or the frame of a reply that has no error for all."""
MemberGuard = Callable[[Caller, RequestContext, Any], Refusal | None]


def by_key() -> dict[int, MemberGuard]:
    return {
        ApiKey.JOIN_GROUP: _of_group,
        ApiKey.HEARTBEAT: _of_group,
        ApiKey.LEAVE_GROUP: _of_group,
        ApiKey.SYNC_GROUP: _of_group,
        ApiKey.CONSUMER_GROUP_HEARTBEAT: _consumer_group_heartbeat,
        ApiKey.OFFSET_COMMIT: _offset_commit,
    }


def _of_group(caller: Caller, context: RequestContext, request: Any) -> Refusal | None:
    return None if may_on_group(caller, request.group_id) else denied(GROUP_DENIED)


def _consumer_group_heartbeat(caller: Caller, context: RequestContext, request: Any) -> Refusal | None:
    """A member must be allowed to describe every topic that it subscribes to by name."""
    if not may_on_group(caller, request.group_id):
        return denied(GROUP_DENIED)
    if caller.denied_topics(Operation.DESCRIBE, request.subscribed_topic_names or ()):
        return denied(TOPIC_DENIED)
    return None


def _offset_commit(caller: Caller, context: RequestContext, request: OffsetCommitRequest) -> Refusal | None:
    if may_on_group(caller, request.group_id):
        return None
    codes = [ErrorCode.group_authorization_failed] * len(request.offsets)
    return write_offset_commit_reply(context.api_version, context.correlation_id, request.topics, codes)
