"""Partitions by topic id, as KIP-848 groups keep them, and by topic name, as the classic protocol has them.

Topics that the picture of the cluster does not have are left out, both ways. Read next: consumer_member.py.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headrace.machines.consumer_member import Partitions
from headrace.types import ClusterView, TopicId


def by_topic_name(
    partitions: Mapping[TopicId, Collection[int]], view: ClusterView
) -> Mapping[str, tuple[int, ...]]:
    return {
        view.topic_names[topic_id]: tuple(sorted(numbers))
        for topic_id, numbers in partitions.items()
        if topic_id in view.topic_names
    }


def by_topic_id(partitions: Mapping[str, Collection[int]], view: ClusterView) -> Partitions:
    return {
        view.topics[name].topic_id: frozenset(numbers)
        for name, numbers in partitions.items()
        if numbers and name in view.topics
    }
