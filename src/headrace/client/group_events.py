"""A group's story (D21): what Headrace wrote down in `__headrace_events`, else what can be seen from outside.

Apache Kafka writes nothing down, so there a group is looked at again and again and the differences are told;
`NOT_SEEN` names what that cannot show. Words for the events are the command line's.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.client.groups import GroupDescription, Groups
from headrace.client.reader import RecordReader
from headrace.types import EVENTS_TOPIC, TopicPartition

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
    """A group as it was seen at one moment; None when there was no such group."""

    at_ms: int
    group: GroupDescription | None
    committed: Mapping[TopicPartition, int]


def recorded_events(
    bootstrap: str,
    groups: Groups,
    group_id: str,
    *,
    since_ms: int,
    follow: bool,
    on_pause: Callable[[], None] | None = None,
) -> Iterator[GroupEvent] | None:
    """What the broker wrote down since a moment, oldest first; None when it writes nothing down."""
    topic = groups.find_topic(EVENTS_TOPIC)
    if topic is None:
        return None
    partitions = [partition.index for partition in topic.partitions]
    starts = groups.offsets(EVENTS_TOPIC, partitions, since_ms)
    stops = None if follow else groups.offsets(EVENTS_TOPIC, partitions, "latest")
    return _read_events(RecordReader(bootstrap, EVENTS_TOPIC, starts, stops, on_pause=on_pause), group_id)


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
    """None for what a newer program wrote in another form."""
    try:
        document = json.loads(value or b"")
        return GroupEvent(
            at_ms=int(document["at"]), kind=str(document["kind"]), details=dict(document.get("details") or {})
        )
    except (ValueError, KeyError, TypeError):
        return None


def watched_events(
    groups: Groups, group_id: str, *, every_ms: int, sleep: Callable[[float], None] = time.sleep
) -> Iterator[GroupEvent | None]:
    """For ever, from looking at the group; None after each look, so that the caller can flush."""
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
    """What must have happened between two looks, in the words of the recorded events. The first look tells
    who is there."""
    old, new = before.group if before else None, after.group
    told: list[tuple[str, dict[str, Any]]] = []
    members_before = {member.member_id: member for member in old.members} if old else {}
    members_after = {member.member_id: member for member in new.members} if new else {}
    told += [
        ("leave", {"member_id": member_id, "client_id": members_before[member_id].client_id})
        for member_id in members_before.keys() - members_after.keys()
    ]
    told += [
        ("join" if before else "present", _about(member))
        for member_id, member in members_after.items()
        if member_id not in members_before
    ]
    state_before, state_after = old.state if old else None, new.state if new else None
    if state_before != state_after:
        told.append(("state", {"from": state_before, "to": state_after}))
    if new is not None and (moves := _moves(old, new)):
        told.append(("assigned", {"members": len(new.members), **moves}))
    committed = _commits(before, after)
    if committed:
        told.append(("commit", {"partitions": len(committed), "records": sum(committed.values())}))
    return [GroupEvent(at_ms=after.at_ms, kind=kind, details=details) for kind, details in told]


def _about(member: Any) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.host,
    }


def _moves(old: GroupDescription | None, new: GroupDescription) -> dict[str, Any]:
    """As the broker writes it: moved from one to another, given to somebody, taken from somebody."""
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
