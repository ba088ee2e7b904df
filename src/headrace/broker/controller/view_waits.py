# SPDX-License-Identifier: Apache-2.0
"""Waiting until the cluster's view shows something. Read next: coordination/cluster_metadata.py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.types import ClusterView
from headrace.world import World

_CONTROLLER_KNOWN_WITHIN_MS = 3_000


class ViewWaits:
    def __init__(self, cluster: ClusterMetadata, world: World) -> None:
        self._cluster = cluster
        self._call_later = world.tasks.call_later
        self._waiting: list[tuple[Callable[[ClusterView], bool], asyncio.Future[bool]]] = []
        cluster.subscribe(lambda old, new: self._look(new))

    async def until(self, shows: Callable[[ClusterView], bool], timeout_ms: int) -> bool:
        """Whether it did within the time."""
        if shows(self._cluster.view):
            return True
        found: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((shows, found))
        timer = self._call_later(timeout_ms / 1000, _tell, found, False)
        try:
            return await found
        finally:
            timer.cancel()
            self._waiting = [each for each in self._waiting if each[1] is not found]

    async def controller_id(self, own_node_id: int) -> int:
        """Controller in the view; waits a few seconds for one that is registered. NO_NODE: there is none."""
        await self.until(
            lambda view: view.controller_id in (own_node_id, *view.nodes), _CONTROLLER_KNOWN_WITHIN_MS
        )
        return self._cluster.view.controller_id

    def _look(self, view: ClusterView) -> None:
        for shows, found in list(self._waiting):
            if shows(view):
                _tell(found, True)


def _tell(found: asyncio.Future[bool], answer: bool) -> None:
    if not found.done():
        found.set_result(answer)
