# SPDX-License-Identifier: Apache-2.0
"""Replica counts per node and names of all topics, updated with each change of the view.

Pure. Going through 20,000 topics for each new one would be quadratic.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from headrace.broker.controller.placement import Load
from headrace.types import ClusterView, Topic


class TopicIndex:
    def __init__(self, view: ClusterView) -> None:
        self._spellings: defaultdict[str, set[str]] = defaultdict(set)
        self._load = Load()
        self._leaders: dict[bool, Counter[int]] = {False: Counter(), True: Counter()}
        for topic in view.topics.values():
            self._count(topic, 1)

    def load(self) -> Load:
        """A copy, to plan with."""
        return self._load.copy()

    def replica_holders(self) -> set[int]:
        return {node_id for node_id, count in self._load.replicas.items() if count}

    def leaders(self, *, internal: bool) -> Counter[int]:
        """How many partitions each node leads, of internal topics or of all others; a copy.

        Internal topics are counted apart, so that leaders of other topics do not depend on existing groups.
        """
        return Counter(self._leaders[internal])

    def update(self, old: ClusterView, new: ClusterView, changed: Iterable[str]) -> None:
        for name in changed:
            for view, step in ((old, -1), (new, 1)):
                topic = view.topics.get(name)
                if topic is not None:
                    self._count(topic, step)

    def collides_with(self, name: str) -> str | None:
        """A topic whose name differs only in dots and underscores: metrics could not tell them apart."""
        others = self._spellings.get(_unified(name), set()) - {name}
        return min(others, default=None)

    def _count(self, topic: Topic, step: int) -> None:
        for partition in topic.partitions:
            self._load.count(partition.replicas, partition.leader, step)
            self._leaders[topic.internal][partition.leader] += step
        unified = _unified(topic.name)
        if step > 0:
            self._spellings[unified].add(topic.name)
            return
        self._spellings[unified].discard(topic.name)
        if not self._spellings[unified]:
            del self._spellings[unified]


def _unified(name: str) -> str:
    return name.replace(".", "_")
