# SPDX-License-Identifier: Apache-2.0
"""The groups that read a topic: for each partition who owns it, where it is, and how far behind."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.console.state.model import GroupState, MemberState, ProgressState, Snapshot, TopicState
from headrace.console.views.lag_figures import LagFigures, figures_of
from headrace.console.views.view import Document
from headrace.types import TopicPartition

MOST_GROUPS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReader:
    group: GroupState
    where: TopicPartition
    member: MemberState | None
    """None: no member owns the partition now."""
    progress: ProgressState
    figures: LagFigures

    def document(self) -> Document:
        return {
            "group": self.group.group_id,
            "member_id": self.member.member_id if self.member else None,
            "client_id": self.member.client_id if self.member else None,
            "host": self.member.host if self.member else None,
            "position": self.progress.position,
            "committed": self.progress.committed,
            "lag": self.figures.lag,
            "behind": self.figures.behind,
            "behind_at_least": self.figures.behind_at_least,
        }


def readers_of(snapshot: Snapshot, topic: TopicState) -> list[TopicReader]:
    """By group, then partition."""
    found: list[TopicReader] = []
    groups = 0
    for group in snapshot.groups.values():
        owners = owners_of(group)
        places = sorted(where for where in {*owners, *group.progress} if where.topic == topic.name)
        groups += bool(places)
        if groups > MOST_GROUPS:
            break
        for where in places:
            progress = group.progress.get(where) or ProgressState()
            found.append(
                TopicReader(
                    group=group,
                    where=where,
                    member=owners.get(where),
                    progress=progress,
                    figures=figures_of(snapshot, where, progress),
                )
            )
    return found


def owners_of(group: GroupState) -> dict[TopicPartition, MemberState]:
    return {where: member for member in group.members for where in member.assigned}
