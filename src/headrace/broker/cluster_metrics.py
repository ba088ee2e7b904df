"""Figures about the cluster: what this node did as controller, and what the view says of all partitions.

The view's figures are counted when somebody asks. Read next: metrics_export.py, controller_office.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from headrace.broker.placement import share_one_host
from headrace.types import NO_NODE, ClusterView, PartitionState


class Health(NamedTuple):
    """Partitions of the whole cluster, by what is wrong with them."""

    under_replicated: int
    offline: int
    same_host: int
    """All in-sync replicas, of several, are on one host."""
    moving: int


def health(view: ClusterView) -> Health:
    under = offline = same_host = moving = 0
    for topic in view.topics.values():
        moving += len(topic.moves)
        for state in topic.partitions:
            under += len(state.isr) < len(state.replicas)
            offline += state.leader == NO_NODE
            same_host += share_one_host(state.isr, view.nodes)
    return Health(under, offline, same_host, moving)


class ClusterMetrics:
    """Counts since the start of the node, of what it wrote as controller."""

    def __init__(self, view: Callable[[], ClusterView], is_controller: Callable[[], bool]) -> None:
        self._view = view
        self._is_controller = is_controller
        self.elections = 0
        self.unclean_elections = 0
        self.isr_shrinks = 0
        self.isr_expands = 0

    @property
    def view(self) -> ClusterView:
        return self._view()

    @property
    def is_controller(self) -> bool:
        return self._is_controller()

    def note(self, before: PartitionState, after: PartitionState, *, lossy: bool) -> None:
        if after.leader not in (before.leader, NO_NODE):
            self.elections += 1
            self.unclean_elections += lossy
        self.isr_shrinks += bool(set(before.isr) - set(after.isr))
        self.isr_expands += bool(set(after.isr) - set(before.isr))
