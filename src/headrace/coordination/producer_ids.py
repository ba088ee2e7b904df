# SPDX-License-Identifier: Apache-2.0
"""Producer ids, unique in the cluster, allocated in blocks. Read next: cluster_metadata.py."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from headrace.coordination import api_errors, documents
from headrace.coordination.projection import Projection
from headrace.coordination.store import Applied, Conflict, Create, Operation, Set
from headrace.errors import CoordinationError

_BLOCK = 1000


class Writer(Protocol):
    """The part of ClusterMetadata that writes entries."""

    def write(self, key: str, value: bytes) -> Create | Set: ...
    async def commit(self, operations: Sequence[Operation]) -> Applied | Conflict: ...
    async def catch_up(self) -> None: ...


class ProducerIds:
    def __init__(self, cluster: Writer, projection: Projection) -> None:
        self._cluster = cluster
        self._projection = projection
        self._own = range(0)
        self._lock = asyncio.Lock()

    async def take(self, count: int) -> range:
        async with self._lock:
            if len(self._own) < count:
                self._own = await self._allocate_block(max(count, _BLOCK))
            taken, self._own = self._own[:count], self._own[count:]
        return taken

    async def _allocate_block(self, size: int) -> range:
        while True:
            first = self._projection.next_producer_id
            operation = self._cluster.write(documents.PRODUCER_IDS, documents.encode(next=first + size))
            try:
                outcome = await self._cluster.commit([operation])
                await self._cluster.catch_up()
            except CoordinationError as error:
                raise api_errors.store_failed(error) from error
            if isinstance(outcome, Applied):
                return range(first, first + size)
