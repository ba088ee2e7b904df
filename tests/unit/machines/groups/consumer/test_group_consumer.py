# SPDX-License-Identifier: Apache-2.0
"""A KIP-848 group, heartbeat by heartbeat: epochs, who is told what, and the drawn rebalances."""

from __future__ import annotations

import pytest

from headrace.machines.groups.consumer.events import ConsumerGroupHeartbeatReply
from headrace.machines.groups.consumer.member import MemberState
from headrace.machines.groups.events import DeleteGroup, ErrorReply, RetentionCheck
from headrace.wire.coordinator.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentRecord,
    ConsumerGroupMemberMetadataRecord,
    ConsumerGroupMetadataRecord,
    ConsumerGroupTargetAssignmentMemberRecord,
    ConsumerGroupTargetAssignmentMetadataRecord,
    CurrentMemberAssignment,
    TopicPartitions,
)
from headrace.wire.error_codes import ErrorCode
from tests.harness.groups.consumer_groups import Consumer, GroupDriver, beat_until_stable, topic_id

T = topic_id("t")


def parts(*numbers: int) -> dict[object, frozenset[int]]:
    return {T: frozenset(numbers)} if numbers else {}


def group_of(count: int, partitions: int) -> tuple[GroupDriver, list[Consumer]]:
    """Members c0, c1, … that have joined one after the other and hold their assignments."""
    group = GroupDriver({"t": partitions})
    consumers: list[Consumer] = []
    for number in range(count):
        consumers.append(Consumer(group, f"c{number}", "t"))
        beat_until_stable(*consumers)
    return group, consumers


def test_the_first_member_joins_and_has_everything_in_the_same_reply() -> None:
    group = GroupDriver({"t": 3})
    reply = group.join("a", "t")
    assert reply == ConsumerGroupHeartbeatReply(
        member_id="a", member_epoch=2, heartbeat_interval_ms=5_000, assignment=parts(0, 1, 2)
    )
    assert group.machine.describe().state == "Stable"


def test_a_join_writes_subscription_epoch_target_and_assignment_in_that_order() -> None:
    group = GroupDriver({"t": 1})
    _, effects = group.heartbeat_effects(
        "a", 0, rebalance_timeout_ms=1_000, subscribed_topic_names=("t",), owned_partitions={}
    )
    kinds = [type(record) for record in effects.records]
    assert kinds == [
        ConsumerGroupMemberMetadataRecord,
        ConsumerGroupMetadataRecord,
        ConsumerGroupTargetAssignmentMemberRecord,
        ConsumerGroupTargetAssignmentMetadataRecord,
        ConsumerGroupCurrentMemberAssignmentRecord,
    ]
    assert effects.records[-1] == ConsumerGroupCurrentMemberAssignmentRecord(
        group_id="group",
        member_id="a",
        value=CurrentMemberAssignment(
            member_epoch=2,
            previous_member_epoch=0,
            state=MemberState.STABLE,
            assigned_partitions=(TopicPartitions(topic_id=T, partitions=(0,), assignment_epochs=(2,)),),
        ),
    )


def test_a_quiet_heartbeat_writes_nothing_and_repeats_nothing() -> None:
    group = GroupDriver({"t": 3})
    epoch = group.join("a", "t").member_epoch
    reply, effects = group.heartbeat_effects("a", epoch)
    assert reply.assignment is None
    assert (effects.records, effects.timers, effects.timeline) == ([], [], [])


def test_a_full_heartbeat_is_answered_with_the_whole_assignment() -> None:
    group = GroupDriver({"t": 2})
    epoch = group.join("a", "t").member_epoch
    fields = {
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": ("t",),
        "owned_partitions": parts(0, 1),
    }
    assert group.heartbeat("a", epoch, **fields).assignment == parts(0, 1)
    del fields["rebalance_timeout_ms"]
    assert group.heartbeat("a", epoch, **fields).assignment is None


def test_before_version_1_the_coordinator_gives_the_member_its_id() -> None:
    group = GroupDriver({"t": 1})
    reply = group.join("", "t", version=0, fresh_member_id="fresh")
    assert reply.member_id == "fresh"
    assert group.heartbeat("fresh", reply.member_epoch, version=0).error is ErrorCode.none


def test_revoke_first_then_assign_epoch_by_epoch() -> None:
    group = GroupDriver({"t": 4})
    assert group.join("a", "t").assignment == parts(0, 1, 2, 3)
    joined = group.join("b", "t")
    assert (joined.member_epoch, joined.assignment) == (3, {})
    assert group.machine.state.members["b"].state is MemberState.UNRELEASED_PARTITIONS

    told = group.heartbeat("a", 2)
    assert (told.member_epoch, told.assignment) == (2, parts(0, 1)), "stays in its epoch until it has revoked"
    assert group.machine.state.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    assert group.heartbeat("b", 3).assignment is None, "still waits"
    assert group.heartbeat("a", 2, owned_partitions=parts(0, 1, 2, 3)).member_epoch == 2

    assert group.heartbeat("a", 2, owned_partitions=parts(0, 1)).member_epoch == 3
    got = group.heartbeat("b", 3)
    assert (got.member_epoch, got.assignment) == (3, parts(2, 3))
    assert group.machine.describe().state == "Stable"


def test_the_state_goes_through_kafkas_names() -> None:
    group = GroupDriver({"t": 2}, assignment_interval_ms=1_000)
    names = [group.machine.describe().state]
    group.join("a", "t")
    group.join("b", "t")
    names.append(group.machine.describe().state)
    group.advance(1_000)
    group.heartbeat("b", 2)
    names.append(group.machine.describe().state)
    group.heartbeat("a", 2)
    group.heartbeat("a", 2, owned_partitions=parts(0))
    group.heartbeat("b", 3)
    names.append(group.machine.describe().state)
    group.heartbeat("a", -1)
    group.heartbeat("b", -1)
    names.append(group.machine.describe().state)
    assert names == ["Dead", "Assigning", "Reconciling", "Stable", "Empty"]


def test_targets_are_computed_at_most_once_per_interval() -> None:
    group = GroupDriver({"t": 2}, assignment_interval_ms=1_000)
    assert group.join("a", "t").member_epoch == 2
    joined = group.join("b", "t")
    assert (joined.member_epoch, joined.assignment) == (2, {}), "joins under the target that is there"
    group.advance(999)
    assert group.heartbeat("a", 2).assignment is None
    group.advance(1)
    assert group.heartbeat("a", 2).assignment == parts(0)


def test_a_changed_subscription_raises_the_group_epoch_and_a_changed_client_does_not() -> None:
    group = GroupDriver({"t": 1, "u": 1})
    group.join("a", "t")
    assert group.heartbeat("a", 2, client_id="renamed").member_epoch == 2
    reply = group.heartbeat("a", 2, subscribed_topic_names=("u", "t"))
    assert reply.member_epoch == 3
    assert reply.assignment == {T: frozenset({0}), topic_id("u"): frozenset({0})}


def test_an_unsubscribed_topic_is_given_up_at_once_even_before_the_next_target() -> None:
    group = GroupDriver({"t": 2, "u": 1}, assignment_interval_ms=1_000)
    group.join("a", "t", "u")
    reply = group.heartbeat("a", 2, subscribed_topic_names=("u",))
    assert (reply.member_epoch, reply.assignment) == (2, {topic_id("u"): frozenset({0})})
    assert group.machine.state.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    reply = group.heartbeat("a", 2, owned_partitions={topic_id("u"): frozenset({0})})
    assert group.machine.state.holder_of(T, 0) is None


def test_a_topic_dropped_while_waiting_for_partitions_is_not_taken_from_the_old_target() -> None:
    group = GroupDriver({"t": 2, "u": 2}, assignment_interval_ms=1_000)
    group.join("a", "t", "u")
    group.advance(1_000)
    group.join("b", "t", "u")
    assert group.machine.state.members["b"].state is MemberState.UNRELEASED_PARTITIONS
    group.heartbeat("a", 2)
    aimed_at = group.machine.state.target["a"]
    assert group.heartbeat("a", 2, owned_partitions=aimed_at).member_epoch == 3
    dropped = next(name for name in ("t", "u") if topic_id(name) in group.machine.state.target["b"])
    group.heartbeat("b", 3, subscribed_topic_names=tuple({"t", "u"} - {dropped}))
    assert topic_id(dropped) in group.machine.state.target["b"], "the old target still says otherwise"
    assert topic_id(dropped) not in group.machine.state.members["b"].assigned


def test_most_members_choose_the_assignor() -> None:
    group = GroupDriver({"t": 4, "u": 1})
    group.join("a", "t", "u", server_assignor="range")
    assert group.machine.describe().assignor == "range"
    group.join("b", "t", "u", server_assignor="uniform")
    group.join("c", "t", "u", server_assignor="uniform")
    assert group.machine.describe().assignor == "uniform"


def test_range_gives_runs_and_uniform_counts_all_topics_together() -> None:
    loads = {}
    for assignor in ("range", "uniform"):
        group = GroupDriver({"t": 3, "u": 3})
        consumers = [Consumer(group, name, "t", "u") for name in ("a", "b")]
        for consumer in consumers:
            group.join(consumer.member_id, "t", "u", server_assignor=assignor)
            consumer.beat_and_process()
        beat_until_stable(*consumers)
        loads[assignor] = [consumer.load for consumer in consumers]
    assert loads == {"range": [4, 2], "uniform": [3, 3]}


def test_leaving_frees_the_partitions_for_the_next_heartbeat_of_the_others() -> None:
    _, (first, second) = group_of(2, 4)
    assert second.leave() is ErrorCode.none
    first.beat_and_process()
    assert first.numbers == {"t": [0, 1, 2, 3]}


def test_the_reply_to_leaving_echoes_the_leave() -> None:
    group = GroupDriver({"t": 1})
    group.join("a", "t")
    assert group.heartbeat("a", -1) == ConsumerGroupHeartbeatReply(member_id="a", member_epoch=-1)


def test_a_member_that_missed_the_reply_may_come_with_the_epoch_before() -> None:
    group = GroupDriver({"t": 2})
    group.join("a", "t")
    group.set_topics({"t": 3})
    assert group.heartbeat("a", 2).member_epoch == 3
    again = group.heartbeat(
        "a",
        2,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=("t",),
        owned_partitions=parts(0, 1),
    )
    assert (again.error, again.member_epoch, again.assignment) == (ErrorCode.none, 3, parts(0, 1, 2))


def test_a_member_that_joins_again_keeps_its_epoch_and_gets_the_whole_assignment() -> None:
    group = GroupDriver({"t": 2})
    group.join("a", "t")
    again = group.join("a", "t")
    assert (again.member_epoch, again.assignment) == (2, parts(0, 1))


def test_describe_returns_current_and_target_assignments() -> None:
    group = GroupDriver({"t": 2})
    group.join("a", "t", rack_id="r1")
    group.join("b", "t", instance_id="i2")
    description = group.machine.describe()
    assert (description.state, description.group_epoch, description.assignment_epoch) == ("Reconciling", 3, 3)
    first, second = description.members
    assert (first.member_id, first.rack_id, first.assignment, first.target) == (
        "a",
        "r1",
        {"t": (0, 1)},
        {"t": (0,)},
    )
    assert (second.instance_id, second.assignment, second.target) == ("i2", {}, {"t": (1,)})
    assert (second.member_epoch, second.member_type, second.subscribed_topic_names) == (3, 1, ("t",))


def test_deleting_needs_an_empty_group_and_leaves_nothing() -> None:
    group = GroupDriver({"t": 1})

    def delete() -> ErrorCode:
        effects = group.step(DeleteGroup(token=group.new_token(), version=2))
        body = effects.replies[0].body
        assert isinstance(body, ErrorReply)
        return body.error

    assert delete() is ErrorCode.group_id_not_found
    group.join("a", "t")
    assert delete() is ErrorCode.non_empty_group
    group.heartbeat("a", -1)
    assert delete() is ErrorCode.none
    assert group.machine.snapshot() == GroupDriver({"t": 1}).machine.snapshot()
    assert group.join("a", "t").member_epoch == 2


def test_an_unknown_event_is_a_programming_error() -> None:
    with pytest.raises(TypeError, match="does not understand RetentionCheck"):
        GroupDriver({"t": 1}).step(RetentionCheck())


def test_a_group_subscribes_to_what_its_members_name() -> None:
    group = GroupDriver({"t": 1})
    group.join("a", "t", "not-there-yet")
    assert group.machine.subscribes_to("t")
    assert group.machine.subscribes_to("not-there-yet")
    assert not group.machine.subscribes_to("u")


# --- the drawings ----------------------------------------------------------------------------------------


@pytest.mark.row("D10")
def test_four_partitions_over_three_consumers_the_fourth_goes_to_the_first() -> None:
    _, consumers = group_of(3, 4)
    assert [consumer.load for consumer in consumers] == [2, 1, 1]
    assert sorted(n for consumer in consumers for n in consumer.numbers["t"]) == [0, 1, 2, 3]


@pytest.mark.row("D11")
def test_a_partition_is_added_and_goes_to_the_least_loaded() -> None:
    group, consumers = group_of(3, 5)
    before = [consumer.numbers["t"] for consumer in consumers]
    least = min(consumers, key=lambda consumer: consumer.load)
    group.set_topics({"t": 6})
    beat_until_stable(*consumers)
    after = [consumer.numbers["t"] for consumer in consumers]
    assert [sorted(set(new) - set(old)) for old, new in zip(before, after, strict=True)] == [
        [5] if consumer is least else [] for consumer in consumers
    ]
    assert all(set(old) <= set(new) for old, new in zip(before, after, strict=True)), "nothing else moves"


@pytest.mark.row("D11")
def test_a_consumer_joins_and_takes_from_the_most_loaded() -> None:
    group, consumers = group_of(3, 4)
    before = [consumer.numbers["t"] for consumer in consumers]
    newcomer = Consumer(group, "newcomer", "t")
    beat_until_stable(*consumers, newcomer)
    assert [consumer.load for consumer in consumers] == [1, 1, 1]
    assert set(newcomer.numbers["t"]) < set(before[0]), "taken from the first, who had two"
    assert [consumer.numbers["t"] for consumer in consumers[1:]] == before[1:]


@pytest.mark.row("D11")
def test_a_consumer_leaves_and_its_partitions_are_shared_out() -> None:
    _, consumers = group_of(3, 6)
    before = [set(consumer.numbers["t"]) for consumer in consumers]
    consumers[0].leave()
    beat_until_stable(*consumers[1:])
    after = [set(consumer.numbers["t"]) for consumer in consumers[1:]]
    assert [len(owned) for owned in after] == [3, 3]
    assert all(old < new for old, new in zip(before[1:], after, strict=True)), "the others keep theirs"
    assert set.union(*after) - set.union(*before[1:]) == before[0]


@pytest.mark.row("D13")
def test_one_group_over_several_topics() -> None:
    group = GroupDriver({"a": 3, "b": 2})
    consumers = [Consumer(group, "both", "a", "b"), Consumer(group, "one", "a")]
    beat_until_stable(*consumers)
    both, one = consumers
    assert both.numbers["b"] == [0, 1]
    assert sorted(both.numbers.get("a", []) + one.numbers["a"]) == [0, 1, 2]
    assert abs(both.load - one.load) <= 1
