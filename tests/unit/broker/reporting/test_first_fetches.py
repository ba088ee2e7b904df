# SPDX-License-Identifier: Apache-2.0
"""Whose fetch was the first from a partition: told when it can be known, else not."""

from __future__ import annotations

import pytest

from headrace.broker.partition.fetch_sessions import FetchEntry
from headrace.broker.reporting.first_fetches import WAIT_S, FirstFetches, Owner
from headrace.types import TopicPartition
from headrace.wire.requests.fetch import FetchPartition

HOST = "/10.0.0.1"
ALICE, BOB = ("alice", HOST), ("bob", HOST)
P0, P1, P2 = (TopicPartition("t", index) for index in range(3))

pytestmark = pytest.mark.row("D21")


def held(*partitions: TopicPartition) -> frozenset[TopicPartition]:
    return frozenset(partitions)


def entries(*partitions: TopicPartition, offset: int = 5) -> list[FetchEntry]:
    return [
        FetchEntry(topic, None, FetchPartition(index, -1, offset, -1, -1, 1 << 20))
        for topic, index in partitions
    ]


def seen(first: FirstFetches, who: tuple[str, str], *partitions: TopicPartition) -> list[object]:
    """(group, member, partitions) of what a fetch was the first of."""
    found = first.fetched(who, entries(*partitions), {})
    return [(each.group_id, each.member_id, [where for where, _ in each.partitions]) for each in found]


def test_each_partition_is_recorded_once_and_those_of_one_fetch_together():
    first = FirstFetches()
    first.assigned("g", {Owner("a", ALICE): held(P0, P1), Owner("b", BOB): held(P2)}, 0)
    assert seen(first, ALICE, P0, P1, P2) == [("g", "a", [P0, P1])]
    assert seen(first, ALICE, P0, P1) == []
    assert seen(first, BOB, P2) == [("g", "b", [P2])]
    assert not first.waiting


def test_the_first_fetch_event_has_the_offset():
    first = FirstFetches()
    first.assigned("g", {Owner("a", ALICE): held(P0)}, 0)
    ((_, _, partitions),) = first.fetched(ALICE, entries(P0, offset=42), {})
    assert partitions == [(P0, 42)]


def test_a_moved_partition_is_awaited_again():
    first = FirstFetches()
    first.assigned("g", {Owner("a", ALICE): held(P0, P1)}, 0)
    seen(first, ALICE, P0, P1)
    first.assigned("g", {Owner("b", BOB): held(P1), Owner("a", ALICE): held(P0)}, 1)
    assert first.waiting.keys() == {P1}
    assert seen(first, ALICE, P0, P1) == []
    assert seen(first, BOB, P1) == [("g", "b", [P1])]


def test_a_new_member_with_the_same_client_id_is_recorded():
    """It has its partitions only after the other gave them up."""
    first = FirstFetches()
    first.assigned("g", {Owner("a", ALICE): held(P0)}, 0)
    seen(first, ALICE, P0)
    first.left("g", "a", timed_out=False, now=1)
    first.assigned("g", {Owner("b", ALICE): held(P0)}, 2)
    assert seen(first, ALICE, P0) == [("g", "b", [P0])]


def test_a_member_that_timed_out_is_not_confused_with_its_successor():
    """It may be alive and go on fetching."""
    first = FirstFetches()
    first.assigned("g", {Owner("a", ALICE): held(P0)}, 0)
    first.left("g", "a", timed_out=True, now=1)
    first.assigned("g", {Owner("b", ALICE): held(P0)}, 2)
    assert seen(first, ALICE, P0) == []
    first.forget_old(2 + WAIT_S)
    assert not first.waiting


def test_ambiguous_groups_of_one_client_id_are_not_recorded():
    first = FirstFetches()
    first.assigned("old", {Owner("x", ALICE): held(P0)}, None)
    first.assigned("g", {Owner("a", ALICE): held(P0)}, 0)
    assert seen(first, ALICE, P0) == []
    first.left("old", "x", timed_out=False, now=1)
    assert seen(first, ALICE, P0) == [("g", "a", [P0])]


def test_two_groups_with_names_of_their_own_are():
    first = FirstFetches()
    first.assigned("g", {Owner("a", ALICE): held(P0)}, 0)
    first.assigned("h", {Owner("b", BOB): held(P0)}, 0)
    assert seen(first, BOB, P0) == [("h", "b", [P0])]
    assert seen(first, ALICE, P0) == [("g", "a", [P0])]


def test_partitions_assigned_before_the_start_are_not_awaited():
    first = FirstFetches()
    first.assigned("g", {Owner("a", ALICE): held(P0)}, None)
    assert not first.waiting


def test_a_group_that_is_gone_leaves_nothing_behind():
    first = FirstFetches()
    first.assigned("g", {Owner("a", ALICE): held(P0), Owner("b", BOB): held(P1)}, 0)
    first.gone("g")
    assert not first.waiting
    assert not first._owners
    assert not first._held


def test_nobody_is_waited_for_longer_than_a_minute():
    first = FirstFetches()
    first.assigned("g", {Owner("a", ALICE): held(P0)}, 0)
    first.assigned("g", {Owner("b", BOB): held(P1)}, 30)
    first.forget_old(WAIT_S)
    assert first.waiting.keys() == {P1}
