# SPDX-License-Identifier: Apache-2.0
"""Group events of a KIP-848 group (D21): reason, moved partitions and duration of rebalances.

Same event names as in the classic protocol where possible. Not part of the durable state.
Read next: consumer/group.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.machines.groups.classic.moves import moves_between
from headrace.machines.groups.consumer.member import Member, Partitions
from headrace.machines.groups.consumer.state import ConsumerGroupState
from headrace.machines.machine import Step
from headrace.types import ClusterView
from headrace.wire.coordinator.consumer_group_records import ConsumerGroupMemberMetadata


class Timeline:
    def __init__(self) -> None:
        self._began_ms: int | None = None
        self._reason = ""

    def joined(self, step: Step, member_id: str, metadata: ConsumerGroupMemberMetadata) -> None:
        step.log_event(
            "join",
            member_id=member_id,
            instance_id=metadata.instance_id,
            client_id=metadata.client_id,
            client_host=metadata.client_host,
        )

    def rejoined(self, step: Step, new: Member, *, replaces: str) -> None:
        step.log_event("rejoin", member_id=new.member_id, instance_id=new.instance_id, replaces=replaces)

    def left(self, step: Step, member_id: str, reason: str) -> None:
        step.log_event("leave", member_id=member_id, reason=reason)

    def rebalance(self, step: Step, epoch: int, reason: str) -> None:
        """Start a rebalance; one that starts during another continues it."""
        if self._began_ms is None:
            self._began_ms, self._reason = step.now.monotonic_ms, reason
        step.log_event("rebalance", epoch=epoch, reason=reason)

    def target(
        self,
        step: Step,
        state: ConsumerGroupState,
        before: Mapping[str, Partitions],
        after: Mapping[str, Partitions],
        assignor: str,
        view: ClusterView,
    ) -> None:
        """`before`, `after`: of the members whose target changed."""
        moves = _moves(before, after, view)
        step.log_event("target", epoch=state.assignment_epoch, protocol=assignor, **moves)

    def reconciled(self, step: Step, state: ConsumerGroupState, member: Member) -> None:
        step.log_event(
            "reconcile",
            member_id=member.member_id,
            epoch=member.member_epoch,
            state=member.state.name,
            assigned=sum(map(len, member.assigned.values())),
            revoking=sum(map(len, member.pending_revocation.values())),
        )
        self.maybe_completed(step, state)

    def maybe_completed(self, step: Step, state: ConsumerGroupState) -> None:
        if self._began_ms is None or state.state not in ("Stable", "Empty"):
            return
        details: dict[str, Any] = {"epoch": state.group_epoch, "reason": self._reason}
        took_ms, self._began_ms = step.now.monotonic_ms - self._began_ms, None
        if state.members:
            step.log_event("assigned", took_ms=took_ms, members=len(state.members), **details)
        else:
            step.log_event("empty", **details)


def _moves(
    before: Mapping[str, Partitions], after: Mapping[str, Partitions], view: ClusterView
) -> dict[str, Any]:
    lost: dict[str, str] = {}
    gained: dict[str, str] = {}
    for member_id, old in before.items():
        new = after[member_id]
        for topic_id in old.keys() | new.keys():
            name = view.topic_names.get(topic_id) or str(topic_id)
            had, has = old.get(topic_id, frozenset()), new.get(topic_id, frozenset())
            lost.update((f"{name}-{partition}", member_id) for partition in had - has)
            gained.update((f"{name}-{partition}", member_id) for partition in has - had)
    return moves_between(lost, gained)
