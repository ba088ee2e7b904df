# SPDX-License-Identifier: Apache-2.0
"""Groups in snapshots: members, committed offsets, since when they are behind, assignments over time."""

from __future__ import annotations

from dataclasses import replace

from headrace.client.tools.lag import TimeBehind
from headrace.console.state.group_folding import (
    LAG_SAMPLES,
    Place,
    fold_behind,
    fold_committed,
    fold_groups,
    fold_positions,
    group_lag,
    note_assignment,
    sample_lags,
)
from headrace.console.state.model import GroupState, MemberState, PartitionState, Snapshot, TopicState
from headrace.console.state.polls import GroupsPoll
from headrace.console.state.rates import Rates
from headrace.types import TopicPartition

WHERE = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)
TOPIC = TopicState(
    name="orders",
    partitions={
        0: PartitionState(partition=0, leader=1, end=100),
        1: PartitionState(partition=1, leader=1, end=None),
    },
)
MEMBER = MemberState(member_id="m", client_id="worker", assigned=(WHERE,))
GROUP = GroupState(group_id="g", state="Stable", coordinator=1, members=(MEMBER,))


def snapshot(group: GroupState = GROUP) -> Snapshot:
    return Snapshot(at_ms=0, topics={"orders": TOPIC}, groups={"g": group})


def test_times_of_members_and_progress_outlive_a_new_description() -> None:
    known = replace(GROUP, members=(replace(MEMBER, joined_ms=5, last_commit_ms=7),))
    after = fold_groups(snapshot(known), GroupsPoll(groups={"g": GROUP}))
    assert (after.groups["g"].members[0].joined_ms, after.groups["g"].members[0].last_commit_ms) == (5, 7)


def test_a_group_that_is_not_listed_is_gone_unless_its_coordinator_is_silent() -> None:
    assert fold_groups(snapshot(), GroupsPoll(groups={})).groups == {}
    assert "g" in fold_groups(snapshot(), GroupsPoll(groups={}, silent=frozenset({1}))).groups
    assert "g" in fold_groups(snapshot(), GroupsPoll(groups={}), whole=False).groups


def test_lag_of_what_is_known() -> None:
    rates = Rates[Place](60_000)
    after = fold_committed(snapshot(), {"g": {WHERE: 60, OTHER: 3}}, 1_000, rates)
    assert group_lag(after, after.groups["g"]) == 40
    assert group_lag(snapshot(), GROUP) is None


def test_since_when_something_is_unread() -> None:
    rates = Rates[Place](60_000)
    behind = fold_committed(snapshot(), {"g": {WHERE: 60}}, 1_000, rates)
    later = fold_committed(behind, {"g": {WHERE: 80}}, 9_000, rates)
    assert later.groups["g"].progress[WHERE].behind_since_ms == 1_000
    caught_up = fold_committed(later, {"g": {WHERE: 100}}, 10_000, rates)
    assert caught_up.groups["g"].progress[WHERE].behind_since_ms is None


def test_deleted_offsets_are_dropped_by_a_whole_answer_only() -> None:
    rates = Rates[Place](60_000)
    both = fold_committed(snapshot(), {"g": {WHERE: 60, OTHER: 3}}, 1_000, rates)
    one = fold_committed(both, {"g": {WHERE: 61}}, 2_000, rates, whole=False)
    assert set(one.groups["g"].progress) == {WHERE, OTHER}
    assert set(fold_committed(both, {"g": {WHERE: 61}}, 2_000, rates).groups["g"].progress) == {WHERE}


def test_positions_and_times_behind_that_are_not_known_any_more_become_none() -> None:
    rates = Rates[Place](60_000)
    known = fold_committed(snapshot(), {"g": {WHERE: 60}}, 1_000, rates)
    there = fold_positions(known, {"g": {WHERE: 70}})
    assert there.groups["g"].progress[WHERE].position == 70
    assert fold_positions(there, {"g": {}}).groups["g"].progress[WHERE].position is None
    aged = fold_behind(there, {"g": {WHERE: TimeBehind(behind_ms=50, at_least=True)}})
    found = aged.groups["g"].progress[WHERE]
    assert (found.behind_ms, found.behind_at_least) == (50, True)
    assert fold_behind(aged, {"g": {}}).groups["g"].progress[WHERE].behind_ms is None


def test_assignments_are_noted_when_they_differ() -> None:
    first = note_assignment(snapshot(), "g", 1_000)
    assert note_assignment(first, "g", 2_000) is first
    moved = replace(GROUP, members=(replace(MEMBER, assigned=(WHERE, OTHER)),))
    second = note_assignment(replace(first, groups={"g": moved}), "g", 3_000)
    assert [each.at_ms for each in second.assignments["g"]] == [1_000, 3_000]
    assert note_assignment(snapshot(), "nobody", 1_000).assignments == {}


def test_samples_of_the_lag_are_bounded_and_not_too_close() -> None:
    after = fold_committed(snapshot(), {"g": {WHERE: 60}}, 1_000, Rates[Place](60_000))
    for second in range(2_000):
        after = sample_lags(after, second * 1_000)
    samples = after.lag_history["g"]
    assert len(samples) == LAG_SAMPLES
    assert samples[-1][0] - samples[-2][0] == 4_000
    assert samples[-1][1] == 40
