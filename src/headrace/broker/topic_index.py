"""What the controller must know about all topics at once, kept up to date change by change.

Pure. With 20,000 topics, looking through all of them for each new one would be quadratic.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from headrace.broker.placement import Load
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

    def leaders(self, *, internal: bool) -> Counter[int]:
        """How many partitions each node leads, of internal topics or of all others; a copy.

        Apart, so that the leader of a topic does not depend on which groups there happen to be.
        """
        return Counter(self._leaders[internal])

    def follow(self, old: ClusterView, new: ClusterView, changed: Iterable[str]) -> None:
        for name in changed:
            for view, step in ((old, -1), (new, 1)):
                topic = view.topics.get(name)
                if topic is not None:
                    self._count(topic, step)

    def collides_with(self, name: str) -> str | None:
        """A topic that differs only in dots and underscores: their metrics would have one name."""
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
