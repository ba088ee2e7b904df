# SPDX-License-Identifier: Apache-2.0
"""What one consumer more would change: the group's own assignor, run with one member more. Pure.

Read next: headrace/assignors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from headrace.assignors import range as range_assignor
from headrace.assignors import round_robin, sticky, uniform
from headrace.assignors.subscriptions import Assignment, Subscriber
from headrace.console.state.model import GroupState, MemberState, Snapshot
from headrace.console.views.groups.rebalances import places
from headrace.console.views.view import Document
from headrace.types import TopicPartition

NEW_MEMBER = "~ one more"
"""It comes after those that are there, as ids of members begin with a client id."""
_MOST_PARTITIONS = 5_000
Assign = Callable[[Iterable[Subscriber[str]], Mapping[str, int]], Assignment[str]]

_ASSIGNORS: Mapping[str, Assign] = {
    range_assignor.NAME: range_assignor.assign,
    round_robin.NAME: round_robin.assign,
    sticky.NAME: sticky.assign,
    sticky.COOPERATIVE_NAME: sticky.assign,
    uniform.NAME: uniform.assign,
}


def what_if(snapshot: Snapshot, group: GroupState) -> Document | None:
    """None where the group has no members, or its assignor is not one of Kafka's."""
    assign = _ASSIGNORS.get(group.assignor)
    counts = _partition_counts(snapshot, group)
    if assign is None or not group.members or not counts or sum(counts.values()) > _MOST_PARTITIONS:
        return None
    now = [_subscriber(member, counts) for member in group.members]
    new: Subscriber[str] = Subscriber(member_id=NEW_MEMBER, topics=list(counts))
    after = _flat(assign([*now, new], counts))
    before = {member.member_id: set(member.assigned) for member in group.members}
    return _document(before, after, counts)


def _partition_counts(snapshot: Snapshot, group: GroupState) -> dict[str, int]:
    """Of the topics that the members read or subscribe to."""
    names = {where.topic for member in group.members for where in member.assigned}
    names.update(name for member in group.members for name in member.subscribed)
    return {name: len(snapshot.topics[name].partitions) for name in sorted(names) if name in snapshot.topics}


def _subscriber(member: MemberState, counts: Mapping[str, int]) -> Subscriber[str]:
    owned: dict[str, list[int]] = {}
    for where in member.assigned:
        owned.setdefault(where.topic, []).append(where.partition)
    return Subscriber(
        member_id=member.member_id,
        topics=[name for name in member.subscribed if name in counts] or list(counts),
        instance_id=member.instance_id,
        owned=owned,
        generation=1,
    )


def _flat(assignment: Assignment[str]) -> dict[str, set[TopicPartition]]:
    return {
        member_id: {TopicPartition(topic, index) for topic, indexes in topics.items() for index in indexes}
        for member_id, topics in assignment.items()
    }


def _document(
    before: Mapping[str, set[TopicPartition]],
    after: Mapping[str, set[TopicPartition]],
    counts: Mapping[str, int],
) -> Document:
    had = {where: member for member, owned in before.items() for where in owned}
    has = {where: member for member, owned in after.items() for where in owned}
    moved = [where for where in sorted(has) if where in had and had[where] != has[where]]
    idle = sum(not owned for owned in after.values())
    return {
        "text": _text(len(before), len(after.get(NEW_MEMBER, ())), len(moved), idle, sum(counts.values())),
        "members_now": len(before),
        "members_then": len(after),
        "idle": idle,
        "moves": [
            {"topic": where.topic, "partition": where.partition, "from": had[where], "to": has[where]}
            for where in moved
        ],
        "after": [
            {"member_id": member_id, "partitions": places(sorted(owned))}
            for member_id, owned in after.items()
        ],
    }


def _text(members: int, gets: int, moved: int, idle: int, partitions: int) -> str:
    if not gets:
        return (
            f"One consumer more would get nothing: {partitions} partitions are not enough for {members + 1} "
            "consumers. Add partitions, or make a consumer faster."
        )
    words = f"One consumer more would read {gets} of {partitions} partitions; {moved} would move"
    return words + (f", and {idle} consumers would be idle." if idle else ".")
