# SPDX-License-Identifier: Apache-2.0
"""A group as a `group_snapshot` event of `__headrace_events`: members, their partitions, committed offsets.

Its form is described in docs/events.md. Read next: cluster_timeline.py, console/state/group_snapshots.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.broker.reporting.first_fetches import holdings
from headrace.machines.groups.group import Group
from headrace.types import TopicId, TopicPartition

_OFFSETS_PER_PART = 2_000


def group_snapshot(
    group: Group, topic_names: Mapping[TopicId, str], *, node_id: int, at_ms: int, offsets: bool
) -> list[dict[str, Any]]:
    """The details of its events; several where the group has many committed offsets."""
    described, consumer = group.describe(), group.describe_consumer_group()
    first = {
        "id": f"{node_id}-{at_ms}",
        "node": node_id,
        "type": described.group_type.lower(),
        "state": described.state,
        "epoch": _epoch(group),
        "assignor": consumer.assignor if consumer else described.protocol,
        "members": _members(group, topic_names),
    }
    if not offsets:
        return [{**first, "part": 0, "parts": 1, "offsets": None}]
    committed = sorted((topic, index, value.offset) for topic, index, value in group.offsets.all())
    starts = range(0, len(committed), _OFFSETS_PER_PART) or range(1)
    return [
        {
            **(first if number == 0 else {**first, "members": []}),
            "part": number,
            "parts": len(starts),
            "offsets": _by_topic(committed[start : start + _OFFSETS_PER_PART]),
        }
        for number, start in enumerate(starts)
    ]


def _epoch(group: Group) -> int | None:
    consumer = group.describe_consumer_group()
    if consumer is not None:
        return consumer.group_epoch
    recorded = group.classic.state.recorded
    return recorded.generation if recorded else None


def _members(group: Group, topic_names: Mapping[TopicId, str]) -> list[dict[str, Any]]:
    instances = _instance_ids(group)
    return [
        {
            "member_id": owner.member_id,
            "instance_id": instances.get(owner.member_id),
            "client_id": owner.identity[0],
            "host": owner.identity[1],
            "partitions": _indexes(sorted(partitions)),
        }
        for owner, partitions in holdings(group, topic_names).items()
    ]


def _instance_ids(group: Group) -> dict[str, str | None]:
    if group.consumer_state is not None:
        members = group.consumer_state.members.values()
        return {member.member_id: member.metadata.instance_id for member in members}
    recorded = group.classic.state.recorded
    return {each.member_id: each.group_instance_id for each in recorded.members} if recorded else {}


def _indexes(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    found: dict[str, list[int]] = {}
    for topic, index in partitions:
        found.setdefault(topic, []).append(index)
    return list(found.items())


def _by_topic(committed: Iterable[tuple[str, int, int]]) -> list[tuple[str, list[tuple[int, int]]]]:
    found: dict[str, list[tuple[int, int]]] = {}
    for topic, index, offset in committed:
        found.setdefault(topic, []).append((index, offset))
    return list(found.items())
