# SPDX-License-Identifier: Apache-2.0
"""Rules of a classic group for commits, offset expiry and descriptions.

Implements offsets.Membership. Changes nothing but the session of a member that commits.
Read next: groups/offsets.py.
"""

from __future__ import annotations

from headrace.errors import ApiError
from headrace.machines.groups.classic.rebalance import Rebalance
from headrace.machines.groups.classic.state import ClassicState, GroupState, Member
from headrace.machines.groups.events import (
    NO_MEMBER_ID,
    DescribedMember,
    GroupDescription,
    OffsetCommit,
    OffsetFetch,
)
from headrace.machines.machine import Step
from headrace.wire.coordinator.group_records import NO_TIMESTAMP, CommittedOffset
from headrace.wire.error_codes import ErrorCode

GROUP_TYPE = "Classic"


class ClassicMembership:
    def __init__(self, group: ClassicState, rebalance: Rebalance) -> None:
        self._group = group
        self._rebalance = rebalance

    @property
    def exists(self) -> bool:
        return self._group.state is not GroupState.DEAD

    @property
    def generation(self) -> int:
        return self._group.generation

    @property
    def is_empty(self) -> bool:
        return self._group.state in (GroupState.EMPTY, GroupState.DEAD)

    def check_offset_commit(self, commit: OffsetCommit) -> None:
        group = self._group
        if commit.generation < 0 and self.is_empty:
            return  # an admin tool, or a consumer without membership
        anonymous = (
            commit.generation < 0 and commit.member_id == NO_MEMBER_ID and commit.group_instance_id is None
        )
        if not anonymous:
            error = group.check_member(commit.member_id, commit.group_instance_id)
            if error is not ErrorCode.none:
                raise ApiError(error)
            if commit.generation != group.generation:
                raise ApiError(ErrorCode.illegal_generation)
        elif not commit.transactional and not self.is_empty:
            raise ApiError(ErrorCode.unknown_member_id)
        if not commit.transactional and group.state is GroupState.COMPLETING_REBALANCE:
            # It has the new generation, and its assignment follows: no need to rejoin.
            raise ApiError(ErrorCode.rebalance_in_progress)

    def committed(self, step: Step, commit: OffsetCommit) -> None:
        """A commit extends the session like a heartbeat."""
        member = self._group.members.get(commit.member_id)
        if member is not None and not commit.transactional:
            self._rebalance.expect_heartbeat(step, member)

    def check_offset_fetch(self, fetch: OffsetFetch) -> None:
        """Anyone may read a classic group's offsets."""

    def check_offset_delete(self) -> None:
        """Offsets of unsubscribed topics can be deleted in a consumer group; others only when empty."""
        if not self.is_empty and not self._group.uses_consumer_protocol:
            raise ApiError(ErrorCode.non_empty_group)

    def subscribes_to(self, topic: str) -> bool:
        """Offsets of subscribed topics neither expire nor can be deleted."""
        subscribed = self._group.subscribed
        return self._group.uses_consumer_protocol if subscribed is None else topic in subscribed

    def retention_starts(self, committed: CommittedOffset) -> int | None:
        """When an offset's retention starts; None: it does not expire."""
        group = self._group
        if group.protocol_type is None:  # no membership: retention counts from each commit
            return committed.commit_timestamp
        if group.state is GroupState.EMPTY:
            became_empty = group.state_timestamp
            return committed.commit_timestamp if became_empty == NO_TIMESTAMP else became_empty
        if group.uses_consumer_protocol and group.subscribed is not None and group.state is GroupState.STABLE:
            return committed.commit_timestamp
        return None

    def describe(self) -> GroupDescription:
        group = self._group
        stable = group.state is GroupState.STABLE
        return GroupDescription(
            group_id=group.group_id,
            state=group.state.value,
            group_type=GROUP_TYPE,
            protocol_type=group.protocol_type or "",
            protocol=(group.protocol or "") if stable else "",
            members=tuple(_described(m, group.protocol if stable else None) for m in group.members.values()),
        )


def _described(member: Member, protocol: str | None) -> DescribedMember:
    return DescribedMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        metadata=member.metadata(protocol) or b"",
        assignment=member.assignment,
    )
