# SPDX-License-Identifier: Apache-2.0
"""Uniform, KIP-848's default: balanced, and members keep the partitions of their last target.

Unlike sticky, `owned` is the coordinator's own last target, so claims cannot conflict. Rack-unaware.
Read next: balance.py; machines/groups/consumer/target.py, its caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headrace.assignors.balance import balance, changed_shares
from headrace.assignors.subscriptions import Assignment, Subscriber, T, in_kafka_order

NAME = "uniform"


def assign(subscribers: Iterable[Subscriber[T]], partition_counts: Mapping[T, int]) -> Assignment[T]:
    members = in_kafka_order(subscribers)
    changed = _reassign(members, partition_counts)
    return {
        member.member_id: changed[member.member_id]
        if member.member_id in changed
        else {topic: sorted(parts) for topic, parts in sorted(member.owned.items()) if parts}
        for member in members
    }


def reassign(subscribers: Iterable[Subscriber[T]], partition_counts: Mapping[T, int]) -> Assignment[T]:
    """As `assign`, without members that keep what they own. Those who own nothing are always named."""
    return _reassign(in_kafka_order(subscribers), partition_counts)


def _reassign(members: Sequence[Subscriber[T]], partition_counts: Mapping[T, int]) -> Assignment[T]:
    if (changed := changed_shares(members, partition_counts)) is not None:
        return changed
    owners = {
        (topic, partition): member.member_id
        for member in members
        for topic, partitions in member.owned.items()
        for partition in partitions
    }
    return balance(members, partition_counts, owners)
