# SPDX-License-Identifier: Apache-2.0
"""The durable state of one KIP-848 group, built only from its records (R33).

`apply` is the only mutator and runs live and at load. It takes any order that compaction can leave behind and
refuses nothing: what it is given has been committed. Decides nothing. Read next: consumer/group.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from headrace.machines.groups.consumer.member import (
    HeldPartitions,
    Member,
    Partitions,
    partitions_of,
    supplied_bytes,
)
from headrace.types import TopicId
from headrace.wire.coordinator.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentRecord,
    ConsumerGroupMemberMetadataRecord,
    ConsumerGroupMetadataRecord,
    ConsumerGroupRegularExpressionRecord,
    ConsumerGroupTargetAssignmentMemberRecord,
    ConsumerGroupTargetAssignmentMetadataRecord,
    ResolvedRegularExpression,
)
from headrace.wire.coordinator.record import CoordinatorRecord

FIRST_EPOCH = 1
"""Of the group and of its target, as long as no record says another."""


class ConsumerGroupState:
    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self._forget()

    def _forget(self) -> None:
        self.exists = False
        self.group_epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_timestamp = 0
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.target: dict[str, Partitions] = {}
        self.resolved: dict[str, ResolvedRegularExpression] = {}
        self.topic_subscribers: dict[str, int] = {}
        self.regex_subscribers: dict[str, int] = {}
        self.supplied_bytes = 0
        """Of the subscriptions of all members."""
        self._regex_topics: dict[str, int] = {}
        """How many resolved expressions match a topic."""
        self._holders: dict[TopicId, dict[int, str]] = {}

    # --- questions -------------------------------------------------------------------------------------

    def holder_of(self, topic_id: TopicId, partition: int) -> str | None:
        """The owner of a partition: assigned to it, or its revocation is pending."""
        return self._holders.get(topic_id, {}).get(partition)

    def static_member(self, instance_id: str) -> Member | None:
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def subscribed_topics(self) -> set[str]:
        """Every topic that a member names or a resolved regular expression matched."""
        return self.topic_subscribers.keys() | self._regex_topics.keys()

    def subscribes_to(self, topic: str) -> bool:
        return topic in self.topic_subscribers or topic in self._regex_topics

    def server_assignors(self) -> dict[str, int]:
        """How many members ask for which assignor."""
        counts: dict[str, int] = {}
        for member in self.members.values():
            if (name := member.metadata.server_assignor) is not None:
                counts[name] = counts.get(name, 0) + 1
        return counts

    @property
    def state(self) -> str:
        """The group state in Kafka's spelling."""
        if not self.exists:
            return "Dead"
        if not self.members:
            return "Empty"
        if self.group_epoch > self.assignment_epoch:
            return "Assigning"
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    def snapshot(self) -> dict[str, Any]:
        return {name: _copied(value) for name, value in vars(self).items()}

    # --- records ---------------------------------------------------------------------------------------

    def apply(self, record: CoordinatorRecord) -> None:
        _APPLY[type(record)](self, record)

    def _apply_group(self, record: ConsumerGroupMetadataRecord) -> None:
        if record.value is None:
            self._forget()
            return
        self.exists = True
        self.group_epoch = record.value.epoch
        self.metadata_hash = record.value.metadata_hash

    def _apply_member(self, record: ConsumerGroupMemberMetadataRecord) -> None:
        old = self.members.get(record.member_id)
        if record.value is not None:
            self.exists = True
            self._put(old, replace(old or Member(member_id=record.member_id), metadata=record.value))
        elif old is not None:
            self._remove(old)

    def _apply_current(self, record: ConsumerGroupCurrentMemberAssignmentRecord) -> None:
        old = self.members.get(record.member_id)
        if record.value is not None:
            # After compaction a member's assignment may come before its subscription.
            self.exists = True
            self._put(old, (old or Member(member_id=record.member_id)).with_current(record.value))
        elif old is not None:
            self._put(old, old.gone())

    def _apply_target(self, record: ConsumerGroupTargetAssignmentMemberRecord) -> None:
        if record.value is None:
            self.target.pop(record.member_id, None)
        else:
            self.exists = True
            self.target[record.member_id] = partitions_of(record.value)

    def _apply_target_epoch(self, record: ConsumerGroupTargetAssignmentMetadataRecord) -> None:
        if record.value is None:
            self.assignment_epoch = FIRST_EPOCH
            self.assignment_timestamp = 0
            return
        self.exists = True
        self.assignment_epoch = record.value.assignment_epoch
        self.assignment_timestamp = record.value.assignment_timestamp

    def _apply_regex(self, record: ConsumerGroupRegularExpressionRecord) -> None:
        old = self.resolved.pop(record.regular_expression, None)
        for topic in old.topics if old else ():
            _add(self._regex_topics, topic, -1)
        if record.value is not None:
            self.exists = True
            self.resolved[record.regular_expression] = record.value
            for topic in record.value.topics:
                _add(self._regex_topics, topic, +1)

    # --- members and what is derived from them -----------------------------------------------------------

    def _put(self, old: Member | None, new: Member) -> None:
        self.members[new.member_id] = new
        if new.instance_id is not None:
            self.static_members[new.instance_id] = new.member_id
        if old is None or old.metadata is not new.metadata:
            self._count(old, -1)
            self._count(new, +1)
        if old is not None:
            self._release(old.member_id, old.assigned)
            self._release(old.member_id, old.pending_revocation)
        self._hold(new.member_id, new.assigned)
        self._hold(new.member_id, new.pending_revocation)

    def _remove(self, member: Member) -> None:
        del self.members[member.member_id]
        instance_id = member.instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member.member_id:
            del self.static_members[instance_id]
        self._count(member, -1)
        self._release(member.member_id, member.assigned)
        self._release(member.member_id, member.pending_revocation)

    def _count(self, member: Member | None, change: int) -> None:
        if member is None:
            return
        self.supplied_bytes += change * supplied_bytes(member.metadata)
        for topic in member.metadata.subscribed_topic_names:
            _add(self.topic_subscribers, topic, change)
        if member.regex is not None:
            _add(self.regex_subscribers, member.regex, change)

    def _hold(self, member_id: str, held: HeldPartitions) -> None:
        for topic_id, partitions in held.items():
            self._holders.setdefault(topic_id, {}).update(dict.fromkeys(partitions, member_id))

    def _release(self, member_id: str, held: HeldPartitions) -> None:
        for topic_id, partitions in held.items():
            holders = self._holders.get(topic_id, {})
            for partition in partitions:
                if holders.get(partition) == member_id:
                    del holders[partition]
            if not holders:
                self._holders.pop(topic_id, None)


_APPLY: Mapping[type[CoordinatorRecord], Callable[[ConsumerGroupState, Any], None]] = {
    ConsumerGroupMetadataRecord: ConsumerGroupState._apply_group,
    ConsumerGroupMemberMetadataRecord: ConsumerGroupState._apply_member,
    ConsumerGroupCurrentMemberAssignmentRecord: ConsumerGroupState._apply_current,
    ConsumerGroupTargetAssignmentMemberRecord: ConsumerGroupState._apply_target,
    ConsumerGroupTargetAssignmentMetadataRecord: ConsumerGroupState._apply_target_epoch,
    ConsumerGroupRegularExpressionRecord: ConsumerGroupState._apply_regex,
}


def _add(counts: dict[str, int], key: str, change: int) -> None:
    count = counts.get(key, 0) + change
    if count:
        counts[key] = count
    else:
        del counts[key]


def _copied(value: Any) -> Any:
    """Deep enough that later records do not change it: inner values are never changed in place."""
    if not isinstance(value, dict):
        return value
    return {key: dict(inner) if type(inner) is dict else inner for key, inner in value.items()}
