"""Where the replicas of new partitions go: spread over racks, then evenly over nodes.

Pure and deterministic: nodes, counts and present load in, replica lists out. Read next: controller.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.types import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How many partitions each node leads and holds already."""

    leaders: Mapping[int, int] = field(default_factory=dict)
    replicas: Mapping[int, int] = field(default_factory=dict)


NO_LOAD = Load()


def place_replicas(
    nodes: Iterable[Node], partition_count: int, replication_factor: int, load: Load = NO_LOAD
) -> list[tuple[int, ...]]:
    """One replica list per partition, its leader first.

    The leader is the node that leads least; then come nodes of racks that have no replica yet, the least
    loaded first. Ties go round in node order, so that a fresh cluster is filled like the drawing: leaders
    on 0, 1, 2 … and the followers of each on the nodes after it.
    """
    racks = {node.node_id: node.rack or node.host_id for node in nodes}
    ring = sorted(racks)
    if replication_factor > len(ring):
        raise ValueError(f"{replication_factor} replicas do not fit on {len(ring)} nodes")
    leaders, replicas = Counter(load.leaders), Counter(load.replicas)
    placed = []
    for _ in range(partition_count):
        leader = min(ring, key=lambda node: (leaders[node], replicas[node], node))
        chosen = [leader]
        while len(chosen) < replication_factor:
            chosen.append(_next_follower(ring, racks, chosen, replicas))
        leaders[leader] += 1
        replicas.update(chosen)
        placed.append(tuple(chosen))
    return placed


def _next_follower(
    ring: Sequence[int], racks: Mapping[int, str], chosen: Sequence[int], replicas: Counter[int]
) -> int:
    used = Counter(racks[node] for node in chosen)
    leader_at = ring.index(chosen[0])

    def cost(node: int) -> tuple[int, int, int]:
        return used[racks[node]], replicas[node], (ring.index(node) - leader_at) % len(ring)

    return min((node for node in ring if node not in chosen), key=cost)
