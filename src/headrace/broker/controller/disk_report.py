# SPDX-License-Identifier: Apache-2.0
"""Publishes the state of this node's disk to the cluster: full (R25), and which logs are damaged (R27).

It is written to the node's own entry of the store; the controller then moves leadership to other nodes.
Level-triggered: a fault only sets a flag, and all logs are checked again.
Read next: partition_reconciler.py (how the controller reacts), partition/disk_guard.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

from headrace.broker.partition.partition import Partition
from headrace.broker.partition.registry import Partitions
from headrace.broker.replication.event_queue import EventQueue
from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.coordination.node_lifecycle import DiskState
from headrace.errors import HeadraceError
from headrace.types import Node, TopicId, TopicPartition
from headrace.world import World

logger = logging.getLogger(__name__)

ROOMY_FOR_S = 5.0
"""A disk must have had room for this long before it counts as usable: leaders must not move to and fro."""
_AGAIN_S = 0.5
_PAUSE_S = 0.05


class DiskReport:
    def __init__(
        self,
        *,
        world: World,
        node_id: int,
        cluster: ClusterMetadata,
        partitions: Partitions,
        events: EventQueue,
    ) -> None:
        self._node_id = node_id
        self._cluster = cluster
        self._partitions = partitions
        self._events = events
        self._clock = world.clock
        self._tasks = world.tasks
        self._changed = asyncio.Event()
        self._full_at: float | None = None
        self._failing = False
        self._published_full = False
        self._noted: dict[tuple[TopicId, int], TopicPartition] = {}
        self._noted_ranges: dict[TopicPartition, dict[int, str]] = {}
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Before the node is registered, so that it is never elected for what it cannot lead."""
        await self._cluster.announce(disk=self._read_disk_state())
        self._task = self._tasks.spawn(self._run(), name="disk report")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def disk_changed(self) -> None:
        """Partitions report that the disk's room or a log's damage may have changed."""
        self._changed.set()

    def check(self) -> None:
        """Once a second: there may be room again, or none any more."""
        if not self._is_known(self._read_disk_state()):
            self._changed.set()

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._report()
            except Exception:
                logger.exception("publishing the state of the disk failed, will be retried")
                self._tasks.call_later(_AGAIN_S, self._changed.set)
            await self._tasks.sleep(_PAUSE_S)  # many requests meet a fault at once

    async def _report(self) -> None:
        word = self._read_disk_state()
        self._note_partitions()
        if not self._is_known(word) and self._has_others:
            await self._announce(word)

    def _is_known(self, word: DiskState) -> bool:
        """Compared with the view: a new registration may have written an older state."""
        view, node_id = self._cluster.view, self._node_id
        entry = view.nodes.get(node_id) or view.joining.get(node_id)
        return entry is not None and _state_in(entry) == word

    @property
    def _has_others(self) -> bool:
        """A single node leads all partitions, whatever the state of its disk."""
        view = self._cluster.view
        return len(view.nodes.keys() | view.joining.keys()) > 1

    async def _announce(self, word: DiskState) -> None:
        try:
            await self._cluster.announce(disk=word)
        except (HeadraceError, OSError) as error:
            if not self._failing:
                logger.warning("the state of this node's disk was not published, will be retried: %s", error)
            self._failing = True
            self._tasks.call_later(_AGAIN_S, self._changed.set)
            return
        self._failing = False
        if word.full != self._published_full:
            self._published_full = word.full
            self._note_room(word.full)

    def _note_room(self, full: bool) -> None:
        if full:
            logger.error("the disk is full: other nodes lead this node's partitions until there is room")
            details = {"reason": "its disk has no room for records"}
            self._events.note_node(self._node_id, "disk_full", details)
        else:
            logger.warning("the disk has room again: this node can lead partitions again")
            self._events.note_node(self._node_id, "disk_room", {})

    def _read_disk_state(self) -> DiskState:
        now = self._clock.monotonic()
        if not self._partitions.have_room:
            self._full_at = now
        elif self._full_at is not None and now - self._full_at >= ROOMY_FOR_S:
            self._full_at = None
        return DiskState(
            full=self._full_at is not None,
            offline=frozenset(self._partitions.damaged()),
            offline_epochs=frozenset(self._partitions.damaged_epochs()),
        )

    def _note_partitions(self) -> None:
        """As events: which partition went offline or online, on which node, and why."""
        damaged = self._partitions.damaged()
        for key, (name, reason) in damaged.items():
            if key not in self._noted:
                details = {"node": self._node_id, "reason": reason}
                self._events.note_partition(name, "offline", details)
        for key in self._noted.keys() - damaged.keys():
            self._events.note_partition(self._noted[key], "online", {"node": self._node_id})
        self._noted = {key: name for key, (name, _) in damaged.items()}
        self._note_ranges()

    def _note_ranges(self) -> None:
        """As events: what cannot be read of logs that stay online, since no other replica can take over."""
        found = {}
        for partition in self._partitions.all():
            name, segments = partition.topic_partition, partition.damaged_segments
            if segments != self._noted_ranges.get(name, {}):
                self._events.note_partition(name, "damaged_ranges", self._ranges_of(partition))
            if segments:
                found[name] = dict(segments)
        self._noted_ranges = found

    def _ranges_of(self, partition: Partition) -> dict[str, Any]:
        ranges = []
        for base_offset, what in sorted(partition.damaged_segments.items()):
            first, end = partition.log.segment_range(base_offset)
            ranges.append((first, end - 1, what))
        return {
            "node": self._node_id,
            "log_start": partition.log_start_offset,
            "log_end": partition.log_end_offset,
            "ranges": ranges,
        }


def _state_in(entry: Node) -> DiskState:
    return DiskState(full=entry.full, offline=entry.offline, offline_epochs=entry.offline_epochs)
