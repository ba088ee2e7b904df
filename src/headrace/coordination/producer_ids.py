"""Producer ids that no process was or will be given, taken in blocks. Read next: cluster.py."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headrace.coordination import documents, refusals
from headrace.coordination.projection import Projection
from headrace.coordination.store import Applied
from headrace.errors import CoordinationError

if TYPE_CHECKING:
    from headrace.coordination.cluster import Cluster

_BLOCK = 1000


class ProducerIds:
    def __init__(self, cluster: Cluster, projection: Projection) -> None:
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
                raise refusals.store_failed(error) from error
            if isinstance(outcome, Applied):
                return range(first, first + size)
