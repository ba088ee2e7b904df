# SPDX-License-Identifier: Apache-2.0
"""The drawn cases of groups, played by the coordinator's machine and consumers that assign as clients do."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from headrace.assignors import range as range_assignor
from headrace.assignors import round_robin, sticky, uniform
from headrace.machines.groups.events import (
    OffsetCommit,
    OffsetCommitReply,
    OffsetFetch,
    OffsetFetchReply,
    OffsetToCommit,
)
from headrace.machines.groups.group import Group, GroupSettings
from headrace.types import ClusterView
from headrace.wire.error_codes import ErrorCode
from tests.harness.groups.classic_requests import Assign, ConsumersHarness

EVERY_ASSIGNOR = [range_assignor.assign, round_robin.assign, sticky.assign, uniform.assign]
STICKY_ASSIGNORS = [sticky.assign, uniform.assign]


class Consumers(ConsumersHarness):
    """A group with its offsets."""

    def __init__(self, assign: Assign, partition_counts: Mapping[str, int], group_id: str = "g") -> None:
        self.group_id = group_id
        super().__init__(assign, partition_counts, self.new_group())

    def new_group(self) -> Group:
        return Group(self.group_id, GroupSettings(), ClusterView(version=1, cluster_id="c"))

    def commit(self, member_id: str, topic: str, partition: int, offset: int) -> ErrorCode:
        token = self.token()
        self.submit(
            OffsetCommit.of(
                token=token,
                version=9,
                member_id=member_id,
                generation=self.generation,
                offsets=(OffsetToCommit(topic, partition, offset),),
            )
        )
        return self.reply(token, OffsetCommitReply).error

    def committed(self, topic: str, partition: int) -> int | None:
        token = self.token()
        self.submit(OffsetFetch(token=token, version=9, partitions=((topic, partition),)))
        (found,) = self.reply(token, OffsetFetchReply).offsets
        return None if found.committed is None else found.committed.offset

    def owners(self) -> dict[tuple[str, int], str]:
        found = [
            ((t, p), member) for member, topics in self.held.items() for t, ps in topics.items() for p in ps
        ]
        assert len(found) == len(dict(found)), "a partition has two owners"
        return dict(found)

    def all_partitions(self) -> set[tuple[str, int]]:
        return {(topic, p) for topic, count in self.partition_counts.items() for p in range(count)}


def moved(
    before: Mapping[tuple[str, int], str], after: Mapping[tuple[str, int], str]
) -> set[tuple[str, int]]:
    return {partition for partition, owner in before.items() if after[partition] != owner}


@pytest.mark.row("D10")
@pytest.mark.parametrize("assign", EVERY_ASSIGNOR)
def test_four_partitions_over_three_consumers(assign: Assign) -> None:
    group = Consumers(assign, {"orders": 4})
    for _ in range(3):
        group.enter()
    assert group.owners().keys() == group.all_partitions()
    assert sorted(len(topics["orders"]) for topics in group.held.values()) == [1, 1, 2]


@pytest.mark.row("D10")
@pytest.mark.parametrize("assign", [range_assignor.assign, round_robin.assign])
def test_the_fourth_partition_goes_to_the_first_consumer(assign: Assign) -> None:
    group = Consumers(assign, {"orders": 4})
    first, _second, _third = (group.enter() for _ in range(3))
    assert len(group.held[first]["orders"]) == 2


@pytest.mark.row("D11")
@pytest.mark.parametrize("assign", STICKY_ASSIGNORS)
def test_an_added_partition_goes_to_the_least_loaded_and_nothing_else_moves(assign: Assign) -> None:
    group = Consumers(assign, {"orders": 5})
    for _ in range(3):
        group.enter()
    least_loaded = min(group.held, key=lambda member: len(group.held[member]["orders"]))
    before = group.owners()
    group.partition_counts["orders"] = 6
    group.rebalance()
    assert group.owners()["orders", 5] == least_loaded
    assert not moved(before, group.owners())


@pytest.mark.row("D11")
@pytest.mark.parametrize("assign", STICKY_ASSIGNORS)
def test_a_joining_consumer_takes_from_the_most_loaded_and_nothing_else_moves(assign: Assign) -> None:
    group = Consumers(assign, {"orders": 4})
    for _ in range(3):
        group.enter()
    most_loaded = max(group.held, key=lambda member: len(group.held[member]["orders"]))
    before = group.owners()
    newcomer = group.enter()
    ((topic, partition),) = moved(before, group.owners())
    assert before[topic, partition] == most_loaded
    assert group.held[newcomer] == {topic: [partition]}


@pytest.mark.row("D11")
@pytest.mark.parametrize("assign", STICKY_ASSIGNORS)
def test_a_leaving_consumers_partitions_are_shared_out_and_nothing_else_moves(assign: Assign) -> None:
    group = Consumers(assign, {"orders": 6})
    _one, two, _three = (group.enter() for _ in range(3))
    before = group.owners()
    group.exit(two)
    assert group.owners().keys() == group.all_partitions()
    assert moved(before, group.owners()) == {partition for partition, owner in before.items() if owner == two}
    assert [len(topics["orders"]) for topics in group.held.values()] == [3, 3]


@pytest.mark.row("D11")
def test_the_timeline_records_what_each_rebalance_moved() -> None:
    group = Consumers(sticky.assign, {"orders": 4})
    first = group.enter()
    second = group.enter()
    ended = [line.details for line in group.timeline if line.kind == "assigned"]
    assert [(line["given"], line["moved_count"]) for line in ended] == [(4, 0), (0, 2)]
    assert ended[1]["moved"] == [("orders-2", first, second), ("orders-3", first, second)]


@pytest.mark.row("D12")
def test_two_groups_each_receive_everything() -> None:
    analytics = Consumers(sticky.assign, {"orders": 3}, "analytics")
    storage = Consumers(sticky.assign, {"orders": 3}, "storage")
    reader = analytics.enter()
    for _ in range(2):
        storage.enter()
    assert analytics.owners().keys() == storage.owners().keys() == analytics.all_partitions()
    analytics.commit(reader, "orders", 0, 7)
    assert (analytics.committed("orders", 0), storage.committed("orders", 0)) == (7, None)


@pytest.mark.row("D13")
def test_topics_a_and_b_times_groups_a_and_b() -> None:
    groups = [Consumers(round_robin.assign, {"A": 2, "B": 3}, name) for name in ("A", "B")]
    for group in groups:
        members = [group.enter() for _ in range(2)]
        assert group.owners().keys() == group.all_partitions()
        for number, ((topic, partition), owner) in enumerate(group.owners().items()):
            assert owner in members
            assert group.commit(owner, topic, partition, number) is ErrorCode.none
    assert groups[0].committed("A", 0) == groups[1].committed("A", 0) == 0


@pytest.mark.row("D14")
def test_a_restarted_consumer_resumes_at_the_committed_position_and_sees_the_rest_again() -> None:
    group = Consumers(sticky.assign, {"orders": 1})
    first = group.enter()
    log = [f"record {offset}" for offset in range(8)]
    processed = log[:5]
    group.commit(first, "orders", 0, 3)  # and is killed before it commits the other two
    del group.held[first]
    group.advance(20_000)
    group.enter()
    position = group.committed("orders", 0)
    assert position == 3
    redelivered = log[position:5]
    processed += log[position:]
    assert redelivered == ["record 3", "record 4"]
    assert set(processed) == set(log), "at least once: nothing is missing"


@pytest.mark.row("D14")
def test_the_position_runs_ahead_of_the_committed_one_and_a_seek_back_does_not_move_it() -> None:
    group = Consumers(sticky.assign, {"orders": 1})
    member = group.enter()
    group.commit(member, "orders", 0, 4)
    for position in (5, 9, 0, 2):  # reading on, then seeking back and reading again
        assert position != group.committed("orders", 0) == 4
    group.commit(member, "orders", 0, 2)
    assert group.committed("orders", 0) == 2, "it goes back when that is asked for"


@pytest.mark.row("D14")
def test_the_committed_position_survives_a_restart_of_the_broker() -> None:
    group = Consumers(sticky.assign, {"orders": 1})
    member = group.enter()
    group.commit(member, "orders", 0, 4)
    group.restart(group.new_group)
    assert group.committed("orders", 0) == 4
    assert group.commit(member, "orders", 0, 5) is ErrorCode.none, "the member is still one"
