# SPDX-License-Identifier: Apache-2.0
"""`group_snapshot` records: a group's members and committed offsets at one moment. Pure.

Used live and by replay.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from headrace.console.state.group_folding import note_assignment
from headrace.console.state.model import Event, GroupState, MemberState, ProgressState, Snapshot
from headrace.types import TopicPartition


def note_recorded_assignment(before: Snapshot, event: Event) -> Snapshot:
    """The assignment that a record of one part has, as of then; the group's present members stay."""
    try:
        members = _members([event.details])
    except (KeyError, TypeError, ValueError):
        return before
    group_id = str(event.group)
    group = before.groups.get(group_id)
    then = replace(group or GroupState(group_id=group_id), members=members)
    noted = note_assignment(replace(before, groups={**before.groups, group_id: then}), group_id, event.at_ms)
    return replace(before, assignments=noted.assignments)


def with_group_snapshot(before: Snapshot, group_id: str, parts: Sequence[Event]) -> Snapshot:
    """The group as all parts of its record describe it. Raises what a malformed one does."""
    first: Mapping[str, Any] = parts[0].details
    old = before.groups.get(group_id)
    offsets = _offsets([part.details for part in parts])
    progress = old.progress if old else {}
    if offsets is not None:
        known = progress
        progress = {
            where: replace(known.get(where) or ProgressState(), committed=offset)
            for where, offset in offsets.items()
        }
    members = _members([part.details for part in parts])
    if old is not None:
        times = {each.member_id: (each.joined_ms, each.last_commit_ms) for each in old.members}
        members = tuple(
            replace(each, joined_ms=times[each.member_id][0], last_commit_ms=times[each.member_id][1])
            if each.member_id in times
            else each
            for each in members
        )
    group = GroupState(
        group_id=group_id,
        group_type=str(first.get("type") or "classic"),
        state=str(first.get("state") or ""),
        assignor=str(first.get("assignor") or ""),
        epoch=None if first.get("epoch") is None else int(first["epoch"]),
        coordinator=None if first.get("node") is None else int(first["node"]),
        members=members,
        progress=progress,
    )
    return replace(before, groups=dict(sorted({**before.groups, group_id: group}.items())))


def _members(parts: Sequence[Mapping[str, Any]]) -> tuple[MemberState, ...]:
    found: dict[str, MemberState] = {}
    for each in (member for part in parts for member in part["members"]):
        member_id = str(each["member_id"])
        shares = each["partitions"]
        more = [TopicPartition(str(topic), int(index)) for topic, indexes in shares for index in indexes]
        known = found.get(member_id) or MemberState(
            member_id=member_id,
            instance_id=each.get("instance_id"),
            client_id=str(each.get("client_id") or ""),
            host=str(each.get("host") or "").removeprefix("/"),
        )
        found[member_id] = replace(known, assigned=tuple(sorted({*known.assigned, *more})))
    return tuple(
        sorted(found.values(), key=lambda each: (each.client_id, each.instance_id or each.member_id))
    )


def _offsets(parts: Sequence[Mapping[str, Any]]) -> dict[TopicPartition, int] | None:
    if any(part.get("offsets") is None for part in parts):
        return None
    return {
        TopicPartition(str(topic), int(index)): int(offset)
        for part in parts
        for topic, partitions in part["offsets"]
        for index, offset in partitions
    }
