# SPDX-License-Identifier: Apache-2.0
"""One step of a member from its assignment towards its target (Kafka's CurrentAssignmentBuilder).

Revoke first, then assign: a partition is assigned only when it has no owner, and a member with partitions to
revoke stays in its epoch until it confirms the revocation. Pure.
Read next: consumer/group.py, which calls this on each heartbeat.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from headrace.machines.groups.consumer.member import HeldPartitions, Member, MemberState, Partitions
from headrace.types import TopicId


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The target of a member and the current owners of partitions."""

    epoch: int
    target: Partitions
    subscribed: frozenset[TopicId]
    """Unsubscribed topics are revoked even while the target still has them."""
    holder_of: Callable[[TopicId, int], str | None]
    """The owner of a partition: assigned to it, or its revocation is pending."""


def reconcile(member: Member, goal: Goal, *, owned: Partitions | None, subscription_changed: bool) -> Member:
    """The member after one step; the same object when it can go no further.

    `owned`: what this heartbeat says the member owns, None when it does not say.
    """
    match member.state:
        case MemberState.STABLE if member.member_epoch == goal.epoch:
            return _drop_unsubscribed(member, goal, owned) if subscription_changed else member
        case MemberState.UNREVOKED_PARTITIONS if _still_owns(owned, member.pending_revocation):
            return _drop_unsubscribed(member, goal, owned) if subscription_changed else member
        case MemberState.UNKNOWN:
            return _advance(member, goal, owned, stay_at=goal.epoch)
        case _:
            return _advance(member, goal, owned, stay_at=member.member_epoch)


def _still_owns(owned: Partitions | None, revoked: HeldPartitions) -> bool:
    """Whether the member has not yet confirmed revoking all of these."""
    if owned is None:
        return True
    return any(not partitions.isdisjoint(revoked.get(topic_id, ())) for topic_id, partitions in owned.items())


def _in_epoch(member: Member, epoch: int, state: MemberState, assigned: HeldPartitions) -> Member:
    return replace(
        member,
        member_epoch=epoch,
        previous_member_epoch=member.member_epoch,
        state=state,
        assigned=assigned,
        pending_revocation={},
    )


def _drop_unsubscribed(member: Member, goal: Goal, owned: Partitions | None) -> Member:
    """Revoke unsubscribed topics without waiting for a new target."""
    dropped = {topic: held for topic, held in member.assigned.items() if topic not in goal.subscribed}
    if not dropped:
        return member
    kept = {topic: held for topic, held in member.assigned.items() if topic not in dropped}
    revoked: dict[TopicId, Mapping[int, int]] = dict(member.pending_revocation)
    for topic, held in dropped.items():
        revoked[topic] = {**revoked.get(topic, {}), **held}
    shrunk = replace(member, previous_member_epoch=member.member_epoch, assigned=kept)
    if _still_owns(owned, revoked):
        return replace(shrunk, state=MemberState.UNREVOKED_PARTITIONS, pending_revocation=revoked)
    return shrunk


def _advance(member: Member, goal: Goal, owned: Partitions | None, *, stay_at: int) -> Member:
    kept: dict[TopicId, dict[int, int]] = {}
    revoked: dict[TopicId, Mapping[int, int]] = {}
    gained: dict[TopicId, list[int]] = {}
    waits = False
    for topic in member.assigned.keys() | goal.target.keys():
        held = member.assigned.get(topic, {})
        target = goal.target.get(topic, frozenset()) if topic in goal.subscribed else frozenset()
        if stay := {partition: epoch for partition, epoch in held.items() if partition in target}:
            kept[topic] = stay
        if go := {partition: epoch for partition, epoch in held.items() if partition not in target}:
            revoked[topic] = go
        wanted = target - held.keys()
        if free := [number for number in wanted if goal.holder_of(topic, number) in (None, member.member_id)]:
            gained[topic] = free
        waits = waits or len(free) < len(wanted)
    if revoked and _still_owns(owned, revoked):
        staying = _in_epoch(member, stay_at, MemberState.UNREVOKED_PARTITIONS, kept)
        return replace(staying, pending_revocation=revoked)
    for topic, numbers in gained.items():
        kept.setdefault(topic, {}).update(dict.fromkeys(numbers, goal.epoch))
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    return _in_epoch(member, goal.epoch, state, kept)
