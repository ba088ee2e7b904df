# SPDX-License-Identifier: Apache-2.0
"""Every assignor on arbitrary groups: each partition has one subscribing owner; sticky ones move little."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.assignors import range as range_assignor
from headrace.assignors import round_robin, sticky, uniform
from headrace.assignors.balance import balance, changed_shares
from headrace.assignors.subscriptions import Assignment, Subscriber, in_kafka_order

EVERY_ASSIGNOR = [range_assignor.assign, round_robin.assign, sticky.assign, uniform.assign]
STICKY_ASSIGNORS = [sticky.assign, uniform.assign]
TOPICS = ("a", "b", "c", "d")
Group = tuple[list[Subscriber[str]], dict[str, int]]

counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 7), min_size=1)


@st.composite
def groups(draw: st.DrawFn, *, alike: bool = False, owning: bool = True) -> Group:
    partition_counts = draw(counts)
    names = draw(st.lists(st.sampled_from("KLMNOPQR"), min_size=1, max_size=7, unique=True))
    topic_sets = st.sets(st.sampled_from(TOPICS), min_size=1)
    shared = draw(topic_sets)
    owners = {
        (topic, partition): draw(st.sampled_from([*names, "gone", "gone"]))
        for topic, count in partition_counts.items()
        for partition in range(count)
        if owning
    }
    members = []
    for name in names:
        owned: dict[str, list[int]] = {}
        for (topic, partition), owner in owners.items():
            if owner == name:
                owned.setdefault(topic, []).append(partition)
        members.append(Subscriber(member_id=name, topics=shared if alike else draw(topic_sets), owned=owned))
    return members, partition_counts


def owners_of(assignment: Assignment[str]) -> dict[tuple[str, int], str]:
    owners: dict[tuple[str, int], str] = {}
    for member_id, topics in assignment.items():
        for topic, partitions in topics.items():
            assert partitions, "no topic without partitions"
            assert partitions == sorted(partitions)
            for partition in partitions:
                assert (topic, partition) not in owners, "two owners"
                owners[topic, partition] = member_id
    return owners


def loads_of(assignment: Assignment[str]) -> dict[str, int]:
    return {member: sum(map(len, topics.values())) for member, topics in assignment.items()}


def wanted(members: list[Subscriber[str]], partition_counts: Mapping[str, int]) -> set[tuple[str, int]]:
    return {
        (topic, partition)
        for member in members
        for topic in member.topics
        for partition in range(partition_counts.get(topic, 0))
    }


@pytest.mark.parametrize("assign", EVERY_ASSIGNOR)
@given(group=groups())
@settings(max_examples=150, deadline=None)
def test_every_partition_has_exactly_one_owner_who_subscribes(
    assign: Callable[..., Any], group: Group
) -> None:
    members, partition_counts = group
    assignment = assign(members, partition_counts)
    assert set(assignment) == {member.member_id for member in members}
    topics_of = {member.member_id: member.topics for member in members}
    owners = owners_of(assignment)
    assert set(owners) == wanted(members, partition_counts)
    assert all(topic in topics_of[owner] for (topic, _), owner in owners.items())


@pytest.mark.parametrize("assign", EVERY_ASSIGNOR)
@given(group=groups(), data=st.data())
@settings(max_examples=50, deadline=None)
def test_the_order_in_which_members_are_given_does_not_matter(
    assign: Callable[..., Any], group: Group, data: st.DataObject
) -> None:
    members, partition_counts = group
    assert assign(data.draw(st.permutations(members)), partition_counts) == assign(members, partition_counts)


@pytest.mark.parametrize("assign", STICKY_ASSIGNORS)
@given(group=groups(alike=True))
@settings(max_examples=300, deadline=None)
def test_sticky_ones_move_the_minimum_where_all_subscribe_alike(
    assign: Callable[..., Any], group: Group
) -> None:
    members, partition_counts = group
    assignment = assign(members, partition_counts)
    loads = loads_of(assignment)
    assert max(loads.values()) - min(loads.values()) <= 1
    topics = members[0].topics
    had = {m.member_id: sum(len(p) for t, p in m.owned.items() if t in topics) for m in members}
    share, extra = divmod(len(wanted(members, partition_counts)), len(members))
    fuller = sum(1 for owned in had.values() if owned > share)
    may_stay = sum(min(owned, share) for owned in had.values()) + min(fuller, extra)
    owners = owners_of(assignment)
    stayed = sum(
        1
        for member in members
        for topic, partitions in member.owned.items()
        for partition in partitions
        if owners.get((topic, partition)) == member.member_id
    )
    assert stayed == may_stay


@pytest.mark.parametrize("assign", STICKY_ASSIGNORS)
@given(group=groups())
@settings(max_examples=300, deadline=None)
def test_sticky_ones_are_as_even_as_the_subscriptions_allow(assign: Callable[..., Any], group: Group) -> None:
    """No chain of moves leads from a member to one that has two fewer (then no assignment is more even)."""
    members, partition_counts = group
    assignment = assign(members, partition_counts)
    loads = loads_of(assignment)
    can_give_to = {
        member.member_id: {
            other.member_id for other in members if set(assignment[member.member_id]) & set(other.topics)
        }
        for member in members
    }
    for giver in loads:
        reached, new = {giver}, {giver}
        while new:
            new = set().union(*(can_give_to[member] for member in new)) - reached
            reached |= new
        assert min(loads[member] for member in reached) >= loads[giver] - 1


@pytest.mark.parametrize("assign", STICKY_ASSIGNORS)
@given(group=groups())
@settings(max_examples=200, deadline=None)
def test_sticky_ones_leave_their_own_assignment_alone(assign: Callable[..., Any], group: Group) -> None:
    members, partition_counts = group
    assignment = assign(members, partition_counts)
    again = [
        Subscriber(member_id=m.member_id, topics=m.topics, owned=assignment[m.member_id]) for m in members
    ]
    assert assign(again, partition_counts) == assignment


@given(group=groups())
@settings(max_examples=200, deadline=None)
def test_cooperative_rounds_never_share_a_partition_and_end(group: Group) -> None:
    members, partition_counts = group
    held = {member.member_id: dict(member.owned) for member in members}
    for _round in range(3):
        current = [
            Subscriber(member_id=m.member_id, topics=m.topics, owned=held[m.member_id]) for m in members
        ]
        allowed = sticky.assign_cooperatively(current, partition_counts)
        owned_by = {(t, p): m for m, topics in held.items() for t, ps in topics.items() for p in ps}
        for partition, member in owners_of(allowed).items():
            assert owned_by.get(partition, member) == member, "given before its holder let go"
        held = allowed
    assert set(owners_of(held)) == wanted(members, partition_counts)


@given(groups(alike=True))
def test_the_quick_way_to_a_target_gives_what_the_long_way_gives(group: Group) -> None:
    members, partition_counts = in_kafka_order(group[0]), group[1]
    quick = changed_shares(members, partition_counts)
    owners = {
        (topic, partition): member.member_id
        for member in members
        for topic, partitions in member.owned.items()
        for partition in partitions
    }
    wanted = set(members[0].topics)
    if all(member.owned.keys() <= wanted for member in members):
        assert quick is not None
    if quick is not None:
        every = balance(members, partition_counts, owners)
        assert uniform.assign(members, partition_counts) == every
        assert list(quick) == [member_id for member_id in every if member_id in quick], "in Kafka's order"
        for member in members:
            owned = {topic: sorted(parts) for topic, parts in member.owned.items() if parts}
            assert quick.get(member.member_id, owned) == every[member.member_id]
            assert owned or member.member_id in quick


@given(groups())
def test_claims_that_overlap_or_lead_nowhere_take_the_long_way(group: Group) -> None:
    members, partition_counts = group
    topic, count = next(iter(partition_counts.items()))
    beyond = Subscriber(member_id="X", topics={topic}, owned={topic: [count]})
    assert changed_shares([beyond], partition_counts) is None
    twice = [Subscriber(member_id=name, topics={topic}, owned={topic: [0]}) for name in ("X", "Y")]
    assert changed_shares(twice, partition_counts) is None
    assert changed_shares([], partition_counts) is None
    if len({frozenset(member.topics) for member in members}) > 1:
        assert changed_shares(members, partition_counts) is None
