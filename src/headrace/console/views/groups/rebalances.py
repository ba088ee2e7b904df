# SPDX-License-Identifier: Apache-2.0
"""Rebalances of a group, newest first: who had what before and after, what moved, why, and for how long each
partition stood still.

Built from the group's events and the assignments known around them. Read next: state/group_folding.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.console.state.model import Assignment, Event, GroupState, MemberState, Snapshot
from headrace.console.views.durations import duration
from headrace.console.views.view import Document
from headrace.types import TopicPartition

MOST_REBALANCES = 20
_MOST_MOVED = 500
_NOTED_MS = 1_500
"""An assignment is recorded, or seen, up to so long after the rebalance it came from."""


@dataclass(slots=True)
class _Rebalance:
    begun: Event | None
    assigned: Event
    following: Sequence[Event]
    """Events from the beginning on, until the next rebalance is complete."""


def rebalances(snapshot: Snapshot, group: GroupState) -> list[Document]:
    events = snapshot.group_events.get(group.group_id, ())
    known = snapshot.assignments.get(group.group_id, ())
    found = _found(events)
    newest = found[-MOST_REBALANCES:]
    documents = []
    for number, each in enumerate(newest):
        later = newest[number + 1].assigned.at_ms if number + 1 < len(newest) else None
        documents.append(_document(each, known, later))
    return documents[::-1]


def _found(events: Sequence[Event]) -> list[_Rebalance]:
    """Complete ones: each `assigned`, with the `rebalance` before it."""
    found: list[_Rebalance] = []
    begun: Event | None = None
    started = 0
    for place, event in enumerate(events):
        if event.kind == "rebalance":
            begun, started = begun or event, place if begun is None else started
        elif event.kind == "assigned":
            if found:
                found[-1].following = events[_place(events, found[-1]) : place]
            found.append(_Rebalance(begun, event, events[started if begun else place :]))
            begun = None
    return found


def _place(events: Sequence[Event], rebalance: _Rebalance) -> int:
    return next(
        place for place, event in enumerate(events) if event is (rebalance.begun or rebalance.assigned)
    )


def _document(each: _Rebalance, known: Sequence[Assignment], later_ms: int | None) -> Document:
    details: Mapping[str, Any] = each.assigned.details
    before, after = _around(each.assigned.at_ms, known, later_ms)
    moved = _moved(each, before, after)
    reason = details.get("reason") or (each.begun.details.get("reason") if each.begun else None)
    took = details.get("took_ms")
    if took is None and each.begun is not None:
        took = each.assigned.at_ms - each.begun.at_ms
    return {
        "at": each.assigned.at_ms,
        "reason": reason,
        "took": took,
        "before": [_member(member) for member in before or ()],
        "after": [_member(member) for member in after or ()],
        "moved": moved[:_MOST_MOVED],
        "given": _count(details.get("given")),
        "taken": _count(details.get("taken")),
        "text": _text(reason, took, moved, details),
    }


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _around(
    at_ms: int, known: Sequence[Assignment], later_ms: int | None
) -> tuple[tuple[MemberState, ...] | None, tuple[MemberState, ...] | None]:
    """Who had what before, and after."""
    before = [each for each in known if each.at_ms < at_ms - _NOTED_MS]
    after = [
        each
        for each in known
        if each.at_ms >= at_ms - _NOTED_MS and (later_ms is None or each.at_ms < later_ms - _NOTED_MS)
    ]
    newest = after[-1] if after else (before[-1] if before and later_ms is None else None)
    return (before[-1].members if before else None), (newest.members if newest else None)


def _moved(
    each: _Rebalance,
    before: tuple[MemberState, ...] | None,
    after: tuple[MemberState, ...] | None,
) -> list[Document]:
    if before is None or after is None:
        return _moved_as_recorded(each)
    had, has = _owners(before), _owners(after)
    return [
        {
            "topic": where.topic,
            "partition": where.partition,
            "from": had.get(where),
            "to": has.get(where),
            "paused": _paused(each, where, has.get(where)),
        }
        for where in sorted({*had, *has})
        if had.get(where) != has.get(where)
    ]


def _moved_as_recorded(each: _Rebalance) -> list[Document]:
    """`[[topic-partition, from, to], …]`: at most twenty of those that changed their owner."""
    found = []
    listed: Any = each.assigned.details.get("moved")
    for entry in listed if isinstance(listed, list | tuple) else ():
        try:
            text, old, new = entry
            topic, _, number = str(text).rpartition("-")
            where = TopicPartition(topic, int(number))
        except (ValueError, TypeError):
            continue
        found.append(
            {
                "topic": where.topic,
                "partition": where.partition,
                "from": old,
                "to": new,
                "paused": _paused(each, where, new),
            }
        )
    return found


def _owners(members: Iterable[MemberState]) -> dict[TopicPartition, str]:
    return {where: member.member_id for member in members for where in member.assigned}


def _paused(each: _Rebalance, where: TopicPartition, to: str | None) -> int | None:
    """From the beginning of the rebalance until the new owner's first fetch, where both were recorded."""
    if each.begun is None or to is None:
        return None
    for event in each.following:
        if event.kind == "first_fetch" and event.at_ms >= each.begun.at_ms and _fetched(event, where, to):
            return event.at_ms - each.begun.at_ms
    return None


def _fetched(event: Event, where: TopicPartition, member_id: str) -> bool:
    details: Mapping[str, Any] = event.details
    if details.get("member_id") != member_id:
        return False
    if "topic" in details:
        return (details["topic"], details.get("partition")) == where
    return any(entry and entry[0] == str(where) for entry in details.get("partitions") or ())


def _member(member: MemberState) -> Document:
    return {
        "member_id": member.member_id,
        "client_id": member.client_id,
        "instance_id": member.instance_id,
        "partitions": places(member.assigned),
    }


def places(partitions: Iterable[TopicPartition]) -> list[Document]:
    return [{"topic": where.topic, "partition": where.partition} for where in partitions]


def _text(reason: Any, took: int | None, moved: list[Document], details: Mapping[str, Any]) -> str:
    words = f"Rebalanced: {reason}" if reason else "The assignment changed"
    if took is not None:
        words += f"; it took {duration(took)}"
    changed = sum(each["from"] is not None and each["to"] is not None for each in moved)
    given = sum(each["from"] is None for each in moved) or _count(details.get("given")) or 0
    taken = sum(each["to"] is None for each in moved) or _count(details.get("taken")) or 0
    parts = [
        f"{number} {what}"
        for number, what in ((changed, "moved"), (given, "newly assigned"), (taken, "without an owner now"))
        if number
    ]
    words += f"; partitions: {', '.join(parts)}" if parts else "; no partition changed its owner"
    longest = max((each["paused"] for each in moved if each["paused"] is not None), default=None)
    return words + (f"; the longest pause was {duration(longest)}" if longest is not None else "")
