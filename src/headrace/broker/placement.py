"""Where the replicas of new partitions go: spread over racks, then evenly over nodes.

Pure and deterministic: nodes, counts and present load in, replica lists out. Read next: controller.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.types import NO_NODE, Node


@dataclass(slots=True, kw_only=True)
class Load:
    """How many partitions each node leads and holds already."""

    leaders: Counter[int] = field(default_factory=Counter)
    replicas: Counter[int] = field(default_factory=Counter)

    def copy(self) -> Load:
        return Load(leaders=self.leaders.copy(), replicas=self.replicas.copy())

    def count(self, replicas: Iterable[int], leader: int, step: int = 1) -> None:
        for node_id in replicas:
            self.replicas[node_id] += step
        if leader != NO_NODE:
            self.leaders[leader] += step


def place_replicas(
    nodes: Iterable[Node], partition_count: int, replication_factor: int, load: Load
) -> list[tuple[int, ...]]:
    """One replica list per partition, its leader first.

    The leader is the node that leads least; then come nodes of racks that have no replica yet, the least
    loaded first. Ties go round in node order, so that a fresh cluster is filled like the drawing: leaders
    on 0, 1, 2 … and the followers of each on the nodes after it. `load` is left counting what was placed.
    """
    racks = {node.node_id: node.rack or node.host_id for node in nodes}
    ring = sorted(racks)
    if replication_factor > len(ring):
        raise ValueError(f"{replication_factor} replicas do not fit on {len(ring)} nodes")
    placed = []
    for _ in range(partition_count):
        leader = min(ring, key=lambda node: (load.leaders[node], load.replicas[node], node))
        chosen = [leader]
        while len(chosen) < replication_factor:
            chosen.append(_next_follower(ring, racks, chosen, load))
        load.count(chosen, leader)
        placed.append(tuple(chosen))
    return placed


def _next_follower(
    ring: Sequence[int], racks: Mapping[int, str], chosen: Sequence[int], load: Load
) -> int:
    used = Counter(racks[node] for node in chosen)
    leader_at = ring.index(chosen[0])

    def cost(node: int) -> tuple[int, int, int]:
        return used[racks[node]], load.replicas[node], (ring.index(node) - leader_at) % len(ring)

    return min((node for node in ring if node not in chosen), key=cost)
