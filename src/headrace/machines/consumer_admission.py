"""Whom a heartbeat speaks for in a KIP-848 group, and all it can be refused for, before anything changes.

Pure; the same for a group that is and for one that a classic group would become.
Read next: group_consumer.py.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.machines.consumer_checks import (
    check_epoch,
    check_regex,
    check_released,
    check_room,
    check_understood,
    known_member,
    known_static_member,
)
from headrace.machines.consumer_events import ConsumerGroupConfig, ConsumerGroupHeartbeat
from headrace.machines.consumer_group_records import ConsumerGroupMemberMetadata
from headrace.machines.consumer_member import JOIN_EPOCH, Member
from headrace.machines.consumer_state import ConsumerGroupState


class Admission(NamedTuple):
    before: Member
    """The member as it was; one that nobody knows yet when it is new."""
    predecessor: Member | None
    """The static member whose place it takes."""
    metadata: ConsumerGroupMemberMetadata
    """What it subscribes to from now on."""


def admit(
    state: ConsumerGroupState, request: ConsumerGroupHeartbeat, config: ConsumerGroupConfig
) -> Admission:
    """Raises ApiError with what the heartbeat is refused for."""
    check_room(state, request.member_id, config)
    before, predecessor = _find(state, request, request.member_id or request.fresh_member_id)
    check_understood(before, request.owned_partitions)
    metadata = request.updated(before.metadata)
    check_regex(state, metadata.subscribed_topic_regex, request.regex_error)
    return Admission(before, predecessor, metadata)


def _find(
    state: ConsumerGroupState, request: ConsumerGroupHeartbeat, member_id: str
) -> tuple[Member, Member | None]:
    joining, instance_id = request.member_epoch == JOIN_EPOCH, request.instance_id
    if instance_id is not None and joining:
        return join_static(state, instance_id, member_id, may_take_over=False)
    if instance_id is not None:
        member = known_static_member(state, instance_id, member_id)
    elif joining and member_id not in state.members:
        return Member(member_id=member_id), None
    else:
        member = known_member(state, member_id)
    check_epoch(member, request.member_epoch, request.owned_partitions)
    return member, None


def join_static(
    state: ConsumerGroupState, instance_id: str, member_id: str, *, may_take_over: bool
) -> tuple[Member, Member | None]:
    """The member as it was, and whom it replaces.

    Between two KIP-848 members the old one has to leave first; where one of them is classic it need not.
    """
    existing = state.static_member(instance_id)
    if existing is None:
        return state.members.get(member_id) or Member(member_id=member_id), None
    if not may_take_over and not existing.uses_classic_protocol:
        check_released(existing, instance_id, member_id)
    return existing.succeeded_by(member_id), existing
