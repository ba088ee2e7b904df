# SPDX-License-Identifier: Apache-2.0
"""Events of groups, partitions and nodes, written to `__headrace_events` (D21).

Most group events come from the machines (machines/machine.py, TimelineEvent); first fetches are detected
here. Events wait in a queue for SOON_S, commits and first fetches for WRITE_S; those that do not fit are
dropped and counted. The kinds of events are listed in docs/events.md.
Read next: internal_topics.py, cluster_timeline.py, first_fetches.py, client/tools/group_events.py.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from typing import Any

from headrace.broker.groups.coordinator import GroupCoordinator
from headrace.broker.network.connection import KafkaConnection
from headrace.broker.network.yielding import yielding
from headrace.broker.partition.fetch_sessions import FetchEntry
from headrace.broker.replication.event_queue import EventQueue
from headrace.broker.reporting.first_fetches import FirstFetch, FirstFetches, holdings
from headrace.broker.reporting.group_snapshot import group_snapshot
from headrace.broker.reporting.internal_topics import InternalRecord, InternalTopicWriter
from headrace.config import NodeConfig
from headrace.coordination.cluster_metadata import ClusterMetadata
from headrace.machines.groups.group import Group
from headrace.machines.machine import TimelineEvent
from headrace.types import EVENTS_VERSION
from headrace.world import World

WRITE_S = 1.0
SOON_S = 0.1
"""Whoever watches the cluster sees what happened no later than this, and the time of a write."""
UPDATE_AFTER_S = 0.1
MOST_QUEUED = 20_000
_LONGEST_TEXT = 1_000
"""Longer texts of clients are cut."""
_PARTITIONS_NAMED = 20
_WHOLE_GROUP = ("assigned", "rejoin", "downgrade", "upgrade")
_NOBODY_LEFT = ("empty", "deleted")
_FREQUENT = ("commit", "first_fetch")
_TIMED_OUT = ("silent for", "did not", "session timed out")


class GroupTimeline:
    def __init__(
        self,
        *,
        world: World,
        config: NodeConfig,
        cluster: ClusterMetadata,
        groups: GroupCoordinator,
        events: EventQueue,
        topic: InternalTopicWriter,
    ) -> None:
        self.first_fetches = FirstFetches()
        self._topic = topic
        self._events = events
        self._clock = world.clock
        self._tasks = world.tasks
        self._node_id: int = config["node.id"]
        self._cluster = cluster
        self._groups = groups
        self._queue: deque[tuple[str, TimelineEvent]] = deque()
        self.moved: dict[str, str | None] = {}
        """Groups with assignments that changed; the member, when it is only one."""
        self._writing = asyncio.Lock()
        self._write_scheduled = False
        self._task: asyncio.Task[None] | None = None
        self._stopped = False
        self.reassigned: set[str] = set()
        """Groups of which the next write has a snapshot."""
        events.on_noted = self._write_soon
        if config["headrace.events.enable"]:
            groups.on_timeline = self.note
            groups.on_loaded = self.loaded

    # Events

    def note(self, group_id: str, event: TimelineEvent) -> None:
        self._put(group_id, event)
        kind = event.kind
        if kind == "reconcile":
            self._update_owners_soon(group_id, event.details["member_id"])
        elif kind in _WHOLE_GROUP:
            self._update_owners_soon(group_id, None)
        elif kind == "leave":
            timed_out = str(event.details["reason"]).startswith(_TIMED_OUT)
            now = self._clock.monotonic()
            self.first_fetches.left(group_id, event.details["member_id"], timed_out=timed_out, now=now)
        elif kind in _NOBODY_LEFT:
            self.first_fetches.gone(group_id)

    def _put(self, group_id: str, event: TimelineEvent) -> None:
        if len(self._queue) >= MOST_QUEUED:
            self._topic.drop(1)
        else:
            self._queue.append((group_id, event))
            if event.kind not in _FREQUENT:
                self._write_soon()

    def _update_owners_soon(self, group_id: str, member_id: str | None) -> None:
        """After the rebalance, or at the next fetch: members wait for replies now."""
        if not self.moved:
            self._tasks.call_later(UPDATE_AFTER_S, self._update_owners)
        if self.moved.setdefault(group_id, member_id) != member_id:
            self.moved[group_id] = None

    def _update_owners(self) -> None:
        moved = dict(self.moved)
        self.moved.clear()
        now, names = self._clock.monotonic(), self._cluster.view.topic_names
        for group_id, member_id in moved.items():
            group = self._groups.peek(group_id)
            if group is not None:
                self.first_fetches.assigned(group_id, holdings(group, names, member_id), now)
                self.reassigned.add(group_id)

    def loaded(self, group: Group) -> None:
        """A group was loaded from the log: its assignments are not new."""
        self.first_fetches.assigned(group.group_id, holdings(group, self._cluster.view.topic_names), None)

    def fetched(self, connection: KafkaConnection, client_id: str | None, entries: list[FetchEntry]) -> None:
        if self.moved:
            self._update_owners()
        identity = (client_id or "", "/" + connection.peer.rpartition(":")[0])
        for first in self.first_fetches.fetched(identity, entries, self._cluster.view.topic_names):
            event = TimelineEvent(self._clock.wall_ms(), "first_fetch", _first_fetch(first))
            self._put(first.group_id, event)

    # The topic

    def _write_soon(self) -> None:
        if not self._write_scheduled and not self._stopped:
            self._write_scheduled = True
            self._tasks.call_later(SOON_S, self._start_writing)

    def _start_writing(self) -> None:
        self._write_scheduled = False
        if not self._stopped:
            self._task = self._tasks.spawn(self._write_queued(), name="group events")

    async def write(self) -> None:
        """Every WRITE_S, with one snapshot of each group that was rebalanced, however often it was."""
        self.first_fetches.forget_old(self._clock.monotonic())
        self._note_snapshots()
        await self._write_queued()

    async def finish(self) -> None:
        """The node stops, and waits for no other one: what cannot be written at once is dropped."""
        self._stopped = True
        if self._task is not None:
            self._task.cancel()
        self._note_snapshots()
        await self._write_queued(attempts=1)

    async def _write_queued(self, attempts: int | None = None) -> None:
        async with self._writing:
            await self._take_and_append(attempts)

    async def _take_and_append(self, attempts: int | None) -> None:
        if not self._queue and not self._events:
            return
        wanted = self._queue or self._events.creates_topic or self._topic.exists
        queued, self._queue = self._queue, deque()
        taken = self._events.take_all()
        if not wanted:  # nobody uses groups or several nodes yet: the next snapshot has what happened
            return
        records = [InternalRecord(*event) for event in taken]
        records += [_record(group_id, event) async for group_id, event in yielding(queued)]
        await (self._topic.append(records, attempts=attempts) if attempts else self._topic.append(records))

    def _note_snapshots(self) -> None:
        reassigned, self.reassigned = self.reassigned, set()
        for group_id in reassigned:
            group = self._groups.peek(group_id)
            if group is not None:
                self.note_snapshot(group, offsets=False)

    def note_snapshot(self, group: Group, *, offsets: bool) -> None:
        names, now_ms = self._cluster.view.topic_names, self._clock.wall_ms()
        parts = group_snapshot(group, names, node_id=self._node_id, at_ms=now_ms, offsets=offsets)
        for part in parts:
            self._events.note_group_state(group.group_id, "group_snapshot", part)


def _first_fetch(first: FirstFetch) -> dict[str, Any]:
    details: dict[str, Any] = {"member_id": first.member_id, "count": len(first.partitions)}
    if len(first.partitions) == 1:
        ((partition, offset),) = first.partitions
        return details | {"topic": partition.topic, "partition": partition.partition, "offset": offset}
    named = sorted(first.partitions)[:_PARTITIONS_NAMED]
    return details | {"partitions": [[str(partition), offset] for partition, offset in named]}


def _record(group_id: str, event: TimelineEvent) -> InternalRecord:
    details = {key: _short(value) for key, value in event.details.items()}
    document = {
        "version": EVENTS_VERSION,
        "at": event.wall_ms,
        "kind": event.kind,
        "group": group_id,
        "details": details,
    }
    key = group_id.encode(errors="surrogatepass")
    return InternalRecord(event.wall_ms, key, json.dumps(document, separators=(",", ":")).encode())


def _short(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _LONGEST_TEXT:
        return value[:_LONGEST_TEXT] + "…"
    return value
