# SPDX-License-Identifier: Apache-2.0
"""Answers of brokers become snapshots: what is kept, what is shared, and what a dead node looks like."""

from __future__ import annotations

from dataclasses import replace

from headrace.console.state.folding import (
    fold_disk,
    fold_ends,
    fold_problems,
    fold_starts,
    fold_topology,
    node_down,
)
from headrace.console.state.model import NodeState, PartitionState, Snapshot, TopicState
from headrace.console.state.polls import DiskPoll, TopologyPoll
from headrace.console.state.rates import Rates
from headrace.types import TopicPartition

NODES = {number: NodeState(node_id=number, host="127.0.0.1", port=9092 + number) for number in (1, 2, 3)}
ORDERS_0 = TopicPartition("orders", 0)


def partition(index: int = 0, leader: int | None = 1, **more: object) -> PartitionState:
    known = PartitionState(partition=index, leader=leader, leader_epoch=0, replicas=(1, 2, 3), isr=(1, 2, 3))
    return replace(known, **more)  # type: ignore[arg-type]


def topic(name: str = "orders", *partitions: PartitionState, topic_id: str = "id") -> TopicState:
    return TopicState(
        name=name,
        topic_id=topic_id,
        partitions={each.partition: each for each in partitions or (partition(),)},
    )


def poll(*topics: TopicState, nodes: tuple[int, ...] = (1, 2, 3), whole: bool = True) -> TopologyPoll:
    return TopologyPoll(
        cluster_id="c",
        controller=1,
        nodes={number: NODES[number] for number in nodes},
        topics={each.name: each for each in topics},
        whole=whole,
    )


def snapshot(*topics: TopicState) -> Snapshot:
    empty = Snapshot(at_ms=0, engine="headrace")
    return fold_topology(empty, poll(*(topics or (topic(),))), 1_000)


def test_an_unchanged_answer_shares_every_topic() -> None:
    before = snapshot(topic("a"), topic("b"))
    after = fold_topology(before, poll(topic("a"), topic("b")), 2_000)
    assert after.topics is before.topics
    assert after.at_ms == 2_000


def test_a_new_leader_keeps_the_offsets_that_are_known() -> None:
    before = fold_ends(snapshot(), {ORDERS_0: 100}, 1_000, Rates(15_000))
    moved = topic("orders", partition(leader=2, leader_epoch=1, isr=(2, 3)))
    after = fold_topology(before, poll(moved, nodes=(2, 3)), 2_000)
    found = after.topics["orders"].partitions[0]
    assert (found.leader, found.isr, found.end, found.under_replicated) == (2, (2, 3), 100, True)


def test_an_answer_with_an_older_leader_epoch_is_not_believed() -> None:
    before = snapshot(topic("orders", partition(leader=2, leader_epoch=5, isr=(2,))))
    after = fold_topology(before, poll(topic("orders", partition(leader=1, leader_epoch=4))), 2_000)
    assert after.topics["orders"].partitions[0].leader == 2


def test_a_topic_created_anew_loses_what_was_known_of_the_old_one() -> None:
    before = fold_ends(snapshot(), {ORDERS_0: 100}, 1_000, Rates(15_000))
    after = fold_topology(before, poll(topic("orders", topic_id="another")), 2_000)
    assert after.topics["orders"].partitions[0].end is None


def test_a_node_that_metadata_lacks_is_down_since_then_and_back_later() -> None:
    before = snapshot()
    down = fold_topology(before, poll(topic(), nodes=(2, 3)), 2_000)
    assert (down.nodes[1].up, down.nodes[1].since_ms) == (False, 2_000)
    still = fold_topology(down, poll(topic(), nodes=(2, 3)), 3_000)
    assert still.nodes[1].since_ms == 2_000
    back = fold_topology(still, poll(topic()), 4_000)
    assert (back.nodes[1].up, back.nodes[1].since_ms) == (True, 4_000)


def test_metadata_that_still_names_a_node_does_not_undo_its_recorded_death() -> None:
    before = replace(snapshot(), records_events=True)
    dead = replace(before, nodes={**before.nodes, 1: node_down(before.nodes[1], 2_000)})
    soon = fold_topology(dead, poll(topic()), 3_500)
    assert (soon.nodes[1].up, soon.nodes[1].since_ms) == (False, 2_000)
    gone = fold_topology(soon, poll(topic(), nodes=(2, 3)), 4_500)
    assert gone.nodes[1].since_ms == 2_000
    back = fold_topology(gone, poll(topic()), 9_000)
    assert (back.nodes[1].up, back.nodes[1].since_ms) == (True, 9_000)


def test_a_replica_holder_that_was_never_seen_is_down() -> None:
    first = fold_topology(Snapshot(at_ms=0), poll(topic(), nodes=(1, 2)), 1_000)
    assert (first.nodes[3].up, first.nodes[3].since_ms) == (False, None)


def test_the_controller_is_not_known_of_apache_kafka() -> None:
    after = fold_topology(Snapshot(at_ms=0, engine="kafka"), poll(topic()), 1_000)
    assert after.controller is None


def test_an_answer_about_some_topics_leaves_the_others() -> None:
    before = snapshot(topic("a"), topic("b"))
    after = fold_topology(before, poll(topic("b", partition(leader=2, leader_epoch=1)), whole=False), 2_000)
    assert sorted(after.topics) == ["a", "b"]
    assert after.topics["b"].partitions[0].leader == 2


def test_ends_give_rates_and_share_idle_topics() -> None:
    rates = Rates[TopicPartition](15_000)
    idle, busy = TopicPartition("idle", 0), TopicPartition("busy", 0)
    first = fold_ends(snapshot(topic("idle"), topic("busy")), {idle: 5, busy: 100}, 1_000, rates)
    second = fold_ends(first, {idle: 5, busy: 300}, 3_000, rates)
    assert second.topics["busy"].partitions[0].rate_in == 100.0
    third = fold_ends(second, {idle: 5, busy: 300}, 5_000, rates)
    assert third.topics["idle"] is second.topics["idle"]


def test_starts_and_problems_change_only_what_differs() -> None:
    before = snapshot()
    after = fold_starts(before, {ORDERS_0: 7, TopicPartition("gone", 1): 3})
    assert after.topics["orders"].partitions[0].start == 7
    assert fold_starts(after, {ORDERS_0: 7}).topics is after.topics
    assert fold_problems(after, {1: None, 2: None}) is after
    assert fold_problems(after, {1: "no answer"}).nodes[1].problem == "no answer"


def test_sizes_on_disk_are_those_of_the_leaders_replica() -> None:
    disk = DiskPoll(sizes={ORDERS_0: 50}, total_bytes=1_000, free_bytes=400, problem=None)
    of_follower = fold_disk(snapshot(), 2, disk)
    assert of_follower.topics["orders"].partitions[0].size_bytes is None
    assert of_follower.nodes[2].disk_used_bytes == 600
    assert fold_disk(snapshot(), 1, disk).topics["orders"].partitions[0].size_bytes == 50


def test_an_old_broker_does_not_tell_the_size_of_its_volume() -> None:
    disk = DiskPoll(sizes={ORDERS_0: 50}, total_bytes=None, free_bytes=None, problem=None)
    node = fold_disk(snapshot(), 1, disk).nodes[1]
    assert (node.disk_used_bytes, node.disk_free_bytes, node.disk_total_bytes) == (50, None, None)
