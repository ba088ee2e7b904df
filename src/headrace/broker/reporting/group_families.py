# SPDX-License-Identifier: Apache-2.0
"""The metrics of the groups that a node coordinates. Read next: metrics_export.py, groups/coordinator.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from headrace.broker.metrics import GroupCounters
from headrace.broker.reporting.metric_family import Family, MetricSources, Read, Sample
from headrace.machines.groups.classic.membership import GROUP_TYPE as CLASSIC
from headrace.machines.groups.classic.membership import ClassicMembership
from headrace.machines.groups.group import CONSUMER, Group


class GroupFigures(NamedTuple):
    group_type: str
    state: str
    members: int


def group_figures(group: Group) -> GroupFigures:
    """Counts the members without describing each: there may be thousands of groups."""
    if not isinstance(group.membership, ClassicMembership):
        state = group.consumer.state
        return GroupFigures(CONSUMER, state.state, len(state.members))
    if not group.membership.exists:  # it has committed offsets only
        return GroupFigures(CLASSIC, "Empty", 0)
    return GroupFigures(CLASSIC, group.classic.state.state.value, len(group.classic.state.members))


def _groups(sources: MetricSources) -> list[Sample]:
    figures = map(group_figures, sources.groups())
    counts = Counter((each.group_type, each.state) for each in figures)
    return [(key, count) for key, count in sorted(counts.items())]


def _group_members(sources: MetricSources) -> list[Sample]:
    members: Counter[str] = Counter()
    for each in map(group_figures, sources.groups()):
        members[each.group_type] += each.members
    return [((kind,), count) for kind, count in sorted(members.items())]


def _of_counters(read: Callable[[GroupCounters], list[Sample]]) -> Read:
    return lambda sources: read(sources.metrics.groups)


GROUP_FAMILIES = (
    Family(
        name="headrace_groups",
        kind="gauge",
        help="Groups that this node coordinates.",
        labels=("type", "state"),
        read=_groups,
    ),
    Family(
        name="headrace_group_members",
        kind="gauge",
        help="Members of these groups.",
        labels=("type",),
        read=_group_members,
    ),
    Family(
        name="headrace_group_rebalances",
        kind="counter",
        help="Rebalances begun.",
        labels=("type",),
        read=_of_counters(lambda groups: [((kind,), count) for kind, count in groups.rebalances.items()]),
    ),
    Family(
        name="headrace_group_offsets_committed",
        kind="counter",
        help="Offsets committed.",
        read=_of_counters(lambda groups: [((), groups.commits)]),
    ),
    Family(
        name="headrace_group_offsets_expired",
        kind="counter",
        help="Committed offsets that were forgotten because their retention was over.",
        read=_of_counters(lambda groups: [((), groups.expired)]),
    ),
    Family(
        name="headrace_group_load_seconds",
        kind="histogram",
        help="Reading the groups of one partition of __consumer_offsets, at the start of the node mostly.",
        read=_of_counters(lambda groups: [((), groups.loads)]),
    ),
)
