"""FindCoordinator 0-6: the coordinator of a group. Creates `__consumer_offsets` when it does not exist.

Gaps: transactional ids are refused with the error that clients handle best
(docs/decisions/0003-what-is-not-served-yet.md); share groups are not served.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.broker.groups.coordinator import GroupCoordinator
from headrace.broker.groups.no_transactions import NO_TRANSACTIONS, log_refused_transaction
from headrace.broker.metrics import Metrics
from headrace.broker.network.request_context import Handler, RequestContext
from headrace.broker.network.yielding import unique, yielding
from headrace.errors import ApiError
from headrace.types import NO_NODE
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode

_GROUP, _TRANSACTION = 0, 1
_BATCHED_FROM = 4
_MAX_KEYS_LOGGED = 5


class CoordinatorHandlers:
    """Handler of FindCoordinator."""

    def __init__(self, *, groups: GroupCoordinator, metrics: Metrics) -> None:
        self._groups = groups
        self._metrics = metrics

    def by_key(self) -> dict[int, Handler]:
        return {ApiKey.FIND_COORDINATOR: self.find_coordinator}

    async def find_coordinator(self, context: RequestContext, request: Any) -> dict[str, Any]:
        key_type = getattr(request, "key_type", _GROUP)
        batched = context.api_version >= _BATCHED_FROM
        keys = await unique(request.coordinator_keys if batched else (request.key,))
        refusal = await self._refusal(key_type, keys)
        results = [{"key": key, **self._find(context, key, refusal)} async for key in yielding(keys)]
        if batched:
            return {"coordinators": results}
        (result,) = results
        del result["key"]
        return result

    async def _refusal(self, key_type: int, keys: Sequence[str]) -> ApiError | None:
        """The error for all keys of the request; None when each key is looked up."""
        if key_type == _TRANSACTION:
            for key in keys[:_MAX_KEYS_LOGGED]:
                log_refused_transaction(key)
            return ApiError(ErrorCode.cluster_authorization_failed, NO_TRANSACTIONS)
        if key_type != _GROUP:
            return ApiError(ErrorCode.invalid_request, f"there is no coordinator of type {key_type}")
        try:
            await self._groups.ensure_topic()
        except ApiError as error:
            message = f"__consumer_offsets could not be created: {error}"
            return ApiError(ErrorCode.coordinator_not_available, message)
        return None

    def _find(self, context: RequestContext, group_id: str, refusal: ApiError | None) -> dict[str, Any]:
        try:
            if refusal is not None:
                raise refusal
            return self._coordinator(context.listener, group_id)
        except ApiError as error:
            self._metrics.request_error(context.api_key, error.code)
            return {
                "error_code": error.code,
                "error_message": error.message,
                "node_id": NO_NODE,
                "host": "",
                "port": -1,
            }

    def _coordinator(self, listener: str, group_id: str) -> dict[str, Any]:
        node = self._groups.coordinator_of(group_id)
        endpoint = None if node is None else node.endpoint(listener)
        if node is None or endpoint is None:
            raise ApiError(ErrorCode.coordinator_not_available, "The coordinator is not available.")
        return {"node_id": node.node_id, "host": endpoint.host, "port": endpoint.port}
