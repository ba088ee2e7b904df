# SPDX-License-Identifier: Apache-2.0
"""Sets the committed offsets of a group in two steps: a preview with a token, and the change with the token.

What is applied is what the preview showed. It is refused when the group got members or committed meanwhile.
Blocking: runs in a thread. Read next: reset_request.py, client/tools/reset.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.tools.groups import GroupDescription, Groups
from headrace.client.tools.reset import OffsetChange, Offsets, plan_changes
from headrace.console.actions.reset_request import ResetRequest, reset_command
from headrace.console.views.view import Document, ViewError
from headrace.types import TopicPartition

_MEMBERS_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedReset:
    group: str
    changes: tuple[OffsetChange, ...]


def plan_reset(cluster: Cluster, request: ResetRequest) -> tuple[PlannedReset, Document]:
    """The plan and its document, without a token."""
    groups = Groups(cluster)
    group = groups.find_group(request.group)
    committed = groups.committed(request.group) if group is not None else {}
    partitions = _scope(groups, request, committed)
    if not partitions:
        raise _nothing(request.group, group)
    known = groups.offsets_for_reset(request.strategy, partitions, committed)
    changes = plan_changes(request.strategy, partitions, known)
    missing = sorted(partitions - {change.partition for change in changes})
    if missing and not changes:
        raise ClientError(f"partition {missing[0].partition} of topic {missing[0].topic!r} does not exist")
    plan = PlannedReset(group=request.group, changes=tuple(changes))
    document = {
        "group": request.group,
        "state": None if group is None else group.state,
        **_summary(changes, known),
        "missing": [{"topic": where.topic, "partition": where.partition} for where in missing],
        "blocked": None if group is None or not group.active else _blocked(group),
        "commands": [{"label": "Do the same", "command": reset_command(request, changes, cluster)}],
    }
    return plan, document


def apply_reset(cluster: Cluster, plan: PlannedReset) -> Document:
    """ViewError (409) when the preview does not hold any more."""
    groups = Groups(cluster)
    group = groups.find_group(plan.group)
    if group is not None and group.active:
        blocked = _blocked(group)
        raise ViewError(blocked["text"], next_step=blocked["next"], status=409)
    _check_unchanged(plan, groups.committed(plan.group) if group is not None else {})
    groups.alter_offsets(plan.group, {change.partition: change.new for change in plan.changes})
    return {
        "group": plan.group,
        "applied": len(plan.changes),
        "offsets": [_change(each) for each in plan.changes],
    }


def _scope(
    groups: Groups, request: ResetRequest, committed: Mapping[TopicPartition, int]
) -> set[TopicPartition]:
    if request.strategy.from_file is not None:
        return set(request.strategy.from_file)
    if request.topics is None:
        return set(committed)
    chosen: set[TopicPartition] = set()
    for topic, wanted in request.topics.items():
        there = [partition.index for partition in groups.describe_topic(topic).partitions]
        unknown = sorted(set(wanted or ()) - set(there))
        if unknown:
            raise ViewError(
                f"topic {topic!r} has no partition {unknown[0]}",
                next_step=f"choose from 0 to {len(there) - 1}",
                status=400,
            )
        chosen |= {TopicPartition(topic, each) for each in (there if wanted is None else wanted)}
    return chosen


def _summary(changes: Sequence[OffsetChange], known: Offsets) -> Document:
    documents = [
        {
            **_change(change),
            "start": known.starts[change.partition],
            "end": known.ends[change.partition],
            "outside": change.moved_to_the_log,
        }
        for change in changes
    ]
    return {
        "changes": documents,
        "read_again": sum(each["read_again"] or 0 for each in documents),
        "skipped": sum(each["skipped"] or 0 for each in documents),
        "new": sum(each["from"] is None for each in documents),
    }


def _change(change: OffsetChange) -> dict[str, Any]:
    """Counts are of offsets: compaction and transactions leave offsets without a record."""
    moved = None if change.old is None else change.new - change.old
    return {
        "topic": change.partition.topic,
        "partition": change.partition.partition,
        "from": change.old,
        "to": change.new,
        "wanted": change.wanted,
        "read_again": None if moved is None else max(0, -moved),
        "skipped": None if moved is None else max(0, moved),
    }


def _blocked(group: GroupDescription) -> dict[str, Any]:
    names = [member.client_id or member.member_id for member in group.members]
    more = f" and {len(names) - _MEMBERS_NAMED} more" if len(names) > _MEMBERS_NAMED else ""
    who = f": {', '.join(names[:_MEMBERS_NAMED])}{more}" if names else ""
    return {
        "text": f"group {group.group_id!r} is in use (state {group.state}, {len(names)} "
        f"member{'' if len(names) == 1 else 's'}{who})",
        "next": "stop its consumers, wait until the group is Empty, then try again",
        "members": [
            {"member_id": member.member_id, "client_id": member.client_id, "host": member.host}
            for member in group.members
        ],
    }


def _check_unchanged(plan: PlannedReset, committed: Mapping[TopicPartition, int]) -> None:
    for change in plan.changes:
        now = committed.get(change.partition)
        if now != change.old:
            where = f"partition {change.partition.partition} of topic {change.partition.topic!r}"
            raise ViewError(
                f"the group has committed since the preview: {where} was at {_shown(change.old)}, "
                f"now it is at {_shown(now)}",
                next_step="preview again",
                status=409,
            )


def _shown(offset: int | None) -> str:
    return "no offset" if offset is None else f"offset {offset}"


def _nothing(name: str, group: GroupDescription | None) -> ViewError:
    what = f"group {name!r} " + ("does not exist" if group is None else "has no committed offsets")
    return ViewError(what, next_step="choose the topics that it is to read", status=404)
