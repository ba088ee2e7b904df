# SPDX-License-Identifier: Apache-2.0
"""Target replicas: for another replication factor, without a node, for an even load. Pure functions.

What stays is never moved: a partition keeps its replicas in their order, so that its preferred leader stays.
Read next: reassignments.py (who asks the cluster for it).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from headrace.client.errors import ClientError

Assignment = Mapping[tuple[str, int], tuple[int, ...]]
"""The replicas of each (topic, partition), the preferred leader first."""


def with_replication_factor(
    partitions: Assignment, factor: int, hosts: Mapping[int, str], load: Mapping[int, int]
) -> dict[tuple[str, int], tuple[int, ...]]:
    """Only what changes. `hosts`: of each live node; `load`: how many replicas each holds already."""
    if factor > len(hosts):
        raise ClientError(
            f"replication factor {factor} needs as many nodes; the cluster has {len(hosts)}",
            next_step="add one: headrace cluster add",
        )
    counts = {node: load.get(node, 0) for node in hosts}
    targets = {}
    for name, replicas in sorted(partitions.items()):
        kept = replicas[:factor]
        target = _filled(kept, factor, hosts, counts)
        if target != replicas:
            targets[name] = target
    return targets


def without_node(
    partitions: Assignment, leaving: int, hosts: Mapping[int, str]
) -> dict[tuple[str, int], tuple[int, ...]]:
    """New replicas for all that the node holds; the newcomer takes its place in the order."""
    others = {node: host for node, host in hosts.items() if node != leaving}
    counts = {node: sum(node in replicas for replicas in partitions.values()) for node in others}
    targets = {}
    for name, replicas in sorted(partitions.items()):
        if leaving not in replicas:
            continue
        if len(replicas) > len(others):
            raise ClientError(
                f"topic {name[0]!r} has {len(replicas)} replicas, and without node {leaving} there are "
                f"{len(others)} nodes",
                next_step=f"add a node, or: headrace topics alter {name[0]} "
                f"--replication-factor {len(others) or 1}",
            )
        staying = tuple(node for node in replicas if node != leaving)
        (newcomer,) = set(_filled(staying, len(replicas), others, counts)) - set(staying)
        targets[name] = tuple(newcomer if node == leaving else node for node in replicas)
    return targets


def balanced(partitions: Assignment, nodes: Iterable[int]) -> dict[tuple[str, int], tuple[int, ...]]:
    """Only what changes, so that no node is the preferred leader of two partitions more than another: neither
    of a topic nor in all. The new leader takes the place of the old one in the order, or swaps with it."""
    leaders = _Leaders(partitions, nodes)
    for topic in sorted({topic for topic, _ in partitions}):
        leaders.even_out(topic)
    leaders.even_out(None)
    return {name: target for name, target in leaders.replicas.items() if target != partitions[name]}


class _Leaders:
    """The preferred leaders while they are spread; nodes that are not live keep what they lead."""

    def __init__(self, partitions: Assignment, nodes: Iterable[int]) -> None:
        self.replicas = dict(sorted(partitions.items()))
        self._nodes = sorted(nodes)
        self._led: dict[int, list[tuple[str, int]]] = {node: [] for node in self._nodes}
        self._counts: Counter[tuple[str | None, int]] = Counter()
        """By topic and node; None: of all topics."""
        for name, replicas in self.replicas.items():
            if replicas[0] in self._led:
                self._led[replicas[0]].append(name)
                self._count(name[0], replicas[0], 1)

    def even_out(self, topic: str | None) -> None:
        """Moves leaders of the topic, or of any, from the node with most to the one with fewest."""
        while self._nodes:
            counts = self._counts
            order = sorted(self._nodes, key=lambda node: (counts[topic, node], counts[None, node]))
            least, most = order[0], order[-1]
            if counts[topic, most] - counts[topic, least] < 2:
                return
            self._move(self._to_move(topic, most, least), most, least)

    def _to_move(self, topic: str | None, most: int, least: int) -> tuple[str, int]:
        """A partition of a topic of which `most` leads more than `least`; there is one, as it does in all."""
        return next(
            name
            for name in reversed(self._led[most])
            if topic in (None, name[0]) and self._counts[name[0], most] > self._counts[name[0], least]
        )

    def _move(self, name: tuple[str, int], source: int, target: int) -> None:
        swapped = {source: target, target: source}
        self.replicas[name] = tuple(swapped.get(node, node) for node in self.replicas[name])
        self._led[source].remove(name)
        self._led[target].append(name)
        self._count(name[0], source, -1)
        self._count(name[0], target, 1)

    def _count(self, topic: str, node: int, step: int) -> None:
        self._counts[topic, node] += step
        self._counts[None, node] += step


def _filled(
    kept: Sequence[int], factor: int, hosts: Mapping[int, str], counts: dict[int, int]
) -> tuple[int, ...]:
    """Nodes on hosts that have none of them first, then the least loaded, then the lowest id."""
    chosen = list(kept)
    while len(chosen) < factor:
        used = {hosts[node] for node in chosen if node in hosts}
        newcomer = min(_free(hosts, chosen), key=lambda node: (hosts[node] in used, counts[node], node))
        counts[newcomer] += 1
        chosen.append(newcomer)
    return tuple(chosen)


def _free(hosts: Mapping[int, str], chosen: Iterable[int]) -> list[int]:
    return [node for node in hosts if node not in chosen]
