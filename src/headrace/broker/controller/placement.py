# SPDX-License-Identifier: Apache-2.0
"""Placement of new replicas: spread over racks, then hosts, then evenly over nodes.

Pure and deterministic: nodes, counts and present load in, replica lists out. Read next: controller.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.types import NO_NODE, Node


@dataclass(slots=True, kw_only=True)
class Load:
    """How many partitions each node leads, and of how many it holds replicas."""

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

    The leader is the node that leads the fewest partitions; then come nodes of racks, then of hosts, without
    a replica, the least loaded first. Ties go round in node order: in a new cluster the leaders are on nodes
    0, 1, 2 … and the followers of each on the nodes after it. `load` counts what was placed afterwards.
    """
    sites = _sites(nodes)
    ring = sorted(sites)
    if replication_factor > len(ring):
        raise ValueError(f"{replication_factor} replicas do not fit on {len(ring)} nodes")
    placed = []
    for _ in range(partition_count):
        leader = min(ring, key=lambda node: (load.leaders[node], load.replicas[node], node))
        chosen = [leader]
        while len(chosen) < replication_factor:
            chosen.append(_next_follower(ring, sites, chosen, load))
        load.count(chosen, leader)
        placed.append(tuple(chosen))
    return placed


def share_one_host(members: Sequence[int], nodes: Mapping[int, Node]) -> bool:
    """Whether several in-sync replicas are all on one host; unknown nodes do not count."""
    hosts = [nodes[member].host_id for member in members if member in nodes]
    return len(hosts) > 1 and len(set(hosts)) == 1


def one_rack_of_one_host(nodes: Iterable[Node]) -> bool:
    """Whether the nodes say that they fail together: the cores of one host (cli/cores/run.py).

    Nodes without a rack say nothing, even on one host: clusters that are tried out replicate as others do.
    """
    sites = {(node.host_id, node.rack) for node in nodes}
    return len(sites) == 1 and None not in next(iter(sites))


class _Site(NamedTuple):
    rack: str
    host: str


def _sites(nodes: Iterable[Node]) -> dict[int, _Site]:
    return {node.node_id: _Site(node.rack or node.host_id, node.host_id) for node in nodes}


def _next_follower(ring: Sequence[int], sites: Mapping[int, _Site], chosen: Sequence[int], load: Load) -> int:
    taken = [sites[node] for node in chosen]
    racks = Counter(site.rack for site in taken)
    hosts = Counter(site.host for site in taken)
    leader_at = ring.index(chosen[0])

    def cost(node: int) -> tuple[int, int, int, int]:
        site = sites[node]
        distance = (ring.index(node) - leader_at) % len(ring)
        return racks[site.rack], hosts[site.host], load.replicas[node], distance

    return min((node for node in sites if node not in chosen), key=cost)
