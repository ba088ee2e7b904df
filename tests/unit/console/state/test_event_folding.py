# SPDX-License-Identifier: Apache-2.0
"""Recorded events change a snapshot as they say; malformed and unknown ones leave it as it was."""

from __future__ import annotations

import json

import pytest

from headrace.console.state.event_folding import (
    MOST_EVENTS,
    MOST_GROUP_EVENTS,
    apply,
    committed_offsets,
    log_ends_of,
    remember,
)
from headrace.console.state.model import Event, NodeState, PartitionState, Snapshot, TopicState
from headrace.console.state.recorded import read_recorded
from headrace.types import TopicPartition

ORDERS = TopicState(
    name="orders",
    topic_id="t1",
    partitions={0: PartitionState(partition=0, leader=1, leader_epoch=3, replicas=(1, 2), isr=(1, 2))},
)
BEFORE = Snapshot(
    at_ms=0,
    nodes={1: NodeState(node_id=1, host="a", port=1), 2: NodeState(node_id=2, host="b", port=2)},
    topics={"orders": ORDERS},
)
LEADER = {"leader": 2, "epoch": 4, "isr": [2], "replicas": [1, 2], "leader_before": 1}


def event(kind: str, **fields: object) -> Event:
    details = fields.pop("details", {})
    return Event(at_ms=1_000, kind=kind, details=details, **fields)  # type: ignore[arg-type]


def test_a_recorded_event_is_read_and_others_are_not() -> None:
    text = '{"version":2,"at":5,"kind":"leader","topic":"t","partition":1,"details":{"leader":2}}'
    found = read_recorded(text.encode())
    assert found is not None
    assert (found.at_ms, found.kind, found.topic, found.partition) == (5, "leader", "t", 1)
    assert read_recorded(text.replace('"version":2', '"version":99').encode()) is None
    for broken in (b"", None, b"[]", b'{"kind":"x"}', b"\xff\xfe", b'{"at":1,"kind":"x","details":3}'):
        assert read_recorded(broken) is None


def test_a_leader_moves_and_an_older_epoch_is_ignored() -> None:
    after = apply(BEFORE, event("leader", topic="orders", partition=0, details=LEADER))
    assert after.topics["orders"].partitions[0].leader == 2
    older = apply(
        after, event("leader", topic="orders", partition=0, details={**LEADER, "epoch": 2, "leader": 1})
    )
    assert older is after


def test_no_leader_is_none() -> None:
    after = apply(BEFORE, event("leader", topic="orders", partition=0, details={**LEADER, "leader": -1}))
    assert after.topics["orders"].partitions[0].leader is None


def test_nodes_go_down_and_up() -> None:
    down = apply(BEFORE, event("node_down", details={"node": 1}))
    assert (down.nodes[1].up, down.nodes[1].since_ms) == (False, 1_000)
    up = apply(down, event("node_up", details={"node": 3, "host": "c", "port": 9}))
    assert (up.nodes[3].up, up.nodes[3].host) == (True, "c")
    assert list(up.nodes) == [1, 2, 3]


def test_a_full_disk_is_a_problem_until_it_has_room() -> None:
    full = apply(BEFORE, event("disk_full", details={"node": 2, "reason": "no space"}))
    assert full.nodes[2].disk_problem == "its disk is full: no space"
    assert apply(full, event("disk_room", details={"node": 2})).nodes[2].disk_problem is None


def test_topics_are_created_in_parts_and_deleted() -> None:
    first = {"topic_id": "t2", "count": 2, "first": 0, "partitions": [[1, 0, [1, 2], [1, 2]]]}
    rest = {"topic_id": "t2", "count": 2, "first": 1, "partitions": [[2, 0, [2, 1], [2, 1]]]}
    made = apply(BEFORE, event("topic_created", topic="new", details=first))
    made = apply(made, event("partitions_added", topic="new", details=rest))
    assert [each.leader for each in made.topics["new"].partitions.values()] == [1, 2]
    assert "new" not in apply(made, event("topic_deleted", topic="new", details={"topic_id": "t2"})).topics
    assert "new" in apply(made, event("topic_deleted", topic="new", details={"topic_id": "older"})).topics


def test_members_join_leave_and_the_group_is_emptied_and_deleted() -> None:
    joined = {"member_id": "m1", "client_id": "worker", "client_host": "/10.0.0.1", "instance_id": None}
    after = apply(BEFORE, event("join", group="g", details=joined))
    (member,) = after.groups["g"].members
    assert (member.client_id, member.host, member.joined_ms) == ("worker", "10.0.0.1", 1_000)
    rejoined = apply(
        after, event("rejoin", group="g", details={**joined, "member_id": "m2", "replaces": "m1"})
    )
    assert [each.member_id for each in rejoined.groups["g"].members] == ["m2"]
    left = apply(rejoined, event("leave", group="g", details={"member_id": "m2", "reason": "left"}))
    assert left.groups["g"].members == ()
    assert apply(rejoined, event("empty", group="g")).groups["g"].state == "Empty"
    assert "g" not in apply(left, event("deleted", group="g")).groups


@pytest.mark.parametrize(
    "kind", ["leader", "isr", "node_up", "topic_created", "join", "commit", "what is new"]
)
def test_malformed_and_unknown_events_change_nothing(kind: str) -> None:
    for details in ({}, {"leader": "x"}, {"node": "x"}, {"member_id": None, "offsets": 3}):
        after = apply(BEFORE, event(kind, topic="orders", partition=0, group=None, details=details))
        assert after.topics == BEFORE.topics
        assert after.nodes == BEFORE.nodes


def test_offsets_in_events_are_read_and_malformed_ones_are_none() -> None:
    commit = event("commit", group="g", details={"offsets": [["orders", 0, 17]]})
    assert committed_offsets(commit) == {TopicPartition("orders", 0): 17}
    assert committed_offsets(event("commit", details={"offsets": [[1]]})) == {}
    ends = event("log_ends", details={"ends": [["orders", [[0, 3, 9]]]]})
    assert log_ends_of(ends) == {TopicPartition("orders", 0): (3, 9)}
    assert log_ends_of(event("log_ends", details={"ends": "x"})) == {}


def test_only_the_newest_events_are_remembered() -> None:
    after = BEFORE
    for _ in range(MOST_EVENTS + 20):
        after = remember(after, event("node_up", node=1))
    for _ in range(MOST_GROUP_EVENTS + 20):
        after = remember(after, event("commit", group="g"))
    assert len(after.events) == MOST_EVENTS
    assert len(after.group_events["g"]) == MOST_GROUP_EVENTS


def test_a_recorded_event_replaces_the_difference_that_was_noticed_first() -> None:
    noticed = event("node_down", node=1, details={"noticed": True, "node": 1})
    recorded = event("node_down", node=1, details={"node": 1, "orderly": False})
    after = remember(remember(BEFORE, noticed), recorded)
    assert after.events == (recorded,)
    assert json.dumps(dict(after.events[0].details))
