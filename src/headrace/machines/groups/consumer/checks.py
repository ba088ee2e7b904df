# SPDX-License-Identifier: Apache-2.0
"""Validation of KIP-848 requests, with Apache Kafka's error codes, messages and order.

Functions that raise ApiError or return; nothing is changed here. Read next: consumer/group.py.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.errors import ApiError, ErrorCode
from headrace.machines.groups.consumer.events import ConsumerGroupConfig, ConsumerGroupHeartbeat
from headrace.machines.groups.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    HeldPartitions,
    Member,
    MemberState,
    Partitions,
    supplied_bytes,
)
from headrace.machines.groups.consumer.state import ConsumerGroupState
from headrace.machines.groups.events import NO_GENERATION, NO_MEMBER_ID
from headrace.types import TopicId
from headrace.wire.coordinator.consumer_group_records import ConsumerGroupMemberMetadata

PartitionCheck = Callable[[str, TopicId, int], None]
"""(topic, its id, partition) of one offset to commit; raises ApiError for the whole request."""

CLIENT_NAMES_ITSELF = 1
"""First ConsumerGroupHeartbeat version in which the member brings its own id."""

KNOWS_MEMBER_EPOCH = 9
"""First OffsetCommit version that KIP-848 members may use."""


def check_request(group_id: str, request: ConsumerGroupHeartbeat, config: ConsumerGroupConfig) -> None:
    """Checks that need only the request."""
    epoch = request.member_epoch
    if request.version >= CLIENT_NAMES_ITSELF or epoch > 0 or epoch == LEAVE_EPOCH:
        _refuse_blank(request.member_id, "MemberId")
    _refuse_blank(group_id, "GroupId")
    if request.instance_id is not None:
        _refuse_blank(request.instance_id, "InstanceId")
    if request.rack_id is not None:
        _refuse_blank(request.rack_id, "RackId")
    if epoch == JOIN_EPOCH:
        _check_join(request)
    elif epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif epoch < STATIC_LEAVE_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in config.assignors:
        raise ApiError(
            ErrorCode.unsupported_assignor,
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(config.assignors)}.",
        )


def _check_join(request: ConsumerGroupHeartbeat) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.owned_partitions is None or request.owned_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
        )


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.invalid_request, message)


def _refuse_blank(value: str, field: str) -> None:
    if not value.strip():
        raise _invalid(f"{field} can't be empty.")


def check_room(state: ConsumerGroupState, member_id: str, config: ConsumerGroupConfig) -> None:
    if len(state.members) >= config.max_size and member_id not in state.members:
        raise ApiError(
            ErrorCode.group_max_size_reached,
            f"The consumer group has reached its maximum capacity of {config.max_size} members.",
        )


def check_bytes(
    state: ConsumerGroupState,
    member_id: str,
    metadata: ConsumerGroupMemberMetadata,
    config: ConsumerGroupConfig,
) -> None:
    """S1: what members supply is kept in memory; `metadata` is the new subscription of this one."""
    before = state.members.get(member_id)
    own = 0 if before is None else supplied_bytes(before.metadata)
    if supplied_bytes(metadata) + state.supplied_bytes - own > config.max_bytes:
        raise ApiError(
            ErrorCode.group_max_size_reached,
            f"The subscriptions of the consumer group exceed {config.max_bytes} bytes "
            "(headrace.group.max.bytes).",
        )


def known_member(state: ConsumerGroupState, member_id: str) -> Member:
    member = state.members.get(member_id)
    if member is None:
        raise ApiError(
            ErrorCode.unknown_member_id, f"Member {member_id} is not a member of group {state.group_id}."
        )
    return member


def known_static_member(state: ConsumerGroupState, instance_id: str, member_id: str) -> Member:
    """The static member; its member id must match the request."""
    member = state.static_member(instance_id)
    if member is None:
        raise ApiError(ErrorCode.unknown_member_id, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise ApiError(
            ErrorCode.fenced_instance_id,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{member.member_id}.",
        )
    return member


def check_released(member: Member, instance_id: str, member_id: str) -> None:
    """A static member can be replaced only after it has left."""
    if member.member_epoch != STATIC_LEAVE_EPOCH:
        raise ApiError(
            ErrorCode.unreleased_instance_id,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the "
            f"instance id is owned by {member.member_id} member.",
        )


def check_epoch(member: Member, epoch: int, owned: Partitions | None) -> None:
    """The member's epoch, or the one before it when the member may have missed the last reply."""
    if epoch in (JOIN_EPOCH, member.member_epoch):
        return
    if epoch == member.previous_member_epoch < member.member_epoch and _within(owned, member.assigned):
        return
    relation = "greater" if epoch > member.member_epoch else "smaller"
    raise ApiError(
        ErrorCode.fenced_member_epoch,
        f"The consumer group member has a {relation} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({member.member_epoch}). The member must abandon all its partitions and rejoin.",
    )


def _within(owned: Partitions | None, assigned: HeldPartitions) -> bool:
    if owned is None:
        return False
    return all(
        topic_id in assigned and partitions <= assigned[topic_id].keys()
        for topic_id, partitions in owned.items()
    )


def check_understood(member: Member, owned: Partitions | None) -> None:
    """A member in an unknown state, written by a newer release, must rejoin without partitions."""
    if member.state is MemberState.UNKNOWN and (owned is None or owned):
        raise ApiError(
            ErrorCode.fenced_member_epoch,
            "The consumer group member is in a unknown state. "
            "The member must abandon all its partitions and rejoin.",
        )


def check_regex(state: ConsumerGroupState, regex: str | None, problem: str | None) -> None:
    """Only expressions that are new to the group are checked."""
    if regex and regex not in state.regex_subscribers and problem is not None:
        raise ApiError(
            ErrorCode.invalid_regular_expression,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {problem}.",
        )


def check_offset_commit(
    state: ConsumerGroupState,
    *,
    member_id: str,
    instance_id: str | None,
    epoch: int,
    transactional: bool,
    version: int,
) -> PartitionCheck | None:
    """None: every partition may be committed. Else each partition has to pass what is returned (KIP-1251)."""
    if epoch < 0 and not state.members:
        return None
    if transactional and epoch == NO_GENERATION and member_id == NO_MEMBER_ID and instance_id is None:
        return None
    member = known_member(state, member_id)
    if not transactional and not member.uses_classic_protocol and version < KNOWS_MEMBER_EPOCH:
        raise ApiError(
            ErrorCode.unsupported_version,
            "OffsetCommit version 9 or above must be used by members using the consumer group protocol",
        )
    if epoch == member.member_epoch:
        return None
    if epoch > member.member_epoch:
        raise _stale(
            member,
            f"Received {_epoch_word(member)} {epoch} is newer than current member epoch "
            f"{member.member_epoch}.",
        )
    return _older_epoch_check(member, epoch)


def _older_epoch_check(member: Member, epoch: int) -> PartitionCheck:
    """A commit with an older epoch is valid if the member owned the partition then and still does."""

    def check(topic: str, topic_id: TopicId, partition: int) -> None:
        given_at = member.assignment_epoch(topic_id, partition)
        where = f"{topic}-{partition}"
        if given_at is None:
            raise _stale(member, f"Partition {where} is not assigned or pending revocation for member.")
        if epoch < given_at:
            raise _stale(
                member,
                f"Received {_epoch_word(member)} {epoch} is older than assignment epoch {given_at} "
                f"for partition {where}.",
            )

    return check


def _epoch_word(member: Member) -> str:
    """Classic members have generations, not member epochs."""
    return "generation id" if member.uses_classic_protocol else "member epoch"


def _stale(member: Member, message: str) -> ApiError:
    code = ErrorCode.illegal_generation if member.uses_classic_protocol else ErrorCode.stale_member_epoch
    return ApiError(code, message)


def check_offset_fetch(state: ConsumerGroupState, *, member_id: str | None, epoch: int) -> None:
    if member_id is None and epoch < 0:
        return
    member = known_member(state, member_id or NO_MEMBER_ID)
    if epoch != member.member_epoch:
        raise _stale(
            member,
            f"The received {_epoch_word(member)} {epoch} does not match the expected member epoch "
            f"{member.member_epoch}.",
        )
