# SPDX-License-Identifier: Apache-2.0
"""Range: each topic's partitions in runs over its subscribers; topics of one size are split alike.

Equal to Kafka's range assignors of client and broker without rack awareness.
Read next: subscriptions.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.assignors.subscriptions import (
    Assignment,
    Subscriber,
    T,
    in_kafka_order,
    subscribers_by_topic,
)

NAME = "range"


def assign(subscribers: Iterable[Subscriber[T]], partition_counts: Mapping[T, int]) -> Assignment[T]:
    members = in_kafka_order(subscribers)
    assignment: Assignment[T] = {member.member_id: {} for member in members}
    for topic, topic_members in subscribers_by_topic(members, partition_counts).items():
        share, extra = divmod(partition_counts[topic], len(topic_members))
        start = 0
        for position, member in enumerate(topic_members):
            end = start + share + (position < extra)
            if start < end:
                assignment[member.member_id][topic] = list(range(start, end))
            start = end
    return assignment
