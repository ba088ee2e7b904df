# SPDX-License-Identifier: Apache-2.0
"""Topics that come, go and grow, and subscriptions by regular expression."""

from __future__ import annotations

from headrace.machines.groups.consumer.events import ConsumerGroupHeartbeatReply, RegexResolved
from headrace.machines.groups.consumer.member import MemberState
from headrace.wire.coordinator.consumer_group_records import (
    ConsumerGroupMetadataRecord,
    ConsumerGroupRegularExpressionRecord,
)
from headrace.wire.error_codes import ErrorCode
from tests.harness.groups.consumer_groups import Consumer, GroupDriver, beat_until_stable, topic_id

T, U = topic_id("t"), topic_id("u")


def test_a_topic_that_does_not_exist_yet_is_assigned_once_it_does() -> None:
    group = GroupDriver({})
    joined = group.join("a", "t")
    assert (joined.error, joined.member_epoch, joined.assignment) == (ErrorCode.none, 2, {})
    group.set_topics({"t": 2})
    reply = group.heartbeat("a", 2)
    assert (reply.member_epoch, reply.assignment) == (3, {T: frozenset({0, 1})})


def test_a_deleted_topic_leaves_target_and_members() -> None:
    group = GroupDriver({"t": 2, "u": 1})
    consumer = Consumer(group, "a", "t", "u")
    beat_until_stable(consumer)
    group.set_topics({"u": 1})
    beat_until_stable(consumer)
    assert consumer.numbers == {"u": [0]}
    assert group.machine.state.target["a"] == {U: frozenset({0})}
    assert group.machine.state.holder_of(T, 0) is None


def test_a_topic_deleted_and_made_again_is_another_topic() -> None:
    group = GroupDriver({"t": 1})
    group.join("a", "t")
    group.set_topics({"t": 1}, incarnation=1)
    told = group.heartbeat("a", 2)
    assert (told.member_epoch, told.assignment) == (2, {}), "the old one is given up first"
    again = group.heartbeat("a", 2, owned_partitions={})
    assert (again.member_epoch, again.assignment) == (3, {topic_id("t", incarnation=1): frozenset({0})})


def test_topics_of_others_are_no_business_of_the_group() -> None:
    group = GroupDriver({"t": 1})
    group.join("a", "t")
    group.set_topics({"t": 1, "other": 9})
    _, effects = group.heartbeat_effects("a", 2)
    assert effects.records == []


def test_topics_change_between_heartbeats_and_cause_one_rebalance_together() -> None:
    group = GroupDriver({"t": 1})
    group.join("a", "t", "u")
    group.set_topics({"t": 2})
    group.set_topics({"t": 2, "u": 2})
    group.set_topics({"t": 3, "u": 2})
    reply, effects = group.heartbeat_effects("a", 2)
    assert reply.assignment == {T: frozenset({0, 1, 2}), U: frozenset({0, 1})}
    assert [type(record) for record in effects.records].count(ConsumerGroupMetadataRecord) == 1


def test_a_topic_that_changes_while_the_coordinator_is_away_is_noticed() -> None:
    group = GroupDriver({"t": 1})
    group.join("a", "t")
    group.counts = {"t": 2}
    group.version += 1
    group.reload()
    assert group.heartbeat("a", 2).assignment == {T: frozenset({0, 1})}


# --- regular expressions ---------------------------------------------------------------------------------


def regex_join(
    group: GroupDriver, member_id: str, regex: str, **fields: object
) -> ConsumerGroupHeartbeatReply:
    return group.join(member_id, subscribed_topic_names=None, subscribed_topic_regex=regex, **fields)


def test_a_new_expression_is_asked_for_and_its_topics_assigned_at_the_next_heartbeat() -> None:
    group = GroupDriver({"t": 1, "u": 1, "other": 1})
    joined = regex_join(group, "a", "[tu]")
    assert joined.error is ErrorCode.none
    assert (joined.member_epoch, joined.assignment) == (1, {}), "no topics, so no rebalance yet"
    (question,) = group.questions
    assert (question.group_id, question.regexes, question.view.version) == ("group", {"[tu]"}, 1)
    assert (question.client_id, question.client_host) == ("client", "/127.0.0.1")

    effects = group.answer_regex({"[tu]": {"t", "u"}})
    assert [type(record) for record in effects.records] == [
        ConsumerGroupRegularExpressionRecord,
        ConsumerGroupMetadataRecord,
    ]
    reply = group.heartbeat("a", 1)
    assert (reply.member_epoch, reply.assignment) == (2, {T: frozenset({0}), U: frozenset({0})})


def test_an_expression_that_does_not_compile_is_refused() -> None:
    group = GroupDriver({"t": 1})
    reply = regex_join(group, "a", "[", regex_error="missing closing ]")
    assert reply.error is ErrorCode.invalid_regular_expression
    assert reply.error_message == (
        "SubscribedTopicRegex `[` is not a valid regular expression: missing closing ]."
    )
    assert not group.machine.state.exists


def test_while_one_question_is_open_no_other_is_asked_and_a_failure_is_asked_again() -> None:
    group = GroupDriver({"t": 1})
    regex_join(group, "a", "t")
    regex_join(group, "b", "u")
    assert len(group.questions) == 1
    group.questions.clear()
    group.step(RegexResolved(topics=None, version=1))
    group.heartbeat("a", 1)
    assert [question.regexes for question in group.questions] == [{"t", "u"}]


def test_expressions_are_resolved_again_every_ten_seconds_and_for_new_topics() -> None:
    group = GroupDriver({"t1": 1})
    regex_join(group, "a", "t.*")
    group.answer_regex({"t.*": {"t1"}})
    epoch = group.heartbeat("a", 1).member_epoch
    group.set_topics({"t1": 1, "t2": 1})
    group.advance(10_000)
    group.heartbeat("a", epoch)
    assert group.questions == []
    group.advance(1)
    group.heartbeat("a", epoch)
    group.answer_regex({"t.*": {"t1", "t2"}})
    assert set(group.heartbeat("a", epoch).assignment) == {topic_id("t1"), topic_id("t2")}
    group.advance(10_001)
    group.heartbeat("a", epoch + 1)
    assert group.questions == [], "nothing new to find"


def test_expressions_are_looked_at_again_after_the_refresh_interval() -> None:
    group = GroupDriver({"t": 1}, regex_refresh_interval_ms=30_000)
    regex_join(group, "a", "t")
    group.answer_regex({"t": {"t"}})
    epoch = group.heartbeat("a", 1).member_epoch
    group.advance(30_000)
    group.heartbeat("a", epoch)
    assert group.questions == []
    group.advance(1)
    group.heartbeat("a", epoch)
    effects = group.answer_regex({"t": {"t"}})
    assert len(effects.records) == 1, "found the same: a newer time, no rebalance"


def test_a_second_member_with_a_resolved_expression_is_assigned_at_once() -> None:
    group = GroupDriver({"t": 2})
    regex_join(group, "a", "t")
    group.answer_regex({"t": {"t"}})
    group.heartbeat("a", 1)
    joined = regex_join(group, "b", "t")
    assert joined.member_epoch == 3
    assert group.machine.state.target["b"] == {T: frozenset({1})}
    assert group.questions == []


def test_the_last_subscriber_takes_the_expression_along() -> None:
    group = GroupDriver({"t": 1, "u": 1})
    regex_join(group, "a", "t")
    regex_join(group, "b", "t")
    group.answer_regex({"t": {"t"}})
    group.heartbeat("b", -1)
    assert set(group.machine.state.resolved) == {"t"}
    reply = group.heartbeat("a", 1, subscribed_topic_regex="", subscribed_topic_names=("u",))
    assert group.machine.state.resolved == {}
    assert reply.assignment == {U: frozenset({0})}
    assert not group.machine.subscribes_to("t")


def test_names_and_an_expression_together_mean_both() -> None:
    group = GroupDriver({"t": 1, "u": 1})
    group.join("a", "t", subscribed_topic_regex="u")
    group.answer_regex({"u": {"u"}})
    assert set(group.heartbeat("a", 2).assignment) == {T, U}


def test_a_late_resolution_changes_nothing() -> None:
    group = GroupDriver({"t": 1})
    regex_join(group, "a", "t")
    group.heartbeat("a", -1)
    effects = group.answer_regex({"t": {"t"}})
    assert effects.records == []


def test_a_dropped_expression_takes_its_topics_away_before_the_next_target() -> None:
    group = GroupDriver({"t": 1, "u": 1}, assignment_interval_ms=1_000)
    group.join("a", "u", subscribed_topic_regex="t")
    group.answer_regex({"t": {"t"}})
    group.advance(1_000)
    epoch = group.heartbeat("a", 2).member_epoch
    reply = group.heartbeat("a", epoch, subscribed_topic_regex="")
    assert (reply.member_epoch, reply.assignment) == (epoch, {U: frozenset({0})})
    assert group.machine.state.members["a"].state is MemberState.UNREVOKED_PARTITIONS
