# SPDX-License-Identifier: Apache-2.0
"""Target replicas for another replication factor, and when a node is removed. Pure functions.

What stays is never moved: a partition keeps its replicas in their order, so that its preferred leader stays.
Read next: reassignments.py (who asks the cluster for it).
"""

from __future__ import annotations

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
