# SPDX-License-Identifier: Apache-2.0
"""Events of a cluster that records none: what differs between two snapshots, in the form of recorded events.

They have `noticed` in their details: the time is when it was seen, not when it happened. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headrace.console.state.model import Event, GroupState, PartitionState, Snapshot, TopicState

_NOTICED = {"noticed": True}


def cluster_differences(before: Snapshot, after: Snapshot) -> list[Event]:
    """Nodes, topics, leaders and in-sync replicas. None at the first look, when all is new."""
    if not before.nodes:
        return []
    at = after.at_ms
    found = [*_nodes(before, after, at)]
    gone = before.topics.keys() - after.topics.keys()
    found += [Event(at_ms=at, kind="topic_deleted", topic=name, details=_NOTICED) for name in gone]
    for name, topic in after.topics.items():
        old = before.topics.get(name)
        if old is not topic:
            found += _topic(old, topic, at)
    return found


def _nodes(before: Snapshot, after: Snapshot, at: int) -> Iterator[Event]:
    for node_id, node in after.nodes.items():
        old = before.nodes.get(node_id)
        was_up = old is not None and old.up
        if node.up != was_up:
            kind = "node_up" if node.up else "node_down"
            yield Event(at_ms=at, kind=kind, node=node_id, details={**_NOTICED, "node": node_id})
    if after.controller is not None and before.controller not in (None, after.controller):
        details = {**_NOTICED, "node": after.controller, "node_before": before.controller}
        yield Event(at_ms=at, kind="controller", node=after.controller, details=details)


def _topic(old: TopicState | None, new: TopicState, at: int) -> Iterator[Event]:
    if old is None:
        details = {**_NOTICED, "count": len(new.partitions)}
        yield Event(at_ms=at, kind="topic_created", topic=new.name, details=details)
        return
    if len(new.partitions) > len(old.partitions):
        details = {**_NOTICED, "count": len(new.partitions)}
        yield Event(at_ms=at, kind="partitions_added", topic=new.name, details=details)
    for index, partition in new.partitions.items():
        known = old.partitions.get(index)
        if known is None or known is partition:
            continue
        kind = "leader" if known.leader != partition.leader else "isr"
        if kind == "leader" or known.isr != partition.isr:
            details = {**_NOTICED, **_change(known, partition)}
            yield Event(at_ms=at, kind=kind, topic=new.name, partition=index, details=details)


def _change(old: PartitionState, new: PartitionState) -> dict[str, Any]:
    return {
        "leader": -1 if new.leader is None else new.leader,
        "leader_before": -1 if old.leader is None else old.leader,
        "epoch": new.leader_epoch,
        "epoch_before": old.leader_epoch,
        "isr": list(new.isr),
        "isr_before": list(old.isr),
        "replicas": list(new.replicas),
    }


def group_differences(before: GroupState | None, after: GroupState, at: int) -> list[Event]:
    """Members that came and went, and who reads what now. None at the first look."""
    if before is None:
        return []
    found: list[tuple[str, Mapping[str, Any]]] = []
    old = {member.member_id: member for member in before.members}
    new = {member.member_id: member for member in after.members}
    found += [
        ("leave", {"member_id": gone, "client_id": old[gone].client_id}) for gone in old.keys() - new.keys()
    ]
    found += [
        (
            "join",
            {
                "member_id": member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.host,
            },
        )
        for member_id, member in new.items()
        if member_id not in old
    ]
    if old and not new:
        found.append(("empty", {}))
    had = {where: each.member_id for each in before.members for where in each.assigned}
    has = {where: each.member_id for each in after.members for where in each.assigned}
    if had != has and has:
        moved = [
            (str(where), had[where], owner) for where, owner in has.items() if had.get(where, owner) != owner
        ]
        given, taken = len(has.keys() - had.keys()), len(had.keys() - has.keys())
        counts = {"members": len(new), "moved_count": len(moved), "given": given, "taken": taken}
        found.append(("assigned", {**counts, "moved": moved[:20]}))
    return [
        Event(at_ms=at, kind=kind, group=after.group_id, details={**_NOTICED, **details})
        for kind, details in found
    ]
