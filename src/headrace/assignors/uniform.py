# SPDX-License-Identifier: Apache-2.0
"""Uniform, KIP-848's default: balanced, and members keep the partitions of their last target.

Unlike sticky, `owned` is the coordinator's own last target, so claims cannot conflict. Rack-unaware.
Read next: balance.py; machines/groups/consumer/target.py, its caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.assignors.balance import balance, balance_last_target
from headrace.assignors.subscriptions import Assignment, Subscriber, T, in_kafka_order

NAME = "uniform"


def assign(subscribers: Iterable[Subscriber[T]], partition_counts: Mapping[T, int]) -> Assignment[T]:
    members = in_kafka_order(subscribers)
    if (quickly := balance_last_target(members, partition_counts)) is not None:
        return quickly
    owners = {
        (topic, partition): member.member_id
        for member in members
        for topic, partitions in member.owned.items()
        for partition in partitions
    }
    return balance(members, partition_counts, owners)
