# SPDX-License-Identifier: Apache-2.0
"""View `group` (`group`): members with their partitions, lag, rebalances, and what one more would change.

Its document is described in docs/design/console.md. Read next: rebalances.py, timeline.py, what_if.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.console.state.folding import find_partition
from headrace.console.state.model import Event, GroupState, MemberState, ProgressState, Snapshot
from headrace.console.views.admin_document import command, document
from headrace.console.views.alarms.group_alarms import group_alarms
from headrace.console.views.groups.readers import owners_of
from headrace.console.views.groups.rebalances import places, rebalances
from headrace.console.views.groups.timeline import timeline
from headrace.console.views.groups.what_if import what_if
from headrace.console.views.lag_figures import LagFigures, figures_of, rounded, together
from headrace.console.views.view import Document, Interest, Params, Source, View, ViewError
from headrace.types import TopicPartition

_FALLING_BACK_MS = 5_000
"""A member whose lag stays the same is slow when it is longer behind than that."""
MOST_PARTITIONS = 2_000


async def build(source: Source, snapshot: Snapshot, params: Params) -> Document:
    group = find_group(snapshot, params.get("group", ""))
    owners = owners_of(group)
    figures = {
        where: figures_of(snapshot, where, group.progress.get(where) or ProgressState())
        for where in sorted({*owners, *group.progress})
    }
    total = together(figures.values())
    parts: Document = {
        "group": {
            "id": group.group_id,
            "type": group.group_type,
            "state": group.state,
            "epoch": group.epoch,
            "assignor": group.assignor,
            "coordinator": group.coordinator,
        },
        "members": _members(snapshot, group, figures),
        "partitions": [
            _partition(snapshot, group, where, owners.get(where), each)
            for where, each in list(figures.items())[:MOST_PARTITIONS]
        ],
        "totals": {
            **total.document(),
            "history": [list(sample) for sample in snapshot.lag_history.get(group.group_id, ())],
        },
        "rebalances": rebalances(snapshot, group),
        "timeline": timeline(snapshot, group),
        "what_if": what_if(snapshot, group),
    }
    where = ("--bootstrap", str(source.cluster))
    return document(
        "group",
        snapshot,
        parts,
        unknown=snapshot.unknown,
        alarms=group_alarms(snapshot, group),
        commands=[
            command("Describe the group", "groups", "describe", group.group_id, *where),
            command("Its events", "groups", "events", group.group_id, *where),
            command(
                "Preview a reset to the beginning",
                "groups", "reset", group.group_id, "--to-earliest", *where,
            ),
        ],
    )  # fmt: skip


def find_group(snapshot: Snapshot, name: str) -> GroupState:
    group = snapshot.groups.get(name)
    if group is None and snapshot.problem:
        raise ViewError(snapshot.problem, next_step=None, status=503)
    if group is None:
        raise ViewError(f"group {name!r} does not exist", next_step="choose one of the list of groups")
    return group


def _members(
    snapshot: Snapshot, group: GroupState, figures: Mapping[TopicPartition, LagFigures]
) -> list[Document]:
    sums = {
        member.member_id: together(figures[where] for where in member.assigned) for member in group.members
    }
    slowest, events = _slowest(sums), snapshot.group_events.get(group.group_id, ())
    return [
        _member(member, events, sums[member.member_id], member.member_id == slowest)
        for member in group.members
    ]


def _slowest(sums: Mapping[str, LagFigures]) -> str | None:
    """The member that is furthest behind, unless it is catching up."""
    lagging = [(name, each) for name, each in sums.items() if each.lag]
    if not lagging:
        return None
    name, worst = max(lagging, key=lambda pair: (pair[1].behind or 0, pair[1].lag or 0))
    falling_back = worst.trend == "growing" or (
        worst.trend == "steady" and (worst.behind or 0) >= _FALLING_BACK_MS
    )
    return name if falling_back else None


def _last(events: Sequence[Event], member: MemberState, *kinds: str) -> int | None:
    """When the member last did it, as far as events are kept."""
    for event in reversed(events):
        if event.kind in kinds and event.details.get("member_id") == member.member_id:
            return event.at_ms
    return None


def _member(member: MemberState, events: Sequence[Event], figures: LagFigures, slow: bool) -> Document:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "partitions": places(member.assigned),
        "lag": figures.lag,
        "behind": figures.behind,
        "rate_out": rounded(figures.rate_out),
        "slow": slow,
        "behind_since": figures.behind_since,
        "joined": member.joined_ms or _last(events, member, "join", "rejoin"),
        "last_commit": member.last_commit_ms or _last(events, member, "commit"),
    }


def _partition(
    snapshot: Snapshot,
    group: GroupState,
    where: TopicPartition,
    owner: MemberState | None,
    figures: LagFigures,
) -> Document:
    log = find_partition(snapshot, where)
    progress = group.progress.get(where) or ProgressState()
    return {
        "topic": where.topic,
        "partition": where.partition,
        "member_id": owner.member_id if owner else None,
        "start": log.start if log else None,
        "end": log.end if log else None,
        "committed": progress.committed,
        "position": progress.position,
        "behind_at_least": figures.behind_at_least,
        **figures.document(),
    }


VIEW = View(
    name="group",
    build=build,
    interest=lambda params: Interest(groups=frozenset([params.get("group", "")])),
    history=True,
)
