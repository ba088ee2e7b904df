"""FindCoordinator 0-6: which node coordinates a group. Asking makes `__consumer_offsets` when there is none.

Gaps: transactional ids are refused in the way that clients understand best
(docs/decisions/0003-what-is-not-served-yet.md); share groups are not served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.broker.context import Handler, RequestContext
from headrace.broker.no_transactions import NO_TRANSACTIONS, log_refused_transaction
from headrace.broker.turns import in_turns
from headrace.errors import ApiError
from headrace.types import NO_NODE
from headrace.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.node import Broker

_GROUP, _TRANSACTION = 0, 1
_BATCHED_FROM = 4
_MOST_KEYS_LOGGED = 5


async def find_coordinator(broker: Broker, context: RequestContext, request: Any) -> dict[str, Any]:
    key_type = getattr(request, "key_type", _GROUP)
    batched = context.api_version >= _BATCHED_FROM
    keys = request.coordinator_keys if batched else (request.key,)
    refusal = await _why_none(broker, key_type, keys)
    answers = [
        {"key": key, **_answer(broker, context, key, refusal)} async for key in in_turns(keys)
    ]
    if batched:
        return {"coordinators": answers}
    (answer,) = answers
    del answer["key"]
    return answer


async def _why_none(broker: Broker, key_type: int, keys: tuple[str, ...]) -> ApiError | None:
    if key_type == _TRANSACTION:
        for key in keys[:_MOST_KEYS_LOGGED]:
            log_refused_transaction(key)
        return ApiError(ErrorCode.cluster_authorization_failed, NO_TRANSACTIONS)
    if key_type != _GROUP:
        return ApiError(ErrorCode.invalid_request, f"there is no coordinator of type {key_type}")
    try:
        await broker.groups.ensure_topic()
    except ApiError as error:
        message = f"__consumer_offsets could not be made: {error}"
        return ApiError(ErrorCode.coordinator_not_available, message)
    return None


def _answer(
    broker: Broker, context: RequestContext, group_id: str, refusal: ApiError | None
) -> dict[str, Any]:
    try:
        if refusal is not None:
            raise refusal
        return _coordinator(broker, context.listener, group_id)
    except ApiError as error:
        broker.metrics.request_error(context.api_key, error.code)
        return {
            "error_code": error.code,
            "error_message": error.message,
            "node_id": NO_NODE,
            "host": "",
            "port": -1,
        }


def _coordinator(broker: Broker, listener: str, group_id: str) -> dict[str, Any]:
    node = broker.groups.coordinator_of(group_id)
    endpoint = None if node is None else node.endpoint(listener)
    if node is None or endpoint is None:
        raise ApiError(ErrorCode.coordinator_not_available, "The coordinator is not available.")
    return {"node_id": node.node_id, "host": endpoint.host, "port": endpoint.port}


HANDLERS: dict[int, Handler] = {10: find_coordinator}
