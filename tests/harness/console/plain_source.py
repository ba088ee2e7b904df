# SPDX-License-Identifier: Apache-2.0
"""A `Source` of the console without an observer: for tests of what asks the cluster itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.network_client import NetworkClient
from headrace.console.state.model import Snapshot


class PlainSource:
    def __init__(self, bootstrap: str) -> None:
        self.cluster = Cluster(bootstrap=bootstrap)
        self.network = NetworkClient(bootstrap)

    def now(self) -> Snapshot:
        return Snapshot(at_ms=0)

    async def at(self, at_ms: int) -> Snapshot:
        return Snapshot(at_ms=at_ms, live=False)

    async def run(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        return await asyncio.to_thread(function, *arguments, **named)


@asynccontextmanager
async def plain_source(bootstrap: str) -> AsyncIterator[PlainSource]:
    source = PlainSource(bootstrap)
    try:
        yield source
    finally:
        await source.network.close()
