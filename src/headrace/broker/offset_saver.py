"""Writes down what the logs hold, for the next start: one write at a time, shared by all who ask for it.

Read next: node_checkpoints.py (the files), partitions.py (where the offsets come from).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from headrace.broker.node_checkpoints import LogOffsets, NodeCheckpoints
from headrace.types import TopicPartition
from headrace.world import World

Offsets = Mapping[TopicPartition, LogOffsets]


class OffsetSaver:
    def __init__(self, world: World, checkpoints: NodeCheckpoints, present: Callable[[], Offsets]) -> None:
        self._checkpoints = checkpoints
        self._present = present
        self._thread = world.tasks.thread("checkpoints")
        self._saving = asyncio.Lock()
        self._asked = self._done = 0

    async def persist(self) -> None:
        """What holds now is written down when it returns. Who asks while others wait shares their write."""
        self._asked += 1
        asked = self._asked
        async with self._saving:
            if self._done < asked:
                covered = self._asked
                await self.save(self._present())
                self._done = covered

    async def save(self, offsets: Offsets) -> None:
        """Always on the one thread: two at a time would write into each other's files."""
        await self._thread.run(self._checkpoints.save, offsets)

    async def persist_high_watermarks(self) -> None:
        """Often, since a node that restarts knows of nothing above it that it is committed (R13)."""
        await self._thread.run(self._checkpoints.save_high_watermarks, self._present())

    async def loss_is_known(self) -> None:
        """The node was let in: the cluster counts on nothing that it may have lost (R20)."""
        await self._thread.run(self._checkpoints.loss_is_known)

    async def mark_clean(self, node_epoch: int) -> None:
        await self._thread.run(self._checkpoints.mark_clean, node_epoch)
