# SPDX-License-Identifier: Apache-2.0
"""A member of a KIP-848 group: its subscription, epochs and partitions.

Values only; a change is a new `Member`. Knows no group and no record log.
Read next: reconcile.py (how a member gets from what it holds to its target).
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from headrace.types import TopicId
from headrace.wire.coordinator.consumer_group_records import (
    ConsumerGroupMemberMetadata,
    CurrentMemberAssignment,
    TopicPartitions,
)

Partitions = Mapping[TopicId, frozenset[int]]
"""Partitions by topic. Never holds an empty set; never changed in place."""

HeldPartitions = Mapping[TopicId, Mapping[int, int]]
"""Partitions by topic, each with the member epoch at which it was given; otherwise as `Partitions`."""

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2


class MemberState(enum.IntEnum):
    """Numbers as the records have them.

    STABLE: holds its whole target of `member_epoch`. Exits: a newer target.
    UNREVOKED_PARTITIONS: has been told to give up `pending_revocation` and stays in its epoch until a
    heartbeat no longer lists them. Exits: that heartbeat; rebalance time-out (fenced).
    UNRELEASED_PARTITIONS: in the target's epoch, waits for partitions that others still hold.
    UNKNOWN: written by a newer release; the member has to start again without partitions.
    """

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


NEW_MEMBER_METADATA = ConsumerGroupMemberMetadata(client_id="", client_host="", subscribed_topic_regex="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    member_id: str
    metadata: ConsumerGroupMemberMetadata = NEW_MEMBER_METADATA
    member_epoch: int = JOIN_EPOCH
    previous_member_epoch: int = -1
    """The epoch before the last step: a member that did not get the reply comes again with it."""
    state: MemberState = MemberState.STABLE
    assigned: HeldPartitions = field(default_factory=dict)
    pending_revocation: HeldPartitions = field(default_factory=dict)

    @property
    def instance_id(self) -> str | None:
        return self.metadata.instance_id

    @property
    def regex(self) -> str | None:
        """The regular expression it subscribes with; the wire has "" and null for none."""
        return self.metadata.subscribed_topic_regex or None

    @property
    def uses_classic_protocol(self) -> bool:
        return self.metadata.classic is not None

    @property
    def held(self) -> Mapping[TopicId, Collection[int]]:
        """Assigned partitions and those with a pending revocation."""
        if not self.pending_revocation:
            return self.assigned
        topics = self.assigned.keys() | self.pending_revocation.keys()
        return {
            topic: [*self.assigned.get(topic, ()), *self.pending_revocation.get(topic, ())]
            for topic in topics
        }

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == epoch

    def assignment_epoch(self, topic_id: TopicId, partition: int) -> int | None:
        """The epoch at which a partition was given to it, None when it does not hold the partition."""
        for held in (self.assigned, self.pending_revocation):
            epoch = held.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None

    def with_current(self, value: CurrentMemberAssignment) -> Member:
        """The member with the state of its latest assignment record."""
        return replace(
            self,
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=_state(value.state),
            assigned=_held(value.assigned_partitions, value.member_epoch),
            pending_revocation=_held(value.partitions_pending_revocation, value.member_epoch),
        )

    def current(self) -> CurrentMemberAssignment:
        """The contents of its assignment record."""
        return CurrentMemberAssignment(
            member_epoch=self.member_epoch,
            previous_member_epoch=self.previous_member_epoch,
            state=self.state,
            assigned_partitions=_held_topics(self.assigned),
            partitions_pending_revocation=_held_topics(self.pending_revocation),
        )

    def away(self) -> Member:
        """A static member that left temporarily: it keeps its partitions until its session expires.

        The epochs of its partitions become 0, so that its successor may commit with any epoch.
        """
        return replace(
            self,
            member_epoch=STATIC_LEAVE_EPOCH,
            assigned={
                topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in self.assigned.items()
            },
            pending_revocation={},
        )

    def succeeded_by(self, member_id: str) -> Member:
        """The same static member under a new member id, with its partitions."""
        return replace(self, member_id=member_id, member_epoch=JOIN_EPOCH, previous_member_epoch=JOIN_EPOCH)

    def gone(self) -> Member:
        """The state between its assignment's tombstone and its own."""
        return replace(
            self,
            member_epoch=LEAVE_EPOCH,
            previous_member_epoch=LEAVE_EPOCH,
            assigned={},
            pending_revocation={},
        )


def _state(number: int) -> MemberState:
    try:
        return MemberState(number)
    except ValueError:
        return MemberState.UNKNOWN


def _held(topics: Iterable[TopicPartitions], member_epoch: int) -> HeldPartitions:
    """Kafka before 4.3 wrote no assignment epochs: then the member's own epoch is the safe reading."""
    held: dict[TopicId, Mapping[int, int]] = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            held[topic.topic_id] = dict.fromkeys(topic.partitions, member_epoch)
        else:
            held[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return held


def _held_topics(held: HeldPartitions) -> tuple[TopicPartitions, ...]:
    """Sorted, so that equal states have equal bytes."""
    return tuple(
        TopicPartitions(
            topic_id=topic_id,
            partitions=tuple(sorted(partitions)),
            assignment_epochs=tuple(partitions[partition] for partition in sorted(partitions)),
        )
        for topic_id, partitions in sorted(held.items())
    )


def partitions_of(topics: Iterable[TopicPartitions]) -> Partitions:
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics if topic.partitions}


def topics_of(partitions: Partitions) -> tuple[TopicPartitions, ...]:
    """Sorted, so that equal states have equal bytes."""
    return tuple(
        TopicPartitions(topic_id=topic_id, partitions=tuple(sorted(numbers)))
        for topic_id, numbers in sorted(partitions.items())
    )


def supplied_bytes(metadata: ConsumerGroupMemberMetadata) -> int:
    """Memory that a member's subscription takes, as far as the member decides it."""
    texts = (metadata.client_id, metadata.subscribed_topic_regex, metadata.instance_id, metadata.rack_id)
    classic = () if metadata.classic is None else metadata.classic.supported_protocols
    return (
        sum(map(len, metadata.subscribed_topic_names))
        + sum(len(text) for text in texts if text)
        + sum(len(name) + len(data) for name, data in classic)
    )
