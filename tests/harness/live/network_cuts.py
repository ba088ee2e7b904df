# SPDX-License-Identifier: Apache-2.0
"""T8: network partitions around one node in several shapes, as faults of the kill loop.

Each cuts links for a while and mends them. Read next: lan.py, proxied_links.py, kill_loop.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Protocol

from tests.harness.live.cluster import LiveCluster, host_name
from tests.harness.live.kill_loop import Fault
from tests.harness.live.lan import OUTSIDE

FLAP_S = 2.0

Link = tuple[str, str]
"""From one host to another; the way back is a link of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """The network as one node sees it."""

    node: str
    others: Sequence[str]
    store: Sequence[str]
    """Servers of the coordination store, where it is reached over the network."""


Shape = Callable[[Around], list[Link]]


class Links(Protocol):
    """Of a Lan, or ProxiedLinks."""

    def cut(self, source: str, target: str) -> None: ...

    def heal_all(self) -> None: ...


def isolated(around: Around) -> list[Link]:
    """From everybody: nodes, store and clients."""
    return _both_ways(around.node, [*around.others, *around.store, OUTSIDE])


def from_other_nodes(around: Around) -> list[Link]:
    """Clients and the store still reach it."""
    return _both_ways(around.node, around.others)


def from_one_node(around: Around) -> list[Link]:
    return _both_ways(around.node, around.others[:1])


def deaf(around: Around) -> list[Link]:
    """It is heard, and hears no other node."""
    return [(other, around.node) for other in around.others]


def mute(around: Around) -> list[Link]:
    """It hears the other nodes, and is not heard."""
    return [(around.node, other) for other in around.others]


def from_clients(around: Around) -> list[Link]:
    return _both_ways(around.node, [OUTSIDE])


def from_the_store(around: Around) -> list[Link]:
    """The nasty one: everybody else still hears it."""
    return _both_ways(around.node, around.store)


def store_without_majority(around: Around) -> list[Link]:
    """All but one of the store's servers are cut off from each other and from all nodes; no node is."""
    lost = around.store[1:]
    nodes = [around.node, *around.others]
    return [link for server in lost for link in _both_ways(server, [*nodes, *around.store])]


ON_ONE_HOST: tuple[Shape, ...] = (from_one_node, deaf, mute, from_other_nodes, from_clients)
"""Where the store is a file there is no way to it that could be cut."""
ON_SEVERAL_HOSTS: tuple[Shape, ...] = (*ON_ONE_HOST, isolated, from_the_store, store_without_majority)


def cut_for(links: Links, shapes: Iterable[Shape], seconds: float, *, store: Sequence[str] = ()) -> Fault:
    """Around the node that is struck, one shape after the other."""
    turns = cycle(shapes)

    def strike(cluster: LiveCluster, node_id: int) -> None:
        _cut(links, next(turns)(_around(cluster, node_id, store)), seconds)

    return strike


def flap_for(links: Links, shape: Shape, seconds: float, *, store: Sequence[str] = ()) -> Fault:
    """The link comes back every two seconds, and is gone again."""

    def strike(cluster: LiveCluster, node_id: int) -> None:
        ways = shape(_around(cluster, node_id, store))
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            _cut(links, ways, FLAP_S)
            time.sleep(FLAP_S)  # how long the link is back

    return strike


def _cut(links: Links, ways: Iterable[Link], seconds: float) -> None:
    try:
        for source, target in ways:
            links.cut(source, target)
        time.sleep(seconds)  # how long the link is cut
    finally:
        links.heal_all()


def _around(cluster: LiveCluster, node_id: int, store: Sequence[str]) -> Around:
    others = [host_name(other) for other in cluster.node_ids if other != node_id]
    return Around(node=host_name(node_id), others=others, store=store)


def _both_ways(host: str, others: Iterable[str]) -> list[Link]:
    return [link for other in others if other != host for link in ((host, other), (other, host))]
