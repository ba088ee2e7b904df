# SPDX-License-Identifier: Apache-2.0
"""Classic groups and their offsets under arbitrary requests, time and changes of coordinator.

What must always hold: no partition has two owners in one generation; generations only rise; the log alone
makes the same group (R33); every request is answered exactly once; no timer outlives its reason; a commit is
accepted from members of the generation alone, and offsets move only by accepted commits.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.assignors import sticky
from headrace.assignors.subscriptions import Subscriber
from headrace.machines.groups.classic.rebalance import ClassicGroupSettings
from headrace.machines.groups.classic.state import ClassicState, GroupState
from headrace.machines.groups.events import (
    DeleteGroup,
    ErrorReply,
    JoinGroupReply,
    LeavingMember,
    OffsetCommit,
    OffsetCommitReply,
    OffsetToCommit,
    RetentionCheck,
    SyncGroupReply,
    TopicsDeleted,
)
from headrace.machines.groups.group import Group, GroupSettings
from headrace.machines.machine import ReplyToken
from headrace.types import NO_TOPIC_ID, ClusterView
from headrace.wire.coordinator.consumer_protocol import assigned_partitions
from headrace.wire.error_codes import ErrorCode
from tests.harness.groups.classic_requests import ClassicHarness, assignment, protocols, subscription

PARTITIONS = {"t": 5, "u": 2}
SETTINGS = GroupSettings(classic=ClassicGroupSettings(max_size=4, initial_rebalance_delay_ms=3_000))
VIEW = ClusterView(version=1, cluster_id="c")

members = st.integers(0, 5)
"""Which of the ids ever given out, counted from the newest; those long gone too."""
instances = st.sampled_from([None, None, None, "a", "b"])
names = st.sampled_from([("sticky",), ("range", "sticky"), ("sticky", "range"), ("range",)])
topics = st.sampled_from([("t",), ("t", "u"), ("u",)])


def new_group() -> Group:
    return Group("g", SETTINGS, VIEW)


class ClassicGroupMachine(RuleBasedStateMachine):
    @initialize(count=st.integers(0, 3))
    def start(self, count: int) -> None:
        self.harness = ClassicHarness(new_group())
        self.ids: list[tuple[str, str | None]] = [("stranger", None)]
        self.joins: dict[ReplyToken, str | None] = {}
        self.syncs: dict[ReplyToken, tuple[int, str]] = {}
        self.generation = 0
        self.owners: dict[tuple[int, str, int], str] = {}
        self.offsets: dict[tuple[str, int], int] = {}
        self.members_come(count, stable=True)

    @property
    def machine(self) -> Group:
        assert isinstance(self.harness.machine, Group)
        return self.harness.machine

    @property
    def state(self) -> ClassicState:
        return self.machine.classic._group

    def pick(self, member: int) -> tuple[str, str | None]:
        return self.ids[-1 - member % len(self.ids)]

    def read_replies(self) -> None:
        for token, instance in list(self.joins.items()):
            if token in self.harness.replies:
                del self.joins[token]
                self.joined(self.harness.reply(token, JoinGroupReply), instance)
        for token, (generation, member_id) in list(self.syncs.items()):
            if token in self.harness.replies:
                del self.syncs[token]
                reply = self.harness.reply(token, SyncGroupReply)
                if reply.error is ErrorCode.none:
                    self.assigned(generation, member_id, reply)

    def joined(self, reply: JoinGroupReply, instance: str | None) -> None:
        known = reply.error in (ErrorCode.none, ErrorCode.member_id_required)
        if known and (reply.member_id, instance) not in self.ids:
            self.ids.append((reply.member_id, instance))
        if reply.error is ErrorCode.none and reply.leader == reply.member_id and not reply.skip_assignment:
            assert reply.generation <= self.state.generation

    def assigned(self, generation: int, member_id: str, reply: SyncGroupReply) -> None:
        place = dict(self.ids)[member_id] or member_id  # a static member that returns keeps what it had
        for topic, partitions in assigned_partitions(reply.assignment).items():
            for partition in partitions:
                owner = self.owners.setdefault((generation, topic, partition), place)
                assert owner == place, f"{topic}-{partition} has two owners in generation {generation}"

    # Requests.

    @rule(instance=instances, names=names, topics=topics, version=st.sampled_from([3, 4, 9]))
    def join_as_new(self, instance: str | None, names: Any, topics: Any, version: int) -> None:
        version = max(version, 5) if instance else version
        metadata = subscription(topics)
        token = self.harness.join(
            group_instance_id=instance, protocols=protocols(*names, metadata=metadata), version=version
        )
        self.joins[token] = instance
        self.read_replies()

    @rule(count=st.integers(1, 3), stable=st.booleans())
    def members_come(self, count: int, stable: bool) -> None:
        """The usual course of things: new members join, the others join again, and all get their part."""
        for _ in range(count):
            self.join_as_new(None, ("sticky",), ("t",), 3)
        self.everyone_joins()
        if self.joins:
            self.time_passes(6_000)  # the initial delay, once extended
        if stable:
            self.everyone_syncs()

    @rule(member=members, names=names, topics=topics)
    def join_again(self, member: int, names: Any, topics: Any) -> None:
        member_id, instance = self.pick(member)
        metadata = subscription(topics)
        token = self.harness.join(
            member_id, group_instance_id=instance, protocols=protocols(*names, metadata=metadata)
        )
        self.joins[token] = instance
        self.read_replies()

    @rule()
    def everyone_joins(self) -> None:
        for member in list(self.state.members.values()):
            token = self.harness.join(
                member.member_id, group_instance_id=member.instance_id, protocols=member.protocols
            )
            self.joins[token] = member.instance_id
        self.read_replies()

    @rule(member=members, stale=st.booleans())
    def sync(self, member: int, stale: bool) -> None:
        self.sync_as(*self.pick(member), self.state.generation - stale)

    @rule()
    def everyone_syncs(self) -> None:
        for member in list(self.state.members.values()):
            self.sync_as(member.member_id, member.instance_id, self.state.generation)

    @precondition(lambda self: self.state.state is GroupState.COMPLETING_REBALANCE)
    @rule()
    def followers_sync(self) -> None:
        for member in list(self.state.members.values()):
            if member.member_id != self.state.leader:
                self.sync_as(member.member_id, member.instance_id, self.state.generation)

    def sync_as(self, member_id: str, instance: str | None, generation: int) -> None:
        if member_id not in dict(self.ids):
            self.ids.append((member_id, instance))
        subscribers = [Subscriber(member_id=name, topics=list(PARTITIONS)) for name in self.state.members]
        result = sticky.assign(subscribers, PARTITIONS)
        given = tuple((name, assignment(found)) for name, found in result.items())
        token = self.harness.sync(member_id, generation, group_instance_id=instance, assignments=given)
        self.syncs[token] = (generation, member_id)
        self.read_replies()

    @rule(member=members)
    def heartbeat(self, member: int) -> None:
        member_id, instance = self.pick(member)
        error = self.harness.heartbeat(member_id, self.state.generation, instance)
        if error in (ErrorCode.none, ErrorCode.rebalance_in_progress):
            assert member_id in self.state.members

    @rule()
    def everyone_heartbeats(self) -> None:
        for member in list(self.state.members.values()):
            self.harness.heartbeat(member.member_id, self.state.generation, member.instance_id)

    @rule(member=members, by_instance=st.booleans())
    def leave(self, member: int, by_instance: bool) -> None:
        member_id, instance = self.pick(member)
        self.harness.leave(LeavingMember("" if by_instance else member_id, instance))
        assert by_instance or member_id not in self.state.members or instance is not None
        self.read_replies()

    @rule(milliseconds=st.sampled_from([0, 500, 3_000, 9_000, 11_000, 61_000, 301_000]))
    def time_passes(self, milliseconds: int) -> None:
        self.harness.advance(milliseconds)
        self.read_replies()

    @precondition(lambda self: self.state.recorded is not None)
    @rule()
    def another_coordinator(self) -> None:
        before = self.machine.snapshot()
        self.harness.restart(new_group)
        self.joins.clear()
        self.syncs.clear()
        assert self.machine.snapshot() == before
        # A generation that was never recorded is lost, and its number used again, as in Kafka.
        self.generation = self.state.generation
        self.owners = {key: owner for key, owner in self.owners.items() if key[0] <= self.generation}

    # Offsets.

    @rule(
        member=st.none() | members,
        topic=st.sampled_from(["t", "u", "old"]),
        offset=st.integers(0, 9),
        stale=st.integers(-1, 1),
    )
    def commit(self, member: int | None, topic: str, offset: int, stale: int) -> None:
        member_id, instance = ("", None) if member is None else self.pick(member)
        generation = -1 if member is None else max(self.state.generation + stale, 0)
        token = self.harness.token()
        self.harness.submit(
            OffsetCommit.of(
                token=token,
                version=9,
                member_id=member_id,
                group_instance_id=instance,
                generation=generation,
                offsets=(OffsetToCommit(topic, 0, offset),),
            )
        )
        reply = self.harness.reply(token, OffsetCommitReply)
        if reply.error is ErrorCode.none:
            if member is None:
                assert not self.state.members
            else:
                assert member_id in self.state.members
                assert generation == self.state.generation
            self.offsets[topic, 0] = offset

    @rule()
    def old_topic_is_deleted(self) -> None:
        self.harness.submit(TopicsDeleted(topics={"old": NO_TOPIC_ID}))
        self.offsets.pop(("old", 0), None)

    @precondition(lambda self: self.state.generation > 3)
    @rule()
    def delete_group(self) -> None:
        empty = not self.state.members
        token = self.harness.token()
        self.harness.submit(DeleteGroup(token=token, version=2))
        if self.harness.reply(token, ErrorReply).error is ErrorCode.none:
            assert empty
            self.offsets.clear()
            self.generation = 0
            self.owners.clear()

    @precondition(lambda self: self.offsets)
    @rule()
    def retention_check(self) -> None:
        self.harness.submit(RetentionCheck())

    # What holds after each of them.

    @invariant()
    def generations_only_rise(self) -> None:
        assert self.state.generation >= self.generation
        self.generation = self.state.generation

    @invariant()
    def the_log_alone_makes_the_same_group(self) -> None:
        replayed = self.harness.replayed(new_group)
        assert replayed.snapshot() == self.machine.snapshot()
        if self.state.state in (GroupState.EMPTY, GroupState.STABLE, GroupState.DEAD):
            live, again = self.state, replayed.classic._group
            assert replayed.describe() == self.machine.describe()
            assert (again.generation, again.leader, again.instances, again.subscribed) == (
                live.generation,
                live.leader,
                live.instances,
                live.subscribed,
            )

    @invariant()
    def offsets_are_what_was_committed(self) -> None:
        assert {(t, p): value.offset for t, p, value in self.machine.offsets.all()} == self.offsets

    @invariant()
    def timers_have_their_reason(self) -> None:
        state, running = self.state, set(self.harness.timers)
        assert running == set(self.machine.classic._timers.armed())
        watched = {key[1] for key in running if key[0] == "session"}
        assert watched <= state.members.keys() | state.pending
        asleep = state.members.keys() - watched
        assert asleep <= state.join_tokens.keys() | state.sync_tokens.keys(), "silence would go unnoticed"
        assert (("join",) in running) == (state.state is GroupState.PREPARING_REBALANCE)
        in_generation = state.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)
        assert (("sync",) in running) <= (in_generation and bool(state.unsynced))

    @invariant()
    def what_is_counted_of_the_members_is_what_they_have(self) -> None:
        state, pending = self.state, sum(map(len, self.state.pending))
        for member_id in [*state.members, "stranger"]:
            others = [member for each, member in state.members.items() if each != member_id]
            supplied = sum(member.joined_bytes + len(member.assignment) for member in others)
            assert state.bytes_without(member_id) == supplied + pending
        assert state._protocol_lists == Counter(member.protocol_names for member in state.members.values())

    @invariant()
    def the_group_is_whole(self) -> None:
        state = self.state
        assert state.leader is None or state.leader in state.members
        assert bool(state.members) == (state.leader is not None)
        assert state.join_tokens.keys() | state.sync_tokens.keys() <= state.members.keys()
        assert not state.join_tokens or state.state is GroupState.PREPARING_REBALANCE
        assert not state.sync_tokens or state.state is GroupState.COMPLETING_REBALANCE
        assert {
            m.instance_id: m.member_id for m in state.members.values() if m.instance_id
        } == state.instances
        if state.members and state.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            assert all((state.protocol or "") in member.protocol_names for member in state.members.values())

    def teardown(self) -> None:
        """Left alone, every group comes to rest: nobody waits, no timer runs, no member is left."""
        if hasattr(self, "harness"):
            self.harness.advance(2_000_000)
            assert not self.harness.timers
            assert not list(self.machine.open_tokens())
            assert not self.state.members
            assert self.state.state in (GroupState.EMPTY, GroupState.DEAD)


TestClassicGroup = ClassicGroupMachine.TestCase
TestClassicGroup.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
