# SPDX-License-Identifier: Apache-2.0
"""Who a KIP-848 group turns away: bad requests, wrong epochs, static members, size; Apache Kafka's codes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headrace.machines.groups.consumer.member import MemberState
from headrace.machines.groups.consumer.rebalance import SESSION
from headrace.wire.coordinator.consumer_group_records import ConsumerGroupCurrentMemberAssignmentRecord
from headrace.wire.error_codes import ErrorCode
from tests.harness.groups.consumer_groups import Consumer, GroupDriver, beat_until_stable, topic_id

T = topic_id("t")
JOIN = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ("t",), "owned_partitions": {}}


def owned(*numbers: int) -> dict[object, frozenset[int]]:
    return {T: frozenset(numbers)}


@pytest.mark.parametrize(
    ("member_id", "epoch", "fields", "message"),
    [
        ("", 0, JOIN, "MemberId can't be empty."),
        (" ", 0, JOIN, "MemberId can't be empty."),
        ("", 5, {"version": 0}, "MemberId can't be empty."),
        ("", -1, {"version": 0}, "MemberId can't be empty."),
        ("a", 0, {**JOIN, "instance_id": ""}, "InstanceId can't be empty."),
        ("a", 0, {**JOIN, "rack_id": "  "}, "RackId can't be empty."),
        (
            "a",
            0,
            {**JOIN, "rebalance_timeout_ms": -1},
            "RebalanceTimeoutMs must be provided in first request.",
        ),
        ("a", 0, {**JOIN, "owned_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
        ("a", 0, {**JOIN, "owned_partitions": owned(0)}, "TopicPartitions must be empty when (re-)joining."),
        (
            "a",
            0,
            {**JOIN, "subscribed_topic_names": None},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ("a", -2, {}, "InstanceId can't be null."),
        ("a", -3, {}, "MemberEpoch is invalid."),
    ],
)
def test_a_request_that_makes_no_sense_is_invalid(
    member_id: str, epoch: int, fields: dict[str, Any], message: str
) -> None:
    group = GroupDriver({"t": 1})
    reply, effects = group.heartbeat_effects(member_id, epoch, **fields)
    assert (reply.error, reply.error_message) == (ErrorCode.invalid_request, message)
    assert (effects.records, effects.timers) == ([], [])


def test_an_assignor_that_is_not_configured_is_refused_with_those_that_are() -> None:
    reply = GroupDriver({"t": 1}).join("a", "t", server_assignor="mine")
    assert reply.error is ErrorCode.unsupported_assignor
    assert reply.error_message == (
        "ServerAssignor mine is not supported. Supported assignors: uniform, range."
    )


@pytest.mark.parametrize("epoch", [1, -1])
def test_a_group_that_is_not_there_is_made_by_joining_alone(epoch: int) -> None:
    group = GroupDriver({"t": 1})
    assert group.heartbeat("a", epoch).error is ErrorCode.group_id_not_found
    assert group.heartbeat("a", -2, instance_id="i").error is ErrorCode.group_id_not_found
    assert not group.machine.state.exists


@pytest.mark.parametrize("epoch", [1, 2, 7, -1])
def test_an_unknown_member_is_refused(epoch: int) -> None:
    group = GroupDriver({"t": 1})
    group.join("a", "t")
    reply = group.heartbeat("b", epoch)
    assert reply.error is ErrorCode.unknown_member_id
    assert reply.error_message == "Member b is not a member of group group."


def member_at_epoch_4() -> GroupDriver:
    """Member a came from epoch 3, where it had partitions 0 and 1, and has 0, 1 and 2 now."""
    group = GroupDriver({"t": 1})
    group.join("a", "t")
    for epoch, count in ((2, 2), (3, 3)):
        group.set_topics({"t": count})
        group.heartbeat("a", epoch)
    assert group.machine.state.members["a"].member_epoch == 4
    return group


@pytest.mark.parametrize(
    ("epoch", "partitions", "accepted"),
    [
        (4, None, True),
        (3, owned(0, 1), True),
        (3, {}, True),
        (3, None, False),
        (3, owned(0, 7), False),
        (3, {topic_id("u"): frozenset({0})}, False),
        (2, {}, False),
        (5, {}, False),
    ],
    ids=str,
)
def test_only_the_current_epoch_and_a_retry_of_the_previous_are_accepted(
    epoch: int, partitions: Any, accepted: bool
) -> None:
    reply = member_at_epoch_4().heartbeat("a", epoch, owned_partitions=partitions)
    assert reply.error is (ErrorCode.none if accepted else ErrorCode.fenced_member_epoch)


@pytest.mark.parametrize(("epoch", "word"), [(2, "smaller"), (5, "greater")])
def test_the_fencing_error_names_both_epochs(epoch: int, word: str) -> None:
    reply = member_at_epoch_4().heartbeat("a", epoch)
    assert reply.error_message == (
        f"The consumer group member has a {word} member epoch ({epoch}) than the one known by the group "
        "coordinator (4). The member must abandon all its partitions and rejoin."
    )


def test_a_member_in_a_state_of_a_newer_release_begins_again_without_partitions() -> None:
    group = GroupDriver({"t": 2})
    group.join("a", "t")
    current = replace(group.machine.state.members["a"].current(), state=9)
    group.write(ConsumerGroupCurrentMemberAssignmentRecord(group_id="group", member_id="a", value=current))
    assert group.machine.state.members["a"].state is MemberState.UNKNOWN
    assert group.heartbeat("a", 2).error is ErrorCode.fenced_member_epoch
    assert group.heartbeat("a", 2, owned_partitions=owned(0)).error is ErrorCode.fenced_member_epoch
    again = group.join("a", "t")
    assert (again.member_epoch, again.assignment) == (2, owned(0, 1))
    assert group.machine.state.members["a"].state is MemberState.STABLE


def test_a_full_group_turns_newcomers_away_and_keeps_its_members() -> None:
    group = GroupDriver({"t": 2}, max_size=1)
    group.join("a", "t")
    reply = group.join("b", "t")
    assert reply.error is ErrorCode.group_max_size_reached
    assert reply.error_message == "The consumer group has reached its maximum capacity of 1 members."
    assert group.heartbeat("a", 2).error is ErrorCode.none
    group.heartbeat("a", -1)
    assert group.join("b", "t").error is ErrorCode.none


def test_subscriptions_may_not_exceed_what_the_group_may_hold() -> None:
    group = GroupDriver({"t": 2}, max_bytes=2_000)
    group.join("a", "t")
    reply = group.join("b", *(f"{'n' * 200}-{number}" for number in range(10)))
    assert reply.error is ErrorCode.group_max_size_reached
    assert "headrace.group.max.bytes" in (reply.error_message or "")
    assert group.join("b", "t").error is ErrorCode.none


# --- static members --------------------------------------------------------------------------------------


def static_pair() -> tuple[GroupDriver, Consumer, Consumer]:
    group = GroupDriver({"t": 4})
    first = Consumer(group, "m1", "t", instance_id="i1")
    second = Consumer(group, "m2", "t", instance_id="i2")
    beat_until_stable(first, second)
    return group, first, second


def test_a_static_member_that_comes_back_under_a_new_id_gets_its_partitions_without_a_rebalance() -> None:
    group, first, second = static_pair()
    held, epoch = first.numbers, group.machine.state.group_epoch
    reply = group.heartbeat("m1", -2, instance_id="i1")
    assert (reply.error, reply.member_id, reply.member_epoch) == (ErrorCode.none, "m1", -2)
    assert group.machine.state.members["m1"].member_epoch == -2
    second.beat_and_process()
    assert second.load == 2, "nobody takes what it holds meanwhile"

    back = Consumer(group, "m1-new", "t", instance_id="i1")
    back.beat_and_process()
    assert back.numbers == held
    assert (back.epoch, group.machine.state.group_epoch) == (epoch, epoch)
    assert "m1" not in group.machine.state.members
    assert not any("m1" in key for key in group.timers), "its session is over, not running out"


def test_a_static_member_may_come_back_with_its_old_id_too() -> None:
    _, first, _ = static_pair()
    held = first.numbers
    first.leave(for_good=False)
    first.beat_and_process()
    assert first.numbers == held


def test_an_instance_id_in_use_is_not_given_away_not_even_to_its_own_member() -> None:
    group, _, _ = static_pair()
    for member_id in ("other", "m1"):
        reply = group.join(member_id, "t", instance_id="i1")
        assert reply.error is ErrorCode.unreleased_instance_id
        assert reply.error_message == (
            f"Static member {member_id} with instance id i1 cannot join the group because the instance id is "
            "owned by m1 member."
        )


def test_the_replaced_static_member_is_fenced_by_its_successor() -> None:
    group, first, _ = static_pair()
    old_epoch = first.epoch
    first.leave(for_good=False)
    group.join("m1-new", "t", instance_id="i1")
    for epoch in (old_epoch, -1, -2):
        reply = group.heartbeat("m1", epoch, instance_id="i1")
        assert reply.error is ErrorCode.fenced_instance_id
        assert reply.error_message == "Static member m1 with instance id i1 was fenced by member m1-new."


@pytest.mark.parametrize("epoch", [3, -1, -2])
def test_an_unknown_instance_is_an_unknown_member(epoch: int) -> None:
    group, _, _ = static_pair()
    reply = group.heartbeat("m9", epoch, instance_id="i9")
    assert (reply.error, reply.error_message) == (
        ErrorCode.unknown_member_id,
        "Instance id i9 is unknown.",
    )


def test_a_static_member_that_leaves_for_good_is_gone_at_once() -> None:
    group, first, second = static_pair()
    first.leave()
    beat_until_stable(second)
    assert second.load == 4
    assert group.machine.state.static_members == {"i2": "m2"}


def test_a_static_member_that_stays_away_loses_its_partitions_when_its_session_ends() -> None:
    group, first, second = static_pair()
    first.beat()
    first.leave(for_good=False)
    for _ in range(4):
        group.advance(10_000)
        second.beat_and_process()
    assert second.load == 2
    group.advance(5_000)
    assert (SESSION, "m1") not in group.timers
    beat_until_stable(second)
    assert second.load == 4


def test_a_static_member_away_while_revoking_does_not_hold_its_revoked_partitions() -> None:
    group = GroupDriver({"t": 4})
    first = Consumer(group, "m1", "t", instance_id="i1")
    beat_until_stable(first)
    second = Consumer(group, "m2", "t", instance_id="i2")
    second.beat()
    first.beat()
    assert group.machine.state.members["m1"].state is MemberState.UNREVOKED_PARTITIONS
    first.leave(for_good=False)
    assert group.machine.state.members["m1"].pending_revocation == {}
    assert ("rebalance", "m1") not in group.timers
    second.beat_and_process()
    assert second.load == 2
    back = Consumer(group, "m1-new", "t", instance_id="i1")
    back.beat_and_process()
    assert back.load == 2
