"""Figures of the groups that a node coordinates: counters that add up, and what a scrape reads of each group.

Knows nothing of Prometheus. Read next: metrics_export.py, group_coordinator.py (who counts).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from headrace.broker.metrics import Histogram
from headrace.machines.classic_membership import GROUP_TYPE as CLASSIC
from headrace.machines.classic_membership import ClassicMembership
from headrace.machines.group import CONSUMER, Group
from headrace.machines.machine import TimelineEvent


class GroupFigures(NamedTuple):
    group_type: str
    state: str
    members: int


class GroupMetrics:
    __slots__ = ("commits", "expired", "groups", "loads", "rebalances")

    def __init__(self, groups: Callable[[], Iterable[Group]]) -> None:
        self.groups = groups
        self.commits = 0
        """Offsets, not requests."""
        self.expired = 0
        self.rebalances = {CLASSIC: 0, CONSUMER: 0}
        self.loads = Histogram()

    def told(self, line: TimelineEvent) -> None:
        if line.kind == "rebalance":
            self.rebalances[CLASSIC if "generation" in line.details else CONSUMER] += 1
        elif line.kind == "offsets_expired":
            self.expired += line.details["partitions"]

    def figures(self) -> list[GroupFigures]:
        return [_figures(group) for group in self.groups()]


def _figures(group: Group) -> GroupFigures:
    """Without the members themselves: there may be thousands of groups."""
    if not isinstance(group.membership, ClassicMembership):
        state = group.consumer.state
        return GroupFigures(CONSUMER, state.state, len(state.members))
    if not group.membership.exists:  # it has offsets alone
        return GroupFigures(CLASSIC, "Empty", 0)
    return GroupFigures(CLASSIC, group.classic.state.state.value, len(group.classic.state.members))
