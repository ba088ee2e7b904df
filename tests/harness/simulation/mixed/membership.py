# SPDX-License-Identifier: Apache-2.0
"""A node is added to a simulated cluster, takes over all replicas of another one, and that one is removed.

Read next: cluster.py, broker/controller/reassignments.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random

from headrace.client.errors import ClientError
from headrace.wire.api_key import ApiKey
from tests.harness.simulation.clients import SimConnection, TryAgain
from tests.harness.simulation.cluster import SimCluster


class Replacement:
    """`start` begins to supervise the new node. In the end the old one has no replica left and is down."""

    def __init__(
        self, cluster: SimCluster, random: Random, *, new: int, old: int, start: Callable[[], None]
    ) -> None:
        self.new, self.old = new, old
        self.done = False
        self.progress = ""
        self._cluster = cluster
        self._random = random
        self._start = start

    async def run(self) -> None:
        await asyncio.sleep(self._random.uniform(0, 2))
        self._start()
        while not self._is_empty():
            try:
                await self._cluster.with_any(self._move_all)
            except (ClientError, TryAgain, OSError) as error:
                self.progress = f"{type(error).__name__}: {error}"
            await asyncio.sleep(self._random.uniform(0.3, 1))
        self._cluster.nodes[self.old].remove()
        self.done = True

    def _is_empty(self) -> bool:
        topics = self._cluster.invariants.view.topics.values()
        return all(
            not topic.moves and all(self.old not in state.replicas for state in topic.partitions)
            for topic in topics
        )

    def _without_old(self, replicas: Sequence[int]) -> list[int]:
        others = (self.new, *range(len(self._cluster.nodes)))
        successor = next(each for each in others if each not in replicas)
        return [successor if each == self.old else each for each in replicas]

    async def _move_all(self, connection: SimConnection) -> None:
        """Also what was created since the last time."""
        topics = []
        for topic in self._cluster.invariants.view.topics.values():
            partitions = [
                {
                    "partition_index": index,
                    "replicas": self._without_old(state.replicas),
                }
                for index, state in enumerate(topic.partitions)
                if self.old in state.replicas and index not in topic.moves
            ]
            if partitions:
                topics.append({"name": topic.name, "partitions": partitions})
        if topics:
            fields = {"timeout": 5_000, "topics": topics}
            await connection.call(ApiKey.ALTER_PARTITION_REASSIGNMENTS, fields)
