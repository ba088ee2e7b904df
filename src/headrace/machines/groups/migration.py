# SPDX-License-Identifier: Apache-2.0
"""Converts a classic group with its members to a KIP-848 group and back (online upgrade and downgrade).

Pure: computes the initial state of the other group; group.py writes it. Rules and messages are Apache
Kafka 4.3's (convertToConsumerGroup, convertToClassicGroup). In addition, a classic group may be in
a rebalance: it is upgraded even before its first one is finished (Kafka: UNKNOWN_SERVER_ERROR), what members
said they own and may not have given up counts as held, and a rebalance follows in any case, so that nobody is
left without. A downgraded group begins with what members hold, not with a target that they have yet to reach.
Read next: group.py, consumer/classic_members.py.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from headrace.errors import ApiError, DecodeError
from headrace.machines.groups.classic import state as classic_state
from headrace.machines.groups.classic.state import ClassicState, GroupState
from headrace.machines.groups.consumer.member import Member, Partitions, topics_of
from headrace.machines.groups.consumer.target import metadata_hash
from headrace.machines.groups.events import JoinProtocol
from headrace.machines.groups.topic_names import by_topic_id, by_topic_name
from headrace.types import ClusterView
from headrace.wire.coordinator.consumer_group_records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentRecord,
    ConsumerGroupMemberMetadata,
    ConsumerGroupMemberMetadataRecord,
    ConsumerGroupMetadata,
    ConsumerGroupMetadataRecord,
    ConsumerGroupTargetAssignmentMemberRecord,
    ConsumerGroupTargetAssignmentMetadataRecord,
    CurrentMemberAssignment,
    TargetAssignmentMetadata,
)
from headrace.wire.coordinator.consumer_protocol import (
    Subscription,
    assignment_version,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from headrace.wire.coordinator.record import CoordinatorRecord
from headrace.wire.error_codes import ErrorCode


class MigrationPolicy(enum.Enum):
    """Kafka's group.consumer.migration.policy."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def upgrades(self) -> bool:
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def downgrades(self) -> bool:
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


# --- upgrade ---------------------------------------------------------------------------------------------


def upgraded(
    group: ClassicState, policy: MigrationPolicy, max_size: int, view: ClusterView
) -> list[CoordinatorRecord]:
    """The records of the KIP-848 group; ApiError when the classic group cannot become one.

    Everyone is at the epoch of the present generation; the target is the last assignment. Who waits for the
    end of a rebalance is the caller's to tell.
    """
    if not policy.upgrades:
        raise _cannot_upgrade(group, "online upgrade is disabled")
    if not group.uses_consumer_protocol:
        raise _cannot_upgrade(group, "the group does not use the consumer embedded protocol")
    if len(group.members) > max_size:
        raise _cannot_upgrade(group, "the group size exceeds the consumer group maximum size")
    members = [_read(group, member) for member in group.members.values()]
    return list(_records(group, members, _unreleased(members), view))


class _Moving(NamedTuple):
    """A member being converted, with its decoded subscription and assignment."""

    member: classic_state.Member
    subscription: Subscription
    assigned: Mapping[str, tuple[int, ...]]


def _cannot_upgrade(group: ClassicState, why: str) -> ApiError:
    message = f"Cannot upgrade classic group {group.group_id} to consumer group because {why}."
    return ApiError(ErrorCode.group_id_not_found, message)


def _read(group: ClassicState, member: classic_state.Member) -> _Moving:
    metadata = member.metadata(group.protocol or group.select_protocol())
    try:
        subscription = decode_subscription(member.protocols[0].metadata if metadata is None else metadata)
        assignment = decode_assignment(member.assignment)
    except DecodeError:
        raise _cannot_upgrade(group, "the embedded consumer protocol is malformed") from None
    if assignment.has_user_data:
        raise _cannot_upgrade(
            group,
            "an unsupported custom assignor is in use. Please refer to the documentation or switch to a "
            "default assignor before re-attempting the upgrade",
        )
    return _Moving(member, subscription, assignment.partitions)


def _unreleased(members: list[_Moving]) -> dict[str, dict[str, set[int]]]:
    """By member id: partitions that it reported as owned and that are not assigned to any member.

    Cooperative members give up such partitions when they hear of the assignment, and join again to say so;
    until then they may be at work on them.
    """
    taken = {(topic, p) for moving in members for topic, found in moving.assigned.items() for p in found}
    unreleased: dict[str, dict[str, set[int]]] = {}
    for moving in members:
        for topic, partitions in moving.subscription.owned.items():
            if free := {p for p in partitions if (topic, p) not in taken}:
                unreleased.setdefault(moving.member.member_id, {})[topic] = free
                taken.update((topic, p) for p in free)
    return unreleased


def _records(
    group: ClassicState,
    members: list[_Moving],
    unreleased: Mapping[str, Mapping[str, set[int]]],
    view: ClusterView,
) -> Iterator[CoordinatorRecord]:
    group_id, generation = group.group_id, group.generation
    for moving in members:
        yield ConsumerGroupMemberMetadataRecord(
            group_id=group_id, member_id=moving.member.member_id, value=_metadata(moving)
        )
    is_stable = group.state is GroupState.STABLE and not group.unsynced and not unreleased
    topics = {topic for moving in members for topic in moving.subscription.topics}
    # No metadata hash: forces a rebalance, since one was in progress.
    epoch = ConsumerGroupMetadata(
        epoch=generation, metadata_hash=metadata_hash(topics, view) if is_stable else 0
    )
    yield ConsumerGroupMetadataRecord(group_id=group_id, value=epoch)
    for moving in members:
        yield ConsumerGroupTargetAssignmentMemberRecord(
            group_id=group_id,
            member_id=moving.member.member_id,
            value=topics_of(by_topic_id(moving.assigned, view)),
        )
    yield ConsumerGroupTargetAssignmentMetadataRecord(
        group_id=group_id, value=TargetAssignmentMetadata(assignment_epoch=generation)
    )
    for moving in members:
        held = _together(moving.assigned, unreleased.get(moving.member.member_id, {}))
        yield ConsumerGroupCurrentMemberAssignmentRecord(
            group_id=group_id,
            member_id=moving.member.member_id,
            value=_current(generation, by_topic_id(held, view)),
        )


def _together(
    one: Mapping[str, Collection[int]], other: Mapping[str, Collection[int]]
) -> Mapping[str, Collection[int]]:
    return {topic: {*one.get(topic, ()), *other.get(topic, ())} for topic in one.keys() | other.keys()}


def _current(generation: int, held: Partitions) -> CurrentMemberAssignment:
    return Member(
        member_id="",
        member_epoch=generation,
        previous_member_epoch=generation,
        assigned={topic_id: dict.fromkeys(numbers, generation) for topic_id, numbers in held.items()},
    ).current()


def _metadata(moving: _Moving) -> ConsumerGroupMemberMetadata:
    member, subscription = moving.member, moving.subscription
    return ConsumerGroupMemberMetadata(
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(set(subscription.topics))),
        subscribed_topic_regex="",
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        classic=ClassicMemberMetadata(
            session_timeout_ms=member.session_timeout_ms,
            supported_protocols=tuple((name, metadata) for name, metadata in member.protocols),
        ),
    )


# --- downgrade -------------------------------------------------------------------------------------------


def downgraded(member: Member, view: ClusterView) -> classic_state.Member:
    """The same in a classic group. Assigned is what it holds, for it is all it has until it rejoins."""
    metadata, classic = member.metadata, member.metadata.classic
    assert classic is not None, "only members of the classic protocol can form a classic group"
    held = by_topic_name(member.held, view)
    _, subscription = classic.supported_protocols[0]
    return classic_state.Member(
        member_id=member.member_id,
        instance_id=metadata.instance_id,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        rebalance_timeout_ms=metadata.rebalance_timeout_ms,
        session_timeout_ms=classic.session_timeout_ms,
        protocols=tuple(JoinProtocol(name, bytes_) for name, bytes_ in classic.supported_protocols),
        assignment=encode_assignment(held, version=assignment_version(subscription)),
    )
