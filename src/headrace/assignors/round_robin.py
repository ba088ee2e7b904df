# SPDX-License-Identifier: Apache-2.0
"""Round robin: partitions are assigned to subscribed members in turn.

Equal to Kafka's client assignor `roundrobin`. Read next: subscriptions.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import cycle

from headrace.assignors.subscriptions import (
    Assignment,
    Subscriber,
    T,
    as_assignment,
    in_kafka_order,
    subscribers_by_topic,
)

NAME = "roundrobin"


def assign(subscribers: Iterable[Subscriber[T]], partition_counts: Mapping[T, int]) -> Assignment[T]:
    members = in_kafka_order(subscribers)
    dealt: dict[str, list[tuple[T, int]]] = {member.member_id: [] for member in members}
    turn = cycle(members)
    for topic in subscribers_by_topic(members, partition_counts):
        for partition in range(partition_counts[topic]):
            member = next(member for member in turn if topic in member.topics)
            dealt[member.member_id].append((topic, partition))
    return as_assignment(members, dealt)
