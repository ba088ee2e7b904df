"""What a KIP-848 group tells of itself (D21): why it rebalanced, what moved, who is where, how long it took.

Words as in the classic machine where they mean the same. Changes nothing; not part of the lasting state.
Read next: group_consumer.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.machines.classic_moves import moves_between
from headrace.machines.consumer_group_records import ConsumerGroupMemberMetadata
from headrace.machines.consumer_member import Member, Partitions
from headrace.machines.consumer_state import ConsumerGroupState
from headrace.machines.machine import Step
from headrace.types import ClusterView


class Timeline:
    def __init__(self) -> None:
        self._began_ms: int | None = None
        self._reason = ""

    def joined(self, step: Step, member_id: str, metadata: ConsumerGroupMemberMetadata) -> None:
        step.tell(
            "join",
            member_id=member_id,
            instance_id=metadata.instance_id,
            client_id=metadata.client_id,
            client_host=metadata.client_host,
        )

    def rejoined(self, step: Step, new: Member, *, replaces: str) -> None:
        step.tell("rejoin", member_id=new.member_id, instance_id=new.instance_id, replaces=replaces)

    def left(self, step: Step, member_id: str, reason: str) -> None:
        step.tell("leave", member_id=member_id, reason=reason)

    def rebalance(self, step: Step, epoch: int, reason: str) -> None:
        """One that begins while another is under way continues it."""
        if self._began_ms is None:
            self._began_ms, self._reason = step.now.monotonic_ms, reason
        step.tell("rebalance", epoch=epoch, reason=reason)

    def target(
        self,
        step: Step,
        state: ConsumerGroupState,
        before: Mapping[str, Partitions],
        assignor: str,
        view: ClusterView,
    ) -> None:
        moves = _moves(before, state.target, view)
        step.tell("target", epoch=state.assignment_epoch, protocol=assignor, **moves)

    def reconciled(self, step: Step, state: ConsumerGroupState, member: Member) -> None:
        step.tell(
            "reconcile",
            member_id=member.member_id,
            epoch=member.member_epoch,
            state=member.state.name,
            assigned=sum(map(len, member.assigned.values())),
            revoking=sum(map(len, member.pending_revocation.values())),
        )
        self.maybe_settled(step, state)

    def maybe_settled(self, step: Step, state: ConsumerGroupState) -> None:
        if self._began_ms is None or state.state not in ("Stable", "Empty"):
            return
        details: dict[str, Any] = {"epoch": state.group_epoch, "reason": self._reason}
        took_ms, self._began_ms = step.now.monotonic_ms - self._began_ms, None
        if state.members:
            step.tell("assigned", took_ms=took_ms, members=len(state.members), **details)
        else:
            step.tell("empty", **details)


def _moves(
    before: Mapping[str, Partitions], after: Mapping[str, Partitions], view: ClusterView
) -> dict[str, Any]:
    """Looks only at the members whose target changed."""
    lost: dict[str, str] = {}
    gained: dict[str, str] = {}
    for member_id in before.keys() | after.keys():
        old, new = before.get(member_id, {}), after.get(member_id, {})
        if old is new:
            continue
        for topic_id in old.keys() | new.keys():
            name = view.topic_names.get(topic_id, str(topic_id))
            had, has = old.get(topic_id, frozenset()), new.get(topic_id, frozenset())
            lost.update((f"{name}-{partition}", member_id) for partition in had - has)
            gained.update((f"{name}-{partition}", member_id) for partition in has - had)
    return moves_between(lost, gained)
