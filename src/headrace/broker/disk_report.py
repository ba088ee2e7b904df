"""What this node tells the others of its disk: no room for records (R25), logs that are damaged (R27).

In its own entry of the store, as a node that stops does: the controller lets others lead, and no request can
get lost. Level-triggered: whoever meets trouble only says so, and all logs are looked at again.
Read next: partition_care.py (what the controller makes of it), disk_guard.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from headrace.coordination.membership import DiskWord
from headrace.errors import HeadraceError
from headrace.types import TopicId, TopicPartition

if TYPE_CHECKING:
    from headrace.broker.node import Broker

logger = logging.getLogger(__name__)

ROOMY_FOR_S = 5.0
"""So long there must be room again before others count on it: leaders are not to go to and fro."""
_AGAIN_S = 0.5
_PAUSE_S = 0.05


class DiskReport:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._cluster = broker.cluster
        self._partitions = broker.partitions
        self._clock = broker.world.clock
        self._tasks = broker.world.tasks
        self._trouble = asyncio.Event()
        self._full_at: float | None = None
        self._failing = False
        self._said_full = False
        self._told: dict[tuple[TopicId, int], TopicPartition] = {}
        self._task: asyncio.Task[None] | None = None
        broker.partitions.on_trouble = self._trouble.set

    async def start(self) -> None:
        """Before the node is registered, so that it is never counted on for what it cannot do."""
        await self._cluster.announce(disk=self._look())
        self._task = self._tasks.spawn(self._run(), name="disk report")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def look_again(self) -> None:
        """Once a second: there may be room again, or none any more."""
        if not self._is_known(self._look()):
            self._trouble.set()

    async def _run(self) -> None:
        while True:
            await self._trouble.wait()
            self._trouble.clear()
            try:
                await self._report()
            except Exception:
                logger.exception("the report of the disk failed, will be tried again")
                self._tasks.call_later(_AGAIN_S, self._trouble.set)
            await self._tasks.sleep(_PAUSE_S)  # trouble comes with many requests at once

    async def _report(self) -> None:
        word = self._look()
        self._tell_partitions()
        if not self._is_known(word) and self._has_others:
            await self._announce(word)

    def _is_known(self, word: DiskWord) -> bool:
        """By this node's entry as the view has it: who registers anew may have written what was so before."""
        view, node_id = self._cluster.view, self._broker.node_id
        entry = view.nodes.get(node_id) or view.joining.get(node_id)
        return entry is not None and (entry.full, entry.offline) == (word.full, word.offline)

    @property
    def _has_others(self) -> bool:
        """A node that is alone leads all there is, whatever its disk says."""
        view = self._cluster.view
        return len(view.nodes.keys() | view.joining.keys()) > 1

    async def _announce(self, word: DiskWord) -> None:
        try:
            await self._cluster.announce(disk=word)
        except (HeadraceError, OSError) as error:
            if not self._failing:
                logger.warning("others hear later of this node's disk: %s", error)
            self._failing = True
            self._tasks.call_later(_AGAIN_S, self._trouble.set)
            return
        self._failing = False
        if word.full != self._said_full:
            self._said_full = word.full
            self._tell_room(word.full)

    def _tell_room(self, full: bool) -> None:
        if full:
            logger.error("the disk has no room for records: others lead what they can until there is room")
            details = {"reason": "its disk has no room for records"}
            self._broker.timeline.note_node(self._broker.node_id, "disk_full", details)
        else:
            logger.warning("the disk has room again: this node takes part as before")
            self._broker.timeline.note_node(self._broker.node_id, "disk_room", {})

    def _look(self) -> DiskWord:
        now = self._clock.monotonic()
        if not self._partitions.have_room:
            self._full_at = now
        elif self._full_at is not None and now - self._full_at >= ROOMY_FOR_S:
            self._full_at = None
        return DiskWord(full=self._full_at is not None, offline=frozenset(self._partitions.damaged()))

    def _tell_partitions(self) -> None:
        """As events, so that it can be read what befell a partition, on which node, and why."""
        damaged = self._partitions.damaged()
        for key, (name, reason) in damaged.items():
            if key not in self._told:
                details = {"node": self._broker.node_id, "reason": reason}
                self._broker.timeline.note_partition(name, "offline", details)
        for key in self._told.keys() - damaged.keys():
            self._broker.timeline.note_partition(self._told[key], "online", {"node": self._broker.node_id})
        self._told = {key: name for key, (name, _) in damaged.items()}
