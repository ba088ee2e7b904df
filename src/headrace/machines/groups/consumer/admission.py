# SPDX-License-Identifier: Apache-2.0
"""Finds the member of a KIP-848 heartbeat and validates the request before anything changes.

Pure; also used for a classic group that would be converted.
Read next: consumer/group.py.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.machines.groups.consumer.checks import (
    check_bytes,
    check_epoch,
    check_regex,
    check_released,
    check_room,
    check_understood,
    known_member,
    known_static_member,
)
from headrace.machines.groups.consumer.events import ConsumerGroupConfig, ConsumerGroupHeartbeat
from headrace.machines.groups.consumer.member import JOIN_EPOCH, Member
from headrace.machines.groups.consumer.state import ConsumerGroupState
from headrace.wire.coordinator.consumer_group_records import ConsumerGroupMemberMetadata


class Admission(NamedTuple):
    before: Member
    """The member before the heartbeat; an empty one when it is new."""
    predecessor: Member | None
    """The static member that it replaces."""
    metadata: ConsumerGroupMemberMetadata
    """Its new subscription."""


def admit(
    state: ConsumerGroupState, request: ConsumerGroupHeartbeat, config: ConsumerGroupConfig
) -> Admission:
    """Validate the heartbeat; raises ApiError."""
    check_room(state, request.member_id, config)
    before, predecessor = _find(state, request, request.member_id or request.fresh_member_id)
    check_understood(before, request.owned_partitions)
    metadata = request.updated(before.metadata)
    if metadata is not before.metadata:
        check_bytes(state, before.member_id, metadata, config)
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
    """The member as it was, and the member that it replaces.

    Between two KIP-848 members the old one has to leave first; where one of them is classic it need not.
    """
    existing = state.static_member(instance_id)
    if existing is None:
        return state.members.get(member_id) or Member(member_id=member_id), None
    if not may_take_over and not existing.uses_classic_protocol:
        check_released(existing, instance_id, member_id)
    return existing.succeeded_by(member_id), existing
