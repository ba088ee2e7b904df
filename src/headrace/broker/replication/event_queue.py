# SPDX-License-Identifier: Apache-2.0
"""Events about partitions and nodes, queued until they are written to `__headrace_events`.

Elections, changes of the ISR, lost records, disk trouble. The kinds of events are listed in docs/groups.md.
Read next: reporting/group_timeline.py (writes them to the topic).
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
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

    def __len__(self) -> int:
        return len(self._queue)

    def note_partition(self, partition: TopicPartition, kind: str, details: Mapping[str, Any]) -> None:
        about = {"topic": partition.topic, "partition": partition.partition}
        self._note(str(partition), kind, about, details)

    def note_node(self, node_id: int, kind: str, details: Mapping[str, Any]) -> None:
        self._note(f"node {node_id}", kind, {}, {"node": node_id, **details})

    def take_all(self) -> list[QueuedEvent]:
        """Removes and returns what is queued, oldest first."""
        queued, self._queue = self._queue, deque()
        return list(queued)

    def _note(self, name: str, kind: str, about: Mapping[str, Any], details: Mapping[str, Any]) -> None:
        """The key begins with a zero byte, so that no group id equals it."""
        if not self._enabled or len(self._queue) >= MOST_QUEUED:
            return
        at = self._clock.wall_ms()
        document = {"version": EVENTS_VERSION, "at": at, "kind": kind, **about, "details": dict(details)}
        value = json.dumps(document, separators=(",", ":")).encode()
        self._queue.append(QueuedEvent(at, b"\0" + name.encode(), value))
