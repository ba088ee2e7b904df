# SPDX-License-Identifier: Apache-2.0
"""Events of nodes and topics, and snapshots of the cluster, for `__headrace_events`: its past can be shown.

The controller notes nodes that come and go, controllers and topics, and every SNAPSHOT_S the whole cluster; a
new controller goes on from the last view in which there was one. Every node notes log ends of the partitions
that it leads, and its groups. Nothing of it creates the topic, except topics of clients in a cluster of
several nodes. The forms are described in docs/events.md.
Read next: group_snapshot.py, console/state/replay.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from headrace.broker.groups.coordinator import GroupCoordinator
from headrace.broker.network.yielding import yielding
from headrace.broker.partition.registry import Partitions
from headrace.broker.replication.event_queue import EventQueue
from headrace.broker.reporting.group_timeline import GroupTimeline
from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.types import EVENTS_TOPIC, NO_NODE, OWN_TOPICS, ClusterView, Node, Topic, TopicPartition
from headrace.world import World

RUN_S = 1.0
SNAPSHOT_S = 600.0
"""A moment is rebuilt from the snapshot before it (console/observing/past.py)."""
LOG_ENDS_S = 10.0
MOST_LOG_ENDS = 2_000
"""In one run: with more busy partitions each is noted less often."""
_PARTITIONS_PER_PART = 2_000
_GROUPS_PER_YIELD = 10


class ClusterTimeline:
    def __init__(
        self,
        *,
        world: World,
        node_id: int,
        cluster: ClusterMetadata,
        partitions: Partitions,
        groups: GroupCoordinator,
        timeline: GroupTimeline,
        events: EventQueue,
    ) -> None:
        self._node_id = node_id
        self._clock = world.clock
        self._cluster = cluster
        self._partitions = partitions
        self._groups = groups
        self._timeline = timeline
        self._events = events
        self._seen: ClusterView = cluster.view
        """The last view of which a controller noted the differences."""
        self._snapshot_at = self._groups_at = self._ends_at = 0.0
        self._ends: dict[TopicPartition, tuple[int, int, float]] = {}
        """Start, end and when they were noted."""

    def start(self) -> None:
        if self._events.enabled:
            self._seen = self._cluster.view
            self._cluster.subscribe(self._on_view_change)

    # What happens

    def _on_view_change(self, old: ClusterView, new: ClusterView) -> None:
        if EVENTS_TOPIC in new.topics and EVENTS_TOPIC not in old.topics:
            self._snapshot_at = self._groups_at = self._ends_at = 0.0
            self._ends.clear()
        if new.controller_id == self._node_id:
            self._note_differences(self._seen, new)
        if new.controller_id != NO_NODE:
            self._seen = new

    def _note_differences(self, old: ClusterView, new: ClusterView) -> None:
        if old.nodes is not new.nodes:
            self._note_nodes(old, new)
        if (old.controller_id, old.controller_epoch) != (new.controller_id, new.controller_epoch):
            before = None if old.controller_id == NO_NODE else old.controller_id
            self._events.note_cluster("controller", {"node": new.controller_id, "node_before": before})
            self._snapshot_at = 0.0
        for name in self._cluster.changed_topics(old, new):
            before_topic, after = old.topics.get(name), new.topics.get(name)
            if before_topic is not None and (after is None or after.topic_id != before_topic.topic_id):
                self._note_topic(name, "topic_deleted", {"topic_id": str(before_topic.topic_id)}, new)
                before_topic = None
            if after is not None:
                self._note_partitions(before_topic, after, new)

    def _note_nodes(self, old: ClusterView, new: ClusterView) -> None:
        for node_id, node in old.nodes.items():
            if node_id not in new.nodes:
                down = {"node": node_id, "epoch": node.epoch, "orderly": node.leaving}
                self._events.note_cluster("node_down", down)
        for node_id, node in new.nodes.items():
            before = old.nodes.get(node_id)
            if before is None or before.epoch != node.epoch:
                up = {"node": node_id, "epoch": node.epoch, "rack": node.rack, **_address(node)}
                self._events.note_cluster("node_up", up)

    def _note_partitions(self, before: Topic | None, after: Topic, view: ClusterView) -> None:
        """Those that the topic did not have; none where other things changed."""
        first = 0 if before is None else len(before.partitions)
        kind = "topic_created" if before is None else "partitions_added"
        for start in range(first, len(after.partitions), _PARTITIONS_PER_PART):
            self._note_topic(after.name, kind, _some_partitions(after, start), view)
            kind = "partitions_added"

    def _note_topic(self, name: str, kind: str, details: Mapping[str, Any], view: ClusterView) -> None:
        several = len(view.registered) > 1 and name not in OWN_TOPICS
        self._events.note_topic(name, kind, details, creates_topic=several)

    # How things are

    async def run(self) -> None:
        if not self._events.enabled or EVENTS_TOPIC not in self._cluster.view.topics:
            return
        now = self._clock.monotonic()
        if now >= self._snapshot_at and self._cluster.view.controller_id == self._node_id:
            self._snapshot_at = now + SNAPSHOT_S
            self._note_snapshot(self._cluster.view)
        if now >= self._ends_at:
            self._ends_at = now + LOG_ENDS_S
            await self._note_log_ends(now)
        if now >= self._groups_at:
            await self._note_groups(now)

    def _note_snapshot(self, view: ClusterView) -> None:
        """At once: an event between its parts would be undone by them."""
        pieces = list(_in_parts(view.topics.values()))
        snapshot_id = f"{self._node_id}-{self._clock.wall_ms()}"
        for number, topics in enumerate(pieces):
            details = {
                "id": snapshot_id,
                "part": number,
                "parts": len(pieces),
                "cluster_id": view.cluster_id,
                "controller": view.controller_id,
                "nodes": _nodes(view) if number == 0 else None,
                "topics": topics,
            }
            self._events.note_cluster("snapshot", details)

    async def _note_log_ends(self, now: float) -> None:
        due: list[tuple[float, TopicPartition, int, int]] = []
        led: set[TopicPartition] = set()
        async for partition in yielding(list(self._partitions.all()), 1000):
            if not partition.online or not partition.leads:
                continue
            where = partition.topic_partition
            led.add(where)
            start, end = partition.log_start_offset, partition.log_end_offset
            noted = self._ends.get(where)
            changed = noted is None or noted[:2] != (start, end)
            old = noted is None or now - noted[2] >= SNAPSHOT_S
            if old or (changed and where.topic not in OWN_TOPICS):  # the event itself makes those grow
                due.append((noted[2] if noted else 0.0, where, start, end))
        self._ends = {where: noted for where, noted in self._ends.items() if where in led}
        some = sorted(due)[:MOST_LOG_ENDS]
        if some:
            self._ends |= {where: (start, end, now) for _, where, start, end in some}
            self._events.note_cluster("log_ends", {"node": self._node_id, "ends": _ends_by_topic(some)})

    async def _note_groups(self, now: float) -> None:
        groups = self._groups.listed_now()
        if groups is None:  # some are being loaded
            return
        self._groups_at = now + SNAPSHOT_S
        async for group in yielding(groups, _GROUPS_PER_YIELD):
            self._timeline.note_snapshot(group, offsets=True)


def _address(node: Node) -> dict[str, Any]:
    """Where clients reach it, when that does not depend on the client."""
    if len(node.endpoints) != 1:
        return {"host": None, "port": None}
    return {"host": node.endpoints[0].host, "port": node.endpoints[0].port}


def _nodes(view: ClusterView) -> list[dict[str, Any]]:
    return [
        {
            "node": node_id,
            "epoch": node.epoch,
            "rack": node.rack,
            "up": node_id in view.nodes,
            "full": node.full,
            **_address(node),
        }
        for node_id, node in sorted(view.registered.items())
    ]


def _some_partitions(topic: Topic, first: int) -> dict[str, Any]:
    return {
        "topic_id": str(topic.topic_id),
        "count": len(topic.partitions),
        "first": first,
        "partitions": [
            (each.leader, each.leader_epoch, each.replicas, each.isr)
            for each in topic.partitions[first : first + _PARTITIONS_PER_PART]
        ],
    }


def _in_parts(topics: Iterable[Topic]) -> Iterator[list[dict[str, Any]]]:
    """At least one."""
    part: list[dict[str, Any]] = []
    count = 0
    for topic in topics:
        for first in range(0, len(topic.partitions), _PARTITIONS_PER_PART):
            some = {"topic": topic.name, **_some_partitions(topic, first)}
            if part and count + len(some["partitions"]) > _PARTITIONS_PER_PART:
                yield part
                part, count = [], 0
            part.append(some)
            count += len(some["partitions"])
    yield part


def _ends_by_topic(
    some: Sequence[tuple[float, TopicPartition, int, int]],
) -> list[tuple[str, list[tuple[int, int, int]]]]:
    found: dict[str, list[tuple[int, int, int]]] = {}
    for _, where, start, end in some:
        found.setdefault(where.topic, []).append((where.partition, start, end))
    return list(found.items())
