# SPDX-License-Identifier: Apache-2.0
"""Events of a group (D21): recorded ones from `__headrace_events`, else derived by polling the group.

Apache Kafka records none, so there a group is described repeatedly and the differences become events;
`NOT_SEEN` lists what that cannot show.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.tools.groups import GroupDescription, Groups
from headrace.client.tools.reader import RecordReader, topic_reader
from headrace.types import EVENTS_TOPIC, EVENTS_VERSION, TopicPartition

NOT_SEEN = (
    "why it rebalanced and how long that took",
    "first fetches",
    "whether a member left or timed out",
    "anything that came and went between two looks",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEvent:
    at_ms: int
    kind: str
    details: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A group as described at one moment; None when it did not exist."""

    at_ms: int
    group: GroupDescription | None
    committed: Mapping[TopicPartition, int]


def recorded_events(
    bootstrap: str | Cluster,
    groups: Groups,
    group_id: str,
    *,
    since_ms: int,
    follow: bool,
    on_pause: Callable[[], None] | None = None,
) -> Iterator[GroupEvent] | None:
    """Events recorded since a time, oldest first; None when the cluster records none."""
    topic = groups.find_topic(EVENTS_TOPIC)
    if topic is None:
        return None
    partitions = [partition.index for partition in topic.partitions]
    starts = groups.offsets(EVENTS_TOPIC, partitions, since_ms)
    stops = None if follow else groups.offsets(EVENTS_TOPIC, partitions, "latest")
    return _read_events(topic_reader(bootstrap, EVENTS_TOPIC, starts, stops, on_pause=on_pause), group_id)


def _read_events(reader: RecordReader, group_id: str) -> Iterator[GroupEvent]:
    try:
        for record in reader:
            if record.key == group_id.encode():
                event = read_event(record.value)
                if event is not None:
                    yield event
    finally:
        reader.close()


def read_event(value: bytes | None) -> GroupEvent | None:
    """None for events written by a newer release in another format.

    Version 1, which had no number, lacks the offsets of commits.
    """
    try:
        document = json.loads(value or b"")
        if int(document.get("version", 1)) > EVENTS_VERSION:
            return None
        return GroupEvent(
            at_ms=int(document["at"]), kind=str(document["kind"]), details=dict(document.get("details") or {})
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def watched_events(
    groups: Groups, group_id: str, *, every_ms: int, sleep: Callable[[float], None] = time.sleep
) -> Iterator[GroupEvent | None]:
    """Polls the group without end; yields None after each poll, so that the caller can flush."""
    before: Look | None = None
    while True:
        after = Look(
            at_ms=int(time.time() * 1000),
            group=groups.find_group(group_id),
            committed=groups.committed(group_id),
        )
        yield from differences(before, after)
        yield None
        before = after
        sleep(every_ms / 1000)


def differences(before: Look | None, after: Look) -> list[GroupEvent]:
    """The events between two polls, in the form of recorded ones. The first yields the members."""
    old, new = before.group if before else None, after.group
    found: list[tuple[str, dict[str, Any]]] = []
    members_before = {member.member_id: member for member in old.members} if old else {}
    members_after = {member.member_id: member for member in new.members} if new else {}
    found += [
        ("leave", {"member_id": member_id, "client_id": members_before[member_id].client_id})
        for member_id in members_before.keys() - members_after.keys()
    ]
    found += [
        ("join" if before else "present", _about(member))
        for member_id, member in members_after.items()
        if member_id not in members_before
    ]
    state_before, state_after = old.state if old else None, new.state if new else None
    if state_before != state_after:
        found.append(("state", {"from": state_before, "to": state_after}))
    if new is not None and (moves := _moves(old, new)):
        found.append(("assigned", {"members": len(new.members), **moves}))
    committed = _commits(before, after)
    if committed:
        offsets = [(*where, after.committed[where]) for where in sorted(committed)]
        details = {"partitions": len(committed), "offsets": offsets, "records": sum(committed.values())}
        found.append(("commit", details))
    return [GroupEvent(at_ms=after.at_ms, kind=kind, details=details) for kind, details in found]


def _about(member: Any) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.host,
    }


def _moves(old: GroupDescription | None, new: GroupDescription) -> dict[str, Any]:
    """As the broker records it: partitions moved between members, assigned, or unassigned."""
    had = {where: member.member_id for where, member in old.assigned.items()} if old else {}
    has = {where: member.member_id for where, member in new.assigned.items()}
    moved = [
        (str(where), had[where], owner) for where, owner in has.items() if had.get(where, owner) != owner
    ]
    given, taken = len(has.keys() - had.keys()), len(had.keys() - has.keys())
    if not (moved or given or taken):
        return {}
    return {"moved_count": len(moved), "moved": moved, "given": given, "taken": taken}


def _commits(before: Look | None, after: Look) -> dict[TopicPartition, int]:
    """Records by which each partition's committed offset changed; nothing at the first look."""
    if before is None:
        return {}
    return {
        where: offset - before.committed.get(where, 0)
        for where, offset in after.committed.items()
        if before.committed.get(where) != offset
    }
