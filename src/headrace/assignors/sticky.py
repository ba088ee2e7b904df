# SPDX-License-Identifier: Apache-2.0
"""Sticky and cooperative sticky: balanced, and members keep their partitions.

Members report what they own, so two may claim one partition: the newer generation wins, and two equal claims
are both ignored. Cooperative: a moved partition is not assigned until its owner has revoked it.
Read next: balance.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.assignors.balance import balance
from headrace.assignors.subscriptions import Assignment, Subscriber, T, in_kafka_order

NAME = "sticky"
COOPERATIVE_NAME = "cooperative-sticky"


def assign(subscribers: Iterable[Subscriber[T]], partition_counts: Mapping[T, int]) -> Assignment[T]:
    members = in_kafka_order(subscribers)
    return balance(members, partition_counts, _owners(members))


def assign_cooperatively(
    subscribers: Iterable[Subscriber[T]], partition_counts: Mapping[T, int]
) -> Assignment[T]:
    """The assignment without moved partitions; the next rebalance assigns those."""
    members = list(subscribers)
    assignment = assign(members, partition_counts)
    holders: dict[tuple[T, int], set[str]] = {}
    for member in members:
        for topic, partitions in member.owned.items():
            for partition in partitions:
                holders.setdefault((topic, partition), set()).add(member.member_id)
    return {
        member_id: {
            topic: free
            for topic, partitions in topics.items()
            if (free := [p for p in partitions if member_id in holders.get((topic, p), (member_id,))])
        }
        for member_id, topics in assignment.items()
    }


def _owners(members: Iterable[Subscriber[T]]) -> dict[tuple[T, int], str]:
    claims: dict[tuple[T, int], tuple[int, str | None]] = {}
    for member in members:
        for topic, partitions in member.owned.items():
            for partition in partitions:
                generation, _owner = claims.get((topic, partition), (member.generation - 1, None))
                if member.generation > generation:
                    claims[topic, partition] = (member.generation, member.member_id)
                elif member.generation == generation:
                    claims[topic, partition] = (generation, None)
    return {partition: owner for partition, (_, owner) in claims.items() if owner is not None}
