# SPDX-License-Identifier: Apache-2.0
"""A KIP-848 group under arbitrary histories: joins, lost replies, crashes, restarts, topics that change.

The driver checks after every step that each request was answered once, that nothing is held twice, that the
group's epochs never fall and that a replay of the encoded records equals the live state. Here: what consumers
themselves own never overlaps, members' epochs never fall, and once faults end every partition has an owner.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace.machines.groups.consumer.member import JOIN_EPOCH, STATIC_LEAVE_EPOCH
from headrace.machines.groups.consumer.state import ConsumerGroupState
from headrace.wire.coordinator.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentRecord,
    ConsumerGroupMemberMetadata,
    ConsumerGroupMemberMetadataRecord,
    ConsumerGroupMetadata,
    ConsumerGroupMetadataRecord,
    ConsumerGroupRegularExpressionRecord,
    ConsumerGroupTargetAssignmentMemberRecord,
    CurrentMemberAssignment,
    ResolvedRegularExpression,
    TopicPartitions,
)
from headrace.wire.coordinator.record import CoordinatorRecord
from tests.harness.groups.consumer_groups import Consumer, GroupDriver, beat_until_stable, topic_id

TOPICS = ("t", "u")
subscriptions = st.sampled_from([("t",), ("t", "u"), ("t", "u"), ("u",), ()])
some_consumer = st.integers(0, 5)


class GroupHistory(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.group = GroupDriver({"t": 3, "u": 2}, assignment_interval_ms=1_000)
        self.consumers: list[Consumer] = []
        self.names = 0
        self.incarnation = 0
        self.member_epochs: dict[str, int] = {}

    def new_consumer(self, topics: tuple[str, ...], instance_id: str | None) -> Consumer:
        self.names += 1
        consumer = Consumer(self.group, f"m{self.names}", *topics, instance_id=instance_id)
        self.consumers.append(consumer)
        return consumer

    def pick(self, number: int) -> Consumer:
        return self.consumers[number % len(self.consumers)]

    # --- what members do ---------------------------------------------------------------------------------

    @precondition(lambda self: len(self.consumers) < 5)
    @rule(topics=subscriptions, instance_id=st.sampled_from([None, None, "i1", "i2"]))
    def someone_joins(self, topics: tuple[str, ...], instance_id: str | None) -> None:
        self.new_consumer(topics, instance_id).beat()

    @precondition(lambda self: self.consumers)
    @rule(number=some_consumer, lose_reply=st.sampled_from([False, False, True]))
    def someone_heartbeats(self, number: int, lose_reply: bool) -> None:
        self.pick(number).beat(lose_reply=lose_reply)

    @rule(numbers=st.permutations(range(5)))
    def everyone_heartbeats(self, numbers: list[int]) -> None:
        for number in numbers:
            if number < len(self.consumers):
                self.consumers[number].beat()

    @rule(number=some_consumer)
    def everyone_but_one_keeps_up(self, number: int) -> None:
        for position, consumer in enumerate(self.consumers):
            if position != number:
                consumer.beat_and_process()

    @precondition(lambda self: self.consumers)
    @rule(number=some_consumer)
    def someone_carries_out_what_it_was_told(self, number: int) -> None:
        self.pick(number).process()

    @precondition(lambda self: self.consumers)
    @rule(number=some_consumer, topics=subscriptions)
    def someone_subscribes_to_something_else(self, number: int, topics: tuple[str, ...]) -> None:
        self.pick(number).resubscribe(*topics)

    @precondition(lambda self: self.consumers)
    @rule(number=some_consumer)
    def someone_leaves(self, number: int) -> None:
        consumer = self.pick(number)
        self.consumers.remove(consumer)
        consumer.leave()

    @precondition(lambda self: self.consumers)
    @rule(number=some_consumer, says_so=st.booleans())
    def someone_restarts(self, number: int, says_so: bool) -> None:
        """A static member comes back as itself; a dynamic one that says nothing is a crash."""
        consumer = self.pick(number)
        self.consumers.remove(consumer)
        if says_so:
            consumer.leave(for_good=False)
        self.new_consumer(consumer.topics, consumer.instance_id).beat()

    # --- what happens around them ------------------------------------------------------------------------

    @rule(milliseconds=st.sampled_from([500, 5_000, 5_000, 5_000, 30_000, 61_000]))
    def time_passes(self, milliseconds: int) -> None:
        self.group.advance(milliseconds)

    @rule(topic=st.sampled_from(TOPICS), change=st.sampled_from(["grow", "grow", "toggle", "make anew"]))
    def topics_change(self, topic: str, change: str) -> None:
        counts = dict(self.group.counts)
        if change == "grow" and counts.get(topic, 9) < 6:
            counts[topic] += 1
        elif change == "toggle" and counts.pop(topic, None) is None:
            counts[topic] = 2
        elif change == "make anew":
            self.incarnation += 1
        self.group.set_topics(counts, incarnation=self.incarnation)

    @rule(compacted=st.booleans())
    def the_coordinator_restarts(self, compacted: bool) -> None:
        self.group.reload(compacted=compacted)
        self.group.set_topics(self.group.counts, incarnation=self.incarnation)

    # --- what must hold ----------------------------------------------------------------------------------

    @invariant()
    def no_partition_is_owned_by_two(self) -> None:
        members = self.group.machine.state.members
        owned = [
            (topic, partition)
            for consumer in self.consumers
            if consumer.member_id in members
            for topic, partitions in consumer.owned.items()
            for partition in partitions
        ]
        assert len(owned) == len(set(owned)), f"owned twice: {sorted(owned)}"

    @invariant()
    def the_coordinator_knows_of_all_that_is_owned(self) -> None:
        state = self.group.machine.state
        for consumer in self.consumers:
            if consumer.member_id in state.members:
                for topic, partitions in consumer.owned.items():
                    for partition in partitions:
                        assert state.holder_of(topic, partition) == consumer.member_id

    @invariant()
    def epochs_of_members_never_fall(self) -> None:
        epochs = {
            member_id: member.member_epoch for member_id, member in self.group.machine.state.members.items()
        }
        for member_id, epoch in epochs.items():
            before = self.member_epochs.get(member_id, JOIN_EPOCH)
            assert epoch >= before or epoch == STATIC_LEAVE_EPOCH
        self.member_epochs = epochs

    def teardown(self) -> None:
        """Faults end: dead members time out, the others reconcile, every partition has exactly one owner."""
        for _ in range(25):
            for consumer in self.consumers:
                consumer.beat_and_process()
            self.group.advance(5_000)
        if self.consumers:
            beat_until_stable(*self.consumers)
        view = self.group.machine.view
        wanted = {
            (topic.topic_id, partition)
            for name in {name for consumer in self.consumers for name in consumer.topics}
            if (topic := view.topics.get(name)) is not None
            for partition in range(len(topic.partitions))
        }
        owned = [
            (topic_id, partition)
            for consumer in self.consumers
            for topic_id, partitions in consumer.owned.items()
            for partition in partitions
        ]
        waiting = [consumer for consumer in self.consumers if consumer.epoch == JOIN_EPOCH]
        assert not waiting or any(consumer.instance_id is not None for consumer in waiting)
        if not waiting:
            assert sorted(owned) == sorted(wanted)
            assert self.group.machine.describe().state == ("Stable" if self.consumers else self.empty_state())

    def empty_state(self) -> str:
        return "Empty" if self.group.machine.state.exists else "Dead"


GroupHistory.TestCase.settings = settings(
    max_examples=120, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestGroupHistory = GroupHistory.TestCase


names = st.sampled_from("ab")
topics_of_records = st.lists(
    st.builds(
        TopicPartitions,
        topic_id=st.sampled_from([topic_id("t"), topic_id("u")]),
        partitions=st.lists(st.integers(0, 2), min_size=1, unique=True).map(tuple),
    ),
    max_size=2,
    unique_by=lambda topic: topic.topic_id,
).map(tuple)
records = st.one_of(
    st.builds(
        ConsumerGroupMemberMetadataRecord,
        group_id=st.just("g"),
        member_id=names,
        value=st.none()
        | st.builds(
            ConsumerGroupMemberMetadata,
            client_id=st.just(""),
            client_host=st.just(""),
            subscribed_topic_names=st.sampled_from([(), ("t",), ("t", "u")]),
            subscribed_topic_regex=st.sampled_from([None, "", "x"]),
            instance_id=st.sampled_from([None, "i"]),
        ),
    ),
    st.builds(
        ConsumerGroupCurrentMemberAssignmentRecord,
        group_id=st.just("g"),
        member_id=names,
        value=st.none()
        | st.builds(
            CurrentMemberAssignment,
            member_epoch=st.integers(1, 9),
            previous_member_epoch=st.integers(0, 8),
            state=st.sampled_from([0, 1, 2, 9]),
            assigned_partitions=topics_of_records,
        ),
    ),
    st.builds(
        ConsumerGroupTargetAssignmentMemberRecord,
        group_id=st.just("g"),
        member_id=names,
        value=st.none() | topics_of_records,
    ),
    st.builds(
        ConsumerGroupRegularExpressionRecord,
        group_id=st.just("g"),
        regular_expression=st.sampled_from("xy"),
        value=st.none()
        | st.builds(
            ResolvedRegularExpression,
            topics=st.sampled_from([(), ("t",), ("t", "v")]),
            version=st.just(1),
            timestamp=st.just(1),
        ),
    ),
    st.builds(
        ConsumerGroupMetadataRecord,
        group_id=st.just("g"),
        value=st.none() | st.builds(ConsumerGroupMetadata, epoch=st.integers(1, 9)),
    ),
)


@settings(max_examples=300, deadline=None)
@given(history=st.lists(records, max_size=25))
def test_records_are_taken_in_any_order_and_what_is_derived_stays_true(
    history: list[CoordinatorRecord],
) -> None:
    state = ConsumerGroupState("g")
    for record in history:
        state.apply(record)
    members = state.members.values()
    assert state.topic_subscribers == Counter(
        topic for member in members for topic in member.metadata.subscribed_topic_names
    )
    assert state.regex_subscribers == Counter(member.regex for member in members if member.regex)
    matched = {topic for found in state.resolved.values() for topic in found.topics}
    assert state.subscribed_topics() == matched | state.topic_subscribers.keys()
    for topic in (topic_id("t"), topic_id("u")):
        for partition in range(3):
            holder = state.holder_of(topic, partition)
            assert holder is None or partition in state.members[holder].assigned[topic]


@settings(max_examples=60, deadline=None)
@given(
    partitions=st.integers(1, 12),
    changes=st.lists(st.sampled_from(["join", "leave", "grow"]), min_size=1, max_size=8),
)
def test_no_rebalance_moves_more_than_evenness_asks_for(partitions: int, changes: list[str]) -> None:
    group = GroupDriver({"t": partitions})
    consumers = [Consumer(group, f"m{number}", "t") for number in range(3)]
    beat_until_stable(*consumers)
    for number, change in enumerate(changes):
        before = {consumer.member_id: consumer.numbers.get("t", []) for consumer in consumers}
        if change == "join":
            consumers.append(Consumer(group, f"n{number}", "t"))
        elif change == "leave" and len(consumers) > 1:
            consumers.pop(0).leave()
        elif change == "grow":
            group.set_topics({"t": group.counts["t"] + 1})
        beat_until_stable(*consumers)
        after = {consumer.member_id: set(consumer.numbers.get("t", [])) for consumer in consumers}
        loads = [len(owned) for owned in after.values()]
        assert max(loads) - min(loads) <= 1
        held = [len(before.get(member_id, [])) for member_id in after]
        kept = sum(len(owned & set(before.get(member_id, []))) for member_id, owned in after.items())
        share, extra = divmod(group.counts["t"], len(consumers))
        most_that_can_stay = sum(min(size, share) for size in held) + min(
            extra, sum(size > share for size in held)
        )
        assert kept == most_that_can_stay
