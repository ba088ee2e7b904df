# SPDX-License-Identifier: Apache-2.0
"""Drives the state machine of slow nodes: hands it times, publishes and logs what it finds (R16b).

Its finding is written to this node's own entry of the store, so that the controller moves leadership off a
slow node; releases that do not know the field ignore it. Level-triggered: what differs from the entry is
written again at the next tick. Decides nothing. Read next: machines/replication/slow_nodes.py, replicas.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable

from headrace.broker.metrics import Histogram, quantile_of
from headrace.broker.replication.event_queue import EventQueue
from headrace.broker.replication.live_nodes import slow_in
from headrace.config import NodeConfig
from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.errors import HeadraceError
from headrace.machines.replication.slow_nodes import TICK_MS, SlowChange, SlowNodes, SlowSettings
from headrace.types import ClusterView
from headrace.world import World

logger = logging.getLogger(__name__)


class SlowReplicas:
    """`fsync`: the durations of this node's own flushes. `on_change`: called when `slow` has changed."""

    def __init__(
        self,
        *,
        world: World,
        config: NodeConfig,
        cluster: ClusterMetadata,
        fsync: Histogram,
        events: EventQueue,
        on_change: Callable[[], None],
    ) -> None:
        self._node_id: int = config["node.id"]
        self._clock = world.clock
        self._tasks = world.tasks
        self._cluster = cluster
        self._events = events
        self._on_change = on_change
        self._fsync = fsync
        self._flushes_before = fsync.buckets.copy()
        self._failing = False
        self._led_by_others: frozenset[int] = frozenset()
        self._task: asyncio.Task[None] | None = None
        self.machine = SlowNodes(
            self._node_id,
            SlowSettings(
                floor_ms=config["headrace.slow.replica.floor.ms"],
                factor=config["headrace.slow.replica.factor"],
                after_ms=config["headrace.slow.replica.after.ms"],
                return_ms=config["headrace.slow.replica.return.ms"],
            ),
        )
        self.moves: Counter[int] = Counter()
        """By node, how often it was found slow since the start."""

    @property
    def slow(self) -> frozenset[int]:
        return self.machine.slow

    def start(self) -> None:
        self._task = self._tasks.spawn(self._run(), name="slow replicas")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            await self._tasks.sleep(TICK_MS / 1000)
            try:
                self._tick()
                await self._publish()
            except Exception:
                logger.exception("looking for slow nodes failed, will be retried")

    def _tick(self) -> None:
        view = self._cluster.view
        self.machine.update_nodes({node.node_id: node.epoch for node in view.nodes.values()})
        slow_before = self.slow
        for change in self.machine.tick(int(self._clock.monotonic() * 1000), self._typical_flush_ms()):
            self._note(change)
        if self.slow != slow_before:
            self._on_change()
        if self._cluster.is_controller:
            self._log_leadership(view)

    def _typical_flush_ms(self) -> float | None:
        """The median since the last call; None: nothing was flushed."""
        before, self._flushes_before = self._flushes_before, self._fsync.buckets.copy()
        recent = [now - then for now, then in zip(self._flushes_before, before, strict=True)]
        typical_s = quantile_of(recent, 0.5)
        return None if typical_s is None else typical_s * 1000

    async def _publish(self) -> None:
        view, node_id = self._cluster.view, self._node_id
        entry = view.nodes.get(node_id)
        if entry is None or entry.slow == self.slow:
            return
        try:
            await self._cluster.announce(slow=self.slow)
        except (HeadraceError, OSError) as error:
            if not self._failing:
                logger.warning("which nodes are slow was not published, will be retried: %s", error)
            self._failing = True
        else:
            self._failing = False

    def _note(self, change: SlowChange) -> None:
        figures = (
            f"{change.typical_ms:.0f} ms to acknowledge an append, the fastest other {change.others_ms:.0f}"
        )
        own = change.node == self._node_id
        subject = "this node's disk" if own else f"node {change.node}"
        if not change.slow:
            logger.warning("%s is no longer slow: it takes %s", subject, figures)
            self._events.note_node(change.node, "fast_node", {"by": self._node_id})
            return
        self.moves[change.node] += 1
        follows = "other nodes lead its partitions" if own else "it leaves the ISR where enough others remain"
        logger.warning(
            "%s is slow: it takes %s; %s, until it was fast for %d s",
            subject,
            figures,
            follows,
            change.return_ms // 1000,
        )
        details = {
            "by": self._node_id,
            "typical_ms": round(change.typical_ms),
            "others_ms": round(change.others_ms),
            "return_ms": change.return_ms,
        }
        self._events.note_node(change.node, "slow_node", details)

    def _log_leadership(self, view: ClusterView) -> None:
        """On the controller: which nodes lead nothing while others can."""
        slow = slow_in(view)
        for node_id in sorted(slow - self._led_by_others):
            by = sorted(node.node_id for node in view.nodes.values() if node_id in node.slow)
            logger.warning("node %d is slow, as found by %s: other in-sync replicas lead", node_id, by)
        for node_id in sorted(self._led_by_others - slow):
            logger.warning("node %d is no longer slow: it may lead again", node_id)
        self._led_by_others = slow
