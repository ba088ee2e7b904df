# SPDX-License-Identifier: Apache-2.0
"""Requests to brokers, each within the budget: the one way from the console's model to the cluster.

Replies are read by topology_requests.py, offset_requests.py, group_requests.py and topic_requests.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

from headrace.client.errors import ClientError
from headrace.client.network_client import NetworkClient
from headrace.console.observing.budget import RequestBudget

T = TypeVar("T")
Note = Callable[[int, str | None], None]
"""Called with a node and what is wrong with it, or None when it answered."""


class BrokerCalls:
    def __init__(self, network: NetworkClient, budget: RequestBudget, *, timeout_ms: int = 5_000) -> None:
        self.network = network
        self._budget = budget
        self._timeout_ms = timeout_ms

    async def any(self, api_key: int, fields: Mapping[str, Any]) -> Any:
        await self._budget.take()
        return await self.network.call_any(api_key, fields)

    async def node(
        self,
        node_id: int,
        api_key: int,
        fields: Mapping[str, Any],
        *,
        newest: int | None = None,
        lane: str = "",
        wait_ms: int = 0,
    ) -> Any:
        """`newest`: the highest version the caller understands; `wait_ms`: how long the broker may wait."""
        await self._budget.take()
        connection = await self.network.connection(node_id, lane)
        version = connection.version_for(api_key)
        version = version if newest is None else min(version, newest)
        return await connection.call(api_key, fields, version=version, timeout_ms=self._timeout_ms + wait_ms)

    async def version(self, node_id: int, api_key: int) -> int:
        return (await self.network.connection(node_id)).version_for(api_key)


async def of_each(node_ids: Iterable[int], ask: Callable[[int], Awaitable[T]]) -> dict[int, T | ClientError]:
    """The answer of each node, or why there is none; asked at the same time."""
    asked = sorted(node_ids)
    answers = await asyncio.gather(*(ask(node_id) for node_id in asked), return_exceptions=True)
    found: dict[int, T | ClientError] = {}
    for node_id, answer in zip(asked, answers, strict=True):
        if isinstance(answer, BaseException) and not isinstance(answer, ClientError):
            raise answer
        found[node_id] = answer
    return found
