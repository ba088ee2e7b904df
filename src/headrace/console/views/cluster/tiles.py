# SPDX-License-Identifier: Apache-2.0
"""The replicas that are drawn in each node's box: at most 400 over all nodes, whole partitions only.

Topics with a problem come first when not all fit; drawn they are by name, internal ones last.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from headrace.console.state.model import PartitionState, Snapshot, TopicState
from headrace.console.views.view import Document

MOST_TILES = 400


@dataclass(slots=True)
class Tiles:
    shown: list[Document] = field(default_factory=list)
    more: int = 0


def tiles_by_node(snapshot: Snapshot, most: int = MOST_TILES) -> dict[int, Tiles]:
    chosen = _chosen(snapshot, most)
    found: dict[int, Tiles] = defaultdict(Tiles)
    for topic in sorted(snapshot.topics.values(), key=_drawn):
        for index, partition in sorted(topic.partitions.items()):
            for node_id in partition.replicas:
                if (topic.name, index) in chosen:
                    found[node_id].shown.append(_tile(topic, partition, node_id))
                else:
                    found[node_id].more += 1
    return found


def _drawn(topic: TopicState) -> tuple[bool, str]:
    return topic.internal or topic.name.startswith("__"), topic.name


def _chosen(snapshot: Snapshot, most: int) -> set[tuple[str, int]]:
    """The partitions whose replicas all fit."""
    chosen: set[tuple[str, int]] = set()
    room = most
    for topic in sorted(snapshot.topics.values(), key=lambda each: (not _has_problem(each), *_drawn(each))):
        for index, partition in sorted(topic.partitions.items()):
            room -= len(partition.replicas)
            if room < 0:
                return chosen
            chosen.add((topic.name, index))
    return chosen


def _has_problem(topic: TopicState) -> bool:
    return any(each.under_replicated or each.leader is None for each in topic.partitions.values())


def _tile(topic: TopicState, partition: PartitionState, node_id: int) -> Document:
    return {
        "topic": topic.name,
        "partition": partition.partition,
        "role": "leader" if node_id == partition.leader else "replica",
        "in_sync": node_id in partition.isr,
        "offline": node_id in partition.offline,
    }
