# SPDX-License-Identifier: Apache-2.0
"""Partitions moved by a rebalance, for group events (D21). Only for the protocol type `consumer`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from headrace.wire.coordinator.consumer_protocol import PROTOCOL_TYPE, assigned_partitions
from headrace.wire.coordinator.group_records import GroupMetadata

MOVES_NAMED = 20
"""Maximum number of moves that are listed; their count is always reported."""


def describe_moves(before: GroupMetadata | None, after: GroupMetadata | None) -> dict[str, Any]:
    """`moved`: partitions that changed hands, as (partition, from, to); `given` and `taken`: those with no
    owner before or after, which is how a cooperative rebalance moves them in two steps.
    """
    if after is None or after.protocol_type != PROTOCOL_TYPE:
        return {}
    assigned = {member.member_id: member.assignment for member in before.members} if before else {}
    same = {each.member_id for each in after.members if assigned.get(each.member_id) == each.assignment}
    return moves_between(owners(before, same), owners(after, same))


def moves_between(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, Any]:
    """As `describe_moves`, from owners by "topic-partition"."""
    moved = [(name, old[name], owner) for name, owner in sorted(new.items()) if old.get(name, owner) != owner]
    return {
        "moved_count": len(moved),
        "moved": moved[:MOVES_NAMED],
        "given": len(new.keys() - old.keys()),
        "taken": len(old.keys() - new.keys()),
    }


def owners(group: GroupMetadata | None, without: Collection[str] = ()) -> dict[str, str]:
    """Member id by "topic-partition"; of all members but these."""
    if group is None:
        return {}
    return {
        f"{topic}-{partition}": member.member_id
        for member in group.members
        if member.member_id not in without
        for topic, partitions in assigned_partitions(member.assignment).items()
        for partition in partitions
    }
