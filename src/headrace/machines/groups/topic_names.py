# SPDX-License-Identifier: Apache-2.0
"""Converts partitions between topic ids (KIP-848) and topic names (classic protocol).

Topics that are not in the cluster metadata are left out. Read next: consumer/member.py.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headrace.types import ClusterView, TopicId


def by_topic_name(
    partitions: Mapping[TopicId, Collection[int]], view: ClusterView
) -> Mapping[str, tuple[int, ...]]:
    return {
        view.topic_names[topic_id]: tuple(sorted(numbers))
        for topic_id, numbers in partitions.items()
        if topic_id in view.topic_names
    }


def by_topic_id(
    partitions: Mapping[str, Collection[int]], view: ClusterView
) -> dict[TopicId, frozenset[int]]:
    return {
        view.topics[name].topic_id: frozenset(numbers)
        for name, numbers in partitions.items()
        if numbers and name in view.topics
    }
