# SPDX-License-Identifier: Apache-2.0
"""FindCoordinator 0-6: the coordinator of a group, or of a transactional id.

Creates `__consumer_offsets` or `__transaction_state` when it does not exist. At level 0 of
transaction.version there is no coordinator of transactions (docs/decisions/0030).

Gaps: share groups are not served.
"""

from __future__ import annotations

from typing import Any

from headrace.broker.groups.coordinator import OFFSETS_TOPIC, GroupCoordinator
from headrace.broker.metrics import Metrics
from headrace.broker.network.request_context import Handler, RequestContext
from headrace.broker.network.yielding import unique, yielding
from headrace.broker.transactions.coordinator import TRANSACTIONS_TOPIC, TransactionCoordinator
from headrace.errors import ApiError
from headrace.types import NO_NODE
from headrace.wire.api_key import ApiKey
from headrace.wire.error_codes import ErrorCode

_GROUP, _TRANSACTION = 0, 1
_TOPICS = {_GROUP: OFFSETS_TOPIC, _TRANSACTION: TRANSACTIONS_TOPIC}
_BATCHED_FROM = 4


class CoordinatorHandlers:
    """Handler of FindCoordinator."""

    def __init__(
        self, *, groups: GroupCoordinator, transactions: TransactionCoordinator, metrics: Metrics
    ) -> None:
        self._coordinators: dict[int, GroupCoordinator | TransactionCoordinator] = {
            _GROUP: groups,
            _TRANSACTION: transactions,
        }
        self._metrics = metrics

    def by_key(self) -> dict[int, Handler]:
        return {ApiKey.FIND_COORDINATOR: self.find_coordinator}

    async def find_coordinator(self, context: RequestContext, request: Any) -> dict[str, Any]:
        key_type = getattr(request, "key_type", _GROUP)
        batched = context.api_version >= _BATCHED_FROM
        keys = await unique(request.coordinator_keys if batched else (request.key,))
        refusal = await self._refusal(key_type)
        results = [
            {"key": key, **self._find(context, key_type, key, refusal)} async for key in yielding(keys)
        ]
        if batched:
            return {"coordinators": results}
        (result,) = results
        del result["key"]
        return result

    async def _refusal(self, key_type: int) -> ApiError | None:
        """The error for all keys of the request; None when each key is looked up."""
        coordinators = self._coordinators.get(key_type)
        if coordinators is None:
            return ApiError(ErrorCode.invalid_request, f"there is no coordinator of type {key_type}")
        try:
            await coordinators.ensure_topic()
        except ApiError as error:
            if error.code is ErrorCode.coordinator_not_available:
                return error
            message = f"{_TOPICS[key_type]} could not be created: {error}"
            return ApiError(ErrorCode.coordinator_not_available, message)
        return None

    def _find(
        self, context: RequestContext, key_type: int, key: str, refusal: ApiError | None
    ) -> dict[str, Any]:
        try:
            if refusal is not None:
                raise refusal
            return self._coordinator(context.listener, key_type, key)
        except ApiError as error:
            self._metrics.request_error(context.api_key, error.code, context.activity)
            return {
                "error_code": error.code,
                "error_message": error.message,
                "node_id": NO_NODE,
                "host": "",
                "port": -1,
            }

    def _coordinator(self, listener: str, key_type: int, key: str) -> dict[str, Any]:
        node = self._coordinators[key_type].coordinator_of(key)
        endpoint = None if node is None else node.endpoint(listener)
        if node is None or endpoint is None:
            raise ApiError(ErrorCode.coordinator_not_available, "The coordinator is not available.")
        return {"node_id": node.node_id, "host": endpoint.host, "port": endpoint.port}
