"""What happens in groups and to partitions, written to `__headrace_events` once a second (D21).

The machines tell most of it (machines/machine.py, TimelineEvent); first fetches are found out here. Telling
costs a group nothing but a place in a queue; what does not fit there is dropped and counted. The kinds of
events are listed in docs/groups.md. Read next: own_topics.py, first_fetches.py, client/group_events.py.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.broker.first_fetches import FirstFetch, FirstFetches, holdings
from headrace.broker.own_topics import OwnRecord, OwnTopic
from headrace.broker.turns import in_turns
from headrace.machines.group import Group
from headrace.machines.machine import TimelineEvent
from headrace.types import TopicPartition

if TYPE_CHECKING:
    from headrace.broker.connection import KafkaConnection
    from headrace.broker.fetch_sessions import FetchEntry
    from headrace.broker.node import Broker

WRITE_S = 1.0
LOOK_AFTER_S = 0.1
MOST_QUEUED = 20_000
_LONGEST_TEXT = 1_000
"""A client's own words are cut there."""
_PARTITIONS_NAMED = 20
_WHOLE_GROUP = ("assigned", "rejoin", "downgrade", "upgrade")
_NOBODY_LEFT = ("empty", "deleted")
_TIMED_OUT = ("silent for", "did not", "session timed out")


class GroupTimeline:
    def __init__(self, broker: Broker, topic: OwnTopic) -> None:
        self.first_fetches = FirstFetches()
        self._topic = topic
        self._clock = broker.world.clock
        self._tasks = broker.world.tasks
        self._cluster = broker.cluster
        self._groups = broker.groups
        self._queue: deque[tuple[str, TimelineEvent]] = deque()
        self._of_partitions: deque[OwnRecord] = deque()
        self._enabled: bool = broker.config["headrace.events.enable"]
        self.moved: dict[str, str | None] = {}
        """Groups whose members may hold something new; the member, when it is one alone."""
        if self._enabled:
            broker.groups.on_timeline = self.note
            broker.groups.on_loaded = self.loaded

    # What is told

    def note(self, group_id: str, event: TimelineEvent) -> None:
        self._put(group_id, event)
        kind = event.kind
        if kind == "reconcile":
            self._look_soon(group_id, event.details["member_id"])
        elif kind in _WHOLE_GROUP:
            self._look_soon(group_id, None)
        elif kind == "leave":
            timed_out = str(event.details["reason"]).startswith(_TIMED_OUT)
            now = self._clock.monotonic()
            self.first_fetches.left(group_id, event.details["member_id"], timed_out=timed_out, now=now)
        elif kind in _NOBODY_LEFT:
            self.first_fetches.gone(group_id)

    def note_partition(self, partition: TopicPartition, kind: str, details: Mapping[str, Any]) -> None:
        about = {"topic": partition.topic, "partition": partition.partition}
        self._note(str(partition), kind, about, details)

    def note_node(self, node_id: int, kind: str, details: Mapping[str, Any]) -> None:
        self._note(f"node {node_id}", kind, {}, {"node": node_id, **details})

    def _note(self, name: str, kind: str, about: Mapping[str, Any], details: Mapping[str, Any]) -> None:
        """Under a key that no group has."""
        if not self._enabled or len(self._of_partitions) >= MOST_QUEUED:
            return
        at = self._clock.wall_ms()
        document = {"at": at, "kind": kind, **about, "details": dict(details)}
        value = json.dumps(document, separators=(",", ":")).encode()
        self._of_partitions.append(OwnRecord(at, b"\0" + name.encode(), value))

    def _put(self, group_id: str, event: TimelineEvent) -> None:
        if len(self._queue) >= MOST_QUEUED:
            self._topic.drop(1)
        else:
            self._queue.append((group_id, event))

    def _look_soon(self, group_id: str, member_id: str | None) -> None:
        """When the rebalance is over, or a fetch comes first: its members wait for answers now."""
        if not self.moved:
            self._tasks.call_later(LOOK_AFTER_S, self._look)
        if self.moved.setdefault(group_id, member_id) != member_id:
            self.moved[group_id] = None

    def _look(self) -> None:
        moved = dict(self.moved)
        self.moved.clear()
        now, names = self._clock.monotonic(), self._cluster.view.topic_names
        for group_id, member_id in moved.items():
            group = self._groups.peek(group_id)
            if group is not None:
                self.first_fetches.given(group_id, holdings(group, names, member_id), now)

    def loaded(self, group: Group) -> None:
        """The group was here before this node started."""
        self.first_fetches.given(group.group_id, holdings(group, self._cluster.view.topic_names), None)

    def fetched(self, connection: KafkaConnection, client_id: str | None, entries: list[FetchEntry]) -> None:
        if self.moved:
            self._look()
        identity = (client_id or "", "/" + connection.peer.rpartition(":")[0])
        for first in self.first_fetches.fetched(identity, entries, self._cluster.view.topic_names):
            event = TimelineEvent(self._clock.wall_ms(), "first_fetch", _first_fetch(first))
            self._put(first.group_id, event)

    # The topic

    async def write(self) -> None:
        self.first_fetches.forget_old(self._clock.monotonic())
        if not self._queue and not self._of_partitions:
            return
        queued, self._queue = self._queue, deque()
        records, self._of_partitions = list(self._of_partitions), deque()
        records += [_record(group_id, event) async for group_id, event in in_turns(queued)]
        await self._topic.append(records)


def _first_fetch(first: FirstFetch) -> dict[str, Any]:
    details: dict[str, Any] = {"member_id": first.member_id, "count": len(first.partitions)}
    if len(first.partitions) == 1:
        ((partition, offset),) = first.partitions
        return details | {"topic": partition.topic, "partition": partition.partition, "offset": offset}
    named = sorted(first.partitions)[:_PARTITIONS_NAMED]
    return details | {"partitions": [[str(partition), offset] for partition, offset in named]}


def _record(group_id: str, event: TimelineEvent) -> OwnRecord:
    details = {key: _short(value) for key, value in event.details.items()}
    document = {"at": event.wall_ms, "kind": event.kind, "group": group_id, "details": details}
    key = group_id.encode(errors="surrogatepass")
    return OwnRecord(event.wall_ms, key, json.dumps(document, separators=(",", ":")).encode())


def _short(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _LONGEST_TEXT:
        return value[:_LONGEST_TEXT] + "…"
    return value
