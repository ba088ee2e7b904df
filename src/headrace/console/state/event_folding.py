# SPDX-License-Identifier: Apache-2.0
"""Recorded events folded into a snapshot: the same for a live cluster and for its past. Pure.

Details of an event are what a broker wrote; one that lacks a field leaves the snapshot as it was.
Read next: replay.py (whole snapshots in parts), differences.py (events of clusters that record none).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from headrace.console.state.folding import find_partition, node_down
from headrace.console.state.model import (
    Event,
    GroupState,
    MemberState,
    NodeState,
    PartitionState,
    Snapshot,
    TopicState,
)
from headrace.console.state.recorded import CLUSTER_KINDS
from headrace.types import INTERNAL_TOPICS, TopicPartition

MOST_EVENTS = 500
MOST_GROUP_EVENTS = 400
_MOST_GROUPS_WITH_EVENTS = 2_000
_SAME_MS = 30_000
"""A difference that was noticed, and the event that is recorded about it, are no further apart."""


def remember(before: Snapshot, event: Event) -> Snapshot:
    """Adds the event to those that pages list. A recorded one replaces the difference noticed before it."""
    if event.group is not None:
        seen = before.group_events.get(event.group, ())
        if not seen and len(before.group_events) >= _MOST_GROUPS_WITH_EVENTS:
            return before
        kept = (*seen[-MOST_GROUP_EVENTS + 1 :], event)
        return replace(before, group_events={**before.group_events, event.group: kept})
    if event.kind not in CLUSTER_KINDS:
        return before
    others = tuple(each for each in before.events[-MOST_EVENTS + 1 :] if not _is_same(each, event))
    return replace(before, events=(*others, event))


def _is_same(noticed: Event, recorded: Event) -> bool:
    return (
        bool(noticed.details.get("noticed"))
        and noticed.kind == recorded.kind
        and (noticed.node, noticed.topic, noticed.partition)
        == (recorded.node, recorded.topic, recorded.partition)
        and abs(noticed.at_ms - recorded.at_ms) < _SAME_MS
    )


def apply(before: Snapshot, event: Event) -> Snapshot:
    """The state after the event."""
    fold = _FOLDS.get(event.kind)
    if fold is None:
        return before
    try:
        return fold(before, event)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        return before  # a newer release's form


# -- partitions --------------------------------------------------------------------------------------------


def _leader(before: Snapshot, event: Event) -> Snapshot:
    details: Mapping[str, Any] = event.details
    where = TopicPartition(str(event.topic), int(event.partition or 0))
    old = find_partition(before, where)
    epoch = int(details["epoch"])
    if old is None or (old.leader_epoch is not None and old.leader_epoch > epoch):
        return before
    leader = int(details["leader"])
    new = replace(
        old,
        leader=leader if leader >= 0 else None,
        leader_epoch=epoch,
        isr=tuple(map(int, details["isr"])),
        replicas=tuple(map(int, details["replicas"])),
    )
    return before if new == old else _with_partition(before, where, new)


def _offline(before: Snapshot, event: Event) -> Snapshot:
    where = TopicPartition(str(event.topic), int(event.partition or 0))
    old, node = find_partition(before, where), int(event.details["node"])  # type: ignore[call-overload]
    if old is None:
        return before
    others = tuple(each for each in old.offline if each != node)
    offline = (*others, node) if event.kind == "offline" else others
    return _with_partition(before, where, replace(old, offline=offline))


def _with_partition(before: Snapshot, where: TopicPartition, new: PartitionState) -> Snapshot:
    topic = before.topics[where.topic]
    topic = replace(topic, partitions={**topic.partitions, where.partition: new})
    return replace(before, topics={**before.topics, where.topic: topic})


def log_ends_of(event: Event) -> dict[TopicPartition, tuple[int, int]]:
    """Start and end of each partition that a `log_ends` event has."""
    ends: Any = event.details.get("ends") or ()
    try:
        return {
            TopicPartition(str(topic), int(index)): (int(start), int(end))
            for topic, partitions in ends
            for index, start, end in partitions
        }
    except (ValueError, TypeError):
        return {}


# -- nodes and topics --------------------------------------------------------------------------------------


def _node_up(before: Snapshot, event: Event) -> Snapshot:
    details: Mapping[str, Any] = event.details
    node_id = int(details["node"])
    old = before.nodes.get(node_id)
    if old is None:
        old = NodeState(node_id=node_id, host="", port=0)
    host, port = details.get("host") or old.host, details.get("port") or old.port
    new = replace(old, host=str(host), port=int(port), up=True, since_ms=event.at_ms, problem=None)
    return _with_node(before, new)


def _node_down(before: Snapshot, event: Event) -> Snapshot:
    old = before.nodes.get(int(event.details["node"]))  # type: ignore[call-overload]
    return before if old is None else _with_node(before, node_down(old, event.at_ms))


def _disk(before: Snapshot, event: Event) -> Snapshot:
    old = before.nodes.get(int(event.details["node"]))  # type: ignore[call-overload]
    if old is None:
        return before
    problem = f"its disk is full: {event.details.get('reason')}" if event.kind == "disk_full" else None
    return _with_node(before, replace(old, disk_problem=problem))


def _with_node(before: Snapshot, node: NodeState) -> Snapshot:
    return replace(before, nodes=dict(sorted({**before.nodes, node.node_id: node}.items())))


def _controller(before: Snapshot, event: Event) -> Snapshot:
    return replace(before, controller=int(event.details["node"]))  # type: ignore[call-overload]


def _topic_created(before: Snapshot, event: Event) -> Snapshot:
    details: Mapping[str, Any] = event.details
    name = str(event.topic)
    old = before.topics.get(name)
    if old is None or old.topic_id != details["topic_id"]:
        old = TopicState(name=name, topic_id=str(details["topic_id"]), internal=name in INTERNAL_TOPICS)
    partitions = {**old.partitions, **read_partitions(int(details["first"]), details["partitions"], old)}
    topics = {**before.topics, name: replace(old, partitions=partitions)}
    return replace(before, topics=dict(sorted(topics.items())))


def _topic_deleted(before: Snapshot, event: Event) -> Snapshot:
    old = before.topics.get(str(event.topic))
    if old is None or old.topic_id not in (None, event.details.get("topic_id")):
        return before
    return replace(before, topics={name: topic for name, topic in before.topics.items() if topic is not old})


def read_partitions(first: int, partitions: Any, old: TopicState | None) -> dict[int, PartitionState]:
    """`[leader, epoch, [replicas], [isr]]` of partitions from `first` on; offsets as they were known."""
    found = {}
    for index, (leader, epoch, replicas, isr) in enumerate(partitions, start=first):
        known = (old.partitions.get(index) if old else None) or PartitionState(partition=index, leader=None)
        found[index] = replace(
            known,
            leader=int(leader) if int(leader) >= 0 else None,
            leader_epoch=int(epoch),
            replicas=tuple(map(int, replicas)),
            isr=tuple(map(int, isr)),
        )
    return found


# -- groups ------------------------------------------------------------------------------------------------


def _joined(before: Snapshot, event: Event) -> Snapshot:
    details: Mapping[str, Any] = event.details
    group = before.groups.get(str(event.group)) or GroupState(group_id=str(event.group))
    gone = {details["member_id"], details.get("replaces")}
    member = MemberState(
        member_id=str(details["member_id"]),
        instance_id=details.get("instance_id"),
        client_id=str(details.get("client_id") or ""),
        host=str(details.get("client_host") or "").removeprefix("/"),
        joined_ms=event.at_ms,
    )
    known = next((each for each in group.members if each.member_id == member.member_id), None)
    if known is not None:
        member = replace(known, joined_ms=event.at_ms)
    members = (*(each for each in group.members if each.member_id not in gone), member)
    return _with_group(before, replace(group, members=members))


def _left(before: Snapshot, event: Event) -> Snapshot:
    group = before.groups.get(str(event.group))
    if group is None:
        return before
    gone = event.details["member_id"]
    return _with_group(
        before, replace(group, members=tuple(each for each in group.members if each.member_id != gone))
    )


def _emptied(before: Snapshot, event: Event) -> Snapshot:
    group = before.groups.get(str(event.group))
    if group is None:
        return before
    if event.kind == "deleted":
        return replace(
            before, groups={name: each for name, each in before.groups.items() if each is not group}
        )
    return _with_group(before, replace(group, members=(), state="Empty"))


def _rebalance(before: Snapshot, event: Event) -> Snapshot:
    group = before.groups.get(str(event.group)) or GroupState(group_id=str(event.group))
    epoch = event.details.get("epoch", event.details.get("generation"))
    if epoch is None:
        return _with_group(before, group)
    return _with_group(before, replace(group, epoch=int(epoch)))  # type: ignore[call-overload]


def _assigned(before: Snapshot, event: Event) -> Snapshot:
    group = before.groups.get(str(event.group))
    return before if group is None else _with_group(before, replace(group, state="Stable"))


def _committed(before: Snapshot, event: Event) -> Snapshot:
    """The time of the member's commit. The offsets are `committed_offsets`, which need rates."""
    group = before.groups.get(str(event.group))
    if group is None:
        return before
    member_id = event.details["member_id"]
    members = tuple(
        replace(each, last_commit_ms=event.at_ms) if each.member_id == member_id else each
        for each in group.members
    )
    return _with_group(before, replace(group, members=members))


def committed_offsets(event: Event) -> dict[TopicPartition, int]:
    offsets: Any = event.details.get("offsets") or ()
    try:
        return {TopicPartition(str(topic), int(index)): int(offset) for topic, index, offset in offsets}
    except (ValueError, TypeError):
        return {}


def _with_group(before: Snapshot, group: GroupState) -> Snapshot:
    groups = {**before.groups, group.group_id: group}
    if group.group_id not in before.groups:
        groups = dict(sorted(groups.items()))
    return replace(before, groups=groups)


_FOLDS: Mapping[str, Callable[[Snapshot, Event], Snapshot]] = {
    "leader": _leader,
    "isr": _leader,
    "offline": _offline,
    "online": _offline,
    "node_up": _node_up,
    "node_down": _node_down,
    "disk_full": _disk,
    "disk_room": _disk,
    "controller": _controller,
    "topic_created": _topic_created,
    "partitions_added": _topic_created,
    "topic_deleted": _topic_deleted,
    "join": _joined,
    "rejoin": _joined,
    "leave": _left,
    "empty": _emptied,
    "deleted": _emptied,
    "rebalance": _rebalance,
    "assigned": _assigned,
    "commit": _committed,
}
