# SPDX-License-Identifier: Apache-2.0
"""Writes the records of one KIP-848 group.

Read next: consumer/rebalance.py; wire/coordinator/consumer_group_records.py for the records themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.machines.groups.consumer.member import Member, Partitions, topics_of
from headrace.machines.machine import Step
from headrace.wire.coordinator.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentRecord,
    ConsumerGroupMemberMetadata,
    ConsumerGroupMemberMetadataRecord,
    ConsumerGroupMetadata,
    ConsumerGroupMetadataRecord,
    ConsumerGroupRegularExpressionRecord,
    ConsumerGroupTargetAssignmentMemberRecord,
    ConsumerGroupTargetAssignmentMetadataRecord,
    ResolvedRegularExpression,
    TargetAssignmentMetadata,
)


class GroupWriter:
    """Collects the records of one step."""

    __slots__ = ("_group_id", "_step")

    def __init__(self, step: Step, group_id: str) -> None:
        self._step = step
        self._group_id = group_id

    def epoch(self, epoch: int, metadata_hash: int) -> None:
        value = ConsumerGroupMetadata(epoch=epoch, metadata_hash=metadata_hash)
        self._step.emit(ConsumerGroupMetadataRecord(group_id=self._group_id, value=value))

    def member(self, member_id: str, metadata: ConsumerGroupMemberMetadata | None) -> None:
        self._step.emit(
            ConsumerGroupMemberMetadataRecord(group_id=self._group_id, member_id=member_id, value=metadata)
        )

    def current(self, member: Member) -> None:
        self._step.emit(
            ConsumerGroupCurrentMemberAssignmentRecord(
                group_id=self._group_id, member_id=member.member_id, value=member.current()
            )
        )

    def target(self, member_id: str, partitions: Partitions) -> None:
        self._step.emit(
            ConsumerGroupTargetAssignmentMemberRecord(
                group_id=self._group_id, member_id=member_id, value=topics_of(partitions)
            )
        )

    def target_epoch(self, epoch: int) -> None:
        value = TargetAssignmentMetadata(assignment_epoch=epoch, assignment_timestamp=self._step.now.wall_ms)
        self._step.emit(ConsumerGroupTargetAssignmentMetadataRecord(group_id=self._group_id, value=value))

    def regex(self, regex: str, resolved: ResolvedRegularExpression | None) -> None:
        self._step.emit(
            ConsumerGroupRegularExpressionRecord(
                group_id=self._group_id, regular_expression=regex, value=resolved
            )
        )

    def member_is_gone(self, member_id: str) -> None:
        """Tombstones of a member, the subscription's last: Kafka cannot load another order."""
        self._no_current(member_id)
        self._no_target(member_id)
        self.member(member_id, None)

    def _no_current(self, member_id: str) -> None:
        self._step.emit(
            ConsumerGroupCurrentMemberAssignmentRecord(
                group_id=self._group_id, member_id=member_id, value=None
            )
        )

    def _no_target(self, member_id: str) -> None:
        self._step.emit(
            ConsumerGroupTargetAssignmentMemberRecord(
                group_id=self._group_id, member_id=member_id, value=None
            )
        )

    def group_is_gone(self, member_ids: Sequence[str], regexes: Sequence[str]) -> None:
        """The tombstones of a whole group, in Kafka's order."""
        for member_id in member_ids:
            self._no_current(member_id)
        for member_id in member_ids:
            self._no_target(member_id)
        self._step.emit(ConsumerGroupTargetAssignmentMetadataRecord(group_id=self._group_id, value=None))
        for member_id in member_ids:
            self.member(member_id, None)
        for regex in regexes:
            self.regex(regex, None)
        self._step.emit(ConsumerGroupMetadataRecord(group_id=self._group_id, value=None))
