# SPDX-License-Identifier: Apache-2.0
"""Events about partitions, topics and nodes, queued until they are written to `__headrace_events`.

The kinds of events are listed in docs/events.md. Read next: reporting/cluster_timeline.py (nodes, topics,
snapshots), reporting/group_timeline.py (writes them to the topic).
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from headrace.types import EVENTS_VERSION, TopicPartition
from headrace.world import Clock

MOST_QUEUED = 20_000


class QueuedEvent(NamedTuple):
    timestamp_ms: int
    key: bytes
    value: bytes


class EventQueue:
    """One per node. Events beyond MOST_QUEUED are dropped; nothing is queued when events are disabled."""

    def __init__(self, clock: Clock, *, enabled: bool) -> None:
        self._clock = clock
        self._enabled = enabled
        self._queue: deque[QueuedEvent] = deque()
        self.on_noted: Callable[[], None] = lambda: None
        self.creates_topic = False
        """Whether one of the queued events is reason enough to create the topic."""

    @property
    def enabled(self) -> bool:
        return self._enabled

    def __len__(self) -> int:
        return len(self._queue)

    def note_partition(self, partition: TopicPartition, kind: str, details: Mapping[str, Any]) -> None:
        about = {"topic": partition.topic, "partition": partition.partition}
        self.creates_topic |= self._enabled
        self._note(str(partition), kind, about, details)

    def note_topic(self, topic: str, kind: str, details: Mapping[str, Any], *, creates_topic: bool) -> None:
        self.creates_topic |= self._enabled and creates_topic
        self._note(f"topic {topic}", kind, {"topic": topic}, details)

    def note_cluster(self, kind: str, details: Mapping[str, Any]) -> None:
        """Nodes that come and go, the controller, and the state of the whole cluster."""
        self._note("cluster", kind, {}, details)

    def note_group_state(self, group_id: str, kind: str, details: Mapping[str, Any]) -> None:
        """Not under the group's own key: what happened to a group is read by that."""
        self._note(f"group {group_id}", kind, {"group": group_id}, details)

    def note_node(self, node_id: int, kind: str, details: Mapping[str, Any]) -> None:
        self.creates_topic |= self._enabled
        self._note(f"node {node_id}", kind, {}, {"node": node_id, **details})

    def take_all(self) -> list[QueuedEvent]:
        """Removes and returns what is queued, oldest first."""
        queued, self._queue = self._queue, deque()
        self.creates_topic = False
        return list(queued)

    def _note(self, name: str, kind: str, about: Mapping[str, Any], details: Mapping[str, Any]) -> None:
        """The key begins with a zero byte, so that no group id equals it."""
        if not self._enabled or len(self._queue) >= MOST_QUEUED:
            return
        at = self._clock.wall_ms()
        document = {"version": EVENTS_VERSION, "at": at, "kind": kind, **about, "details": dict(details)}
        value = json.dumps(document, separators=(",", ":")).encode()
        self._queue.append(QueuedEvent(at, b"\0" + name.encode(errors="surrogatepass"), value))
        self.on_noted()
