# SPDX-License-Identifier: Apache-2.0
"""The state of a KIP-848 group as the fold of its records: what compaction and older releases leave."""

from __future__ import annotations

from headrace.machines.groups.consumer.member import Member
from headrace.machines.groups.consumer.state import ConsumerGroupState
from headrace.wire.coordinator.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentRecord,
    ConsumerGroupMemberMetadata,
    ConsumerGroupMemberMetadataRecord,
    ConsumerGroupMetadata,
    ConsumerGroupMetadataRecord,
    ConsumerGroupRecord,
    ConsumerGroupRegularExpressionRecord,
    ConsumerGroupTargetAssignmentMemberRecord,
    ConsumerGroupTargetAssignmentMetadataRecord,
    CurrentMemberAssignment,
    TopicPartitions,
)
from tests.harness.groups.consumer_groups import Consumer, GroupDriver, beat_until_stable, topic_id

T = topic_id("t")


def state_of(*records: ConsumerGroupRecord) -> ConsumerGroupState:
    state = ConsumerGroupState("g")
    for record in records:
        state.apply(record)
    return state


def subscription(member_id: str, *topics: str) -> ConsumerGroupRecord:
    value = ConsumerGroupMemberMetadata(client_id="", client_host="", subscribed_topic_names=topics)
    return ConsumerGroupMemberMetadataRecord(group_id="g", member_id=member_id, value=value)


def current(member_id: str, epoch: int, *partitions: int) -> ConsumerGroupRecord:
    topics = (TopicPartitions(topic_id=T, partitions=partitions),) if partitions else ()
    return ConsumerGroupCurrentMemberAssignmentRecord(
        group_id="g",
        member_id=member_id,
        value=CurrentMemberAssignment(
            member_epoch=epoch, previous_member_epoch=epoch, state=0, assigned_partitions=topics
        ),
    )


def test_the_order_of_subscription_and_assignment_does_not_matter() -> None:
    one = state_of(subscription("a", "t"), current("a", 3, 0))
    other = state_of(current("a", 3, 0), subscription("a", "t"))
    assert one.snapshot() == other.snapshot()
    assert one.members["a"].member_epoch == 3
    assert one.topic_subscribers == {"t": 1}


def test_records_of_releases_before_4_3_count_partitions_from_the_members_epoch() -> None:
    state = state_of(current("a", 7, 0, 1))
    assert state.members["a"].assignment_epoch(T, 1) == 7
    assert state.members["a"].assignment_epoch(T, 2) is None


def test_the_last_record_of_a_partition_decides_its_owner() -> None:
    state = state_of(current("a", 3, 0), current("b", 4, 0), current("a", 4, 1))
    assert (state.holder_of(T, 0), state.holder_of(T, 1)) == ("b", "a")


def test_tombstones_of_what_is_unknown_are_nothing() -> None:
    state = state_of(
        ConsumerGroupCurrentMemberAssignmentRecord(group_id="g", member_id="a", value=None),
        ConsumerGroupTargetAssignmentMemberRecord(group_id="g", member_id="a", value=None),
        ConsumerGroupMemberMetadataRecord(group_id="g", member_id="a", value=None),
        ConsumerGroupRegularExpressionRecord(group_id="g", regular_expression="x", value=None),
        ConsumerGroupTargetAssignmentMetadataRecord(group_id="g", value=None),
        ConsumerGroupMetadataRecord(group_id="g", value=None),
    )
    assert state.snapshot() == ConsumerGroupState("g").snapshot()
    assert not state.exists


def test_a_members_tombstone_alone_frees_what_it_held() -> None:
    state = state_of(
        subscription("a", "t"),
        current("a", 3, 0),
        ConsumerGroupMemberMetadataRecord(group_id="g", member_id="a", value=None),
    )
    assert (state.members, state.topic_subscribers, state.holder_of(T, 0)) == ({}, {}, None)
    assert state.state == "Empty"


def test_a_deleted_and_recreated_group_starts_empty() -> None:
    state = state_of(
        ConsumerGroupMetadataRecord(group_id="g", value=ConsumerGroupMetadata(epoch=9, metadata_hash=5)),
        ConsumerGroupMetadataRecord(group_id="g", value=None),
        subscription("a", "t"),
    )
    assert (state.exists, state.group_epoch, state.metadata_hash) == (True, 1, 0)


def test_a_snapshot_is_not_changed_by_later_records() -> None:
    state = state_of(subscription("a", "t"), current("a", 3, 0))
    before = state.snapshot()
    state.apply(current("a", 4, 1))
    state.apply(subscription("b", "t"))
    assert before == state_of(subscription("a", "t"), current("a", 3, 0)).snapshot()
    assert before["members"]["a"] == Member(
        member_id="a",
        metadata=state.members["a"].metadata,
        member_epoch=3,
        previous_member_epoch=3,
        assigned={T: {0: 3}},
    )


def test_a_machine_loaded_in_the_middle_of_a_rebalance_finishes_it() -> None:
    group = GroupDriver({"t": 4})
    first, second = Consumer(group, "first", "t"), Consumer(group, "second", "t")
    beat_until_stable(first)
    second.beat()
    for compacted in (False, True):
        first.beat()
        group.reload(compacted=compacted)
    beat_until_stable(first, second)
    assert (first.load, second.load) == (2, 2)
