# SPDX-License-Identifier: Apache-2.0
"""A cluster that records no events: what differs between two snapshots becomes events."""

from __future__ import annotations

from dataclasses import replace

from headrace.console.state.differences import cluster_differences, group_differences
from headrace.console.state.model import (
    GroupState,
    MemberState,
    NodeState,
    PartitionState,
    Snapshot,
    TopicState,
)
from headrace.types import TopicPartition

PARTITION = PartitionState(partition=0, leader=1, leader_epoch=0, replicas=(1, 2), isr=(1, 2))
BEFORE = Snapshot(
    at_ms=1_000,
    nodes={1: NodeState(node_id=1, host="a", port=1), 2: NodeState(node_id=2, host="b", port=2)},
    topics={"orders": TopicState(name="orders", partitions={0: PARTITION})},
)


def test_the_first_look_shows_nothing() -> None:
    assert cluster_differences(Snapshot(at_ms=0), BEFORE) == []
    assert group_differences(None, GroupState(group_id="g"), 1) == []


def test_a_dead_leader_is_a_node_down_and_a_new_leader() -> None:
    moved = replace(PARTITION, leader=2, isr=(2,), leader_epoch=1)
    after = replace(
        BEFORE,
        at_ms=2_000,
        nodes={**BEFORE.nodes, 1: replace(BEFORE.nodes[1], up=False)},
        topics={"orders": TopicState(name="orders", partitions={0: moved})},
    )
    down, leader = cluster_differences(BEFORE, after)
    assert (down.kind, down.node, down.at_ms) == ("node_down", 1, 2_000)
    assert (leader.kind, leader.details["leader"], leader.details["leader_before"]) == ("leader", 2, 1)


def test_topics_and_partitions_come_and_go() -> None:
    more = TopicState(name="orders", partitions={0: PARTITION, 1: replace(PARTITION, partition=1)})
    after = replace(BEFORE, topics={"orders": more, "new": TopicState(name="new")})
    assert [each.kind for each in cluster_differences(BEFORE, after)] == ["partitions_added", "topic_created"]
    (gone,) = cluster_differences(BEFORE, replace(BEFORE, topics={}))
    assert (gone.kind, gone.topic) == ("topic_deleted", "orders")


def test_in_sync_replicas_alone_are_an_isr_event() -> None:
    shrunk = TopicState(name="orders", partitions={0: replace(PARTITION, isr=(1,))})
    (found,) = cluster_differences(BEFORE, replace(BEFORE, topics={"orders": shrunk}))
    assert (found.kind, found.details["isr"], found.details["isr_before"]) == ("isr", [1], [1, 2])


def member(name: str, *partitions: int) -> MemberState:
    owned = tuple(TopicPartition("orders", index) for index in partitions)
    return MemberState(member_id=name, client_id=f"client {name}", assigned=owned)


def test_a_member_that_joins_takes_partitions_over() -> None:
    before = GroupState(group_id="g", members=(member("a", 0, 1),))
    after = GroupState(group_id="g", members=(member("a", 0), member("b", 1)))
    join, assigned = group_differences(before, after, 5)
    assert (join.kind, join.details["client_id"]) == ("join", "client b")
    assert assigned.details["moved"] == [("orders-1", "a", "b")]


def test_the_last_member_leaves_an_empty_group() -> None:
    before = GroupState(group_id="g", members=(member("a", 0),))
    found = group_differences(before, GroupState(group_id="g"), 5)
    assert [each.kind for each in found] == ["leave", "empty"]
