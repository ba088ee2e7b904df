# SPDX-License-Identifier: Apache-2.0
"""The state at a past moment from snapshot records in parts and the events after them."""

from __future__ import annotations

from typing import Any

from headrace.console.state.model import Event
from headrace.console.state.replay import Replay
from headrace.types import TopicPartition

NODES = [
    {"node": 1, "epoch": 1, "host": "a", "port": 1, "rack": "r", "up": True, "full": False, "offline": []},
    {
        "node": 2,
        "epoch": 1,
        "host": None,
        "port": None,
        "rack": None,
        "up": False,
        "full": None,
        "offline": [],
    },
]


def event(at: int, kind: str, details: dict[str, Any], **fields: Any) -> Event:
    return Event(at_ms=at, kind=kind, details=details, **fields)


def part(number: int, parts: int, topics: list[dict[str, Any]]) -> Event:
    return event(
        1_000,
        "snapshot",
        {
            "id": "s1", "part": number, "parts": parts, "cluster_id": "c", "controller": 1,
            "nodes": NODES if number == 0 else None, "topics": topics,
        },
    )  # fmt: skip


def described(first: int, *partitions: list[Any]) -> dict[str, Any]:
    return {"topic": "orders", "topic_id": "t", "count": 2, "first": first, "partitions": list(partitions)}


PART_0 = part(0, 2, [described(0, [1, 3, [1, 2], [1]])])
PART_1 = part(1, 2, [described(1, [-1, 4, [2, 1], [2]])])


def filled() -> Replay:
    replay = Replay()
    replay.take(PART_0)
    replay.take(PART_1)
    return replay


def group_snapshot(at: int, members: list[dict[str, Any]], offsets: list[Any] | None) -> Event:
    details = {
        "id": f"g{at}", "part": 0, "parts": 1, "node": 1, "type": "consumer", "state": "Stable", "epoch": 4,
        "assignor": "uniform", "members": members, "offsets": offsets,
    }  # fmt: skip
    return event(at, "group_snapshot", details, group="billing")


def member(name: str, *partitions: int) -> dict[str, Any]:
    shares = [["orders", list(partitions)]]
    return {"member_id": name, "instance_id": None, "client_id": name, "host": "h", "partitions": shares}


def test_a_snapshot_counts_when_all_its_parts_were_read() -> None:
    replay = Replay()
    replay.take(PART_1)
    assert not replay.has_snapshot
    replay.take(PART_0)
    found = replay.snapshot(1_500)
    assert replay.has_snapshot
    assert (found.live, found.at_ms, found.controller, found.cluster_id) == (False, 1_500, 1, "c")
    assert [(each.leader, each.isr) for each in found.topics["orders"].partitions.values()] == [
        (1, (1,)),
        (None, (2,)),
    ]
    assert (found.nodes[1].up, found.nodes[2].up) == (True, False)


def test_without_a_snapshot_the_document_says_what_is_missing() -> None:
    assert any("No snapshot" in sentence for sentence in Replay().snapshot(1).unknown)
    assert not any("No snapshot" in sentence for sentence in filled().snapshot(1).unknown)


def test_later_events_change_it() -> None:
    replay = filled()
    leader = {"leader": 2, "epoch": 5, "isr": [2], "replicas": [2, 1], "leader_before": -1}
    replay.take(event(2_000, "leader", leader, topic="orders", partition=1))
    replay.take(event(2_001, "node_down", {"node": 1}, node=1))
    found = replay.snapshot(2_500)
    assert found.topics["orders"].partitions[1].leader == 2
    assert not found.nodes[1].up
    assert [each.kind for each in found.events] == ["leader", "node_down"]


def test_groups_with_their_lag_rates_and_time_behind() -> None:
    replay = filled()
    replay.take(group_snapshot(1_100, [member("a", 0), member("b", 1)], [["orders", [[0, 10]]]]))
    for second in range(2, 30):
        ends = {"node": 1, "ends": [["orders", [[0, 5, second * 10]]]]}
        replay.take(event(second * 1_000, "log_ends", ends))
        commit = {"member_id": "a", "partitions": 1, "offsets": [["orders", 0, second * 5]]}
        replay.take(event(second * 1_000 + 1, "commit", commit, group="billing"))
    found = replay.snapshot(30_000)
    partition, progress = found.topics["orders"].partitions[0], found.groups["billing"].progress
    assert (partition.start, partition.end, partition.rate_in) == (5, 290, 10.0)
    assert progress[TopicPartition("orders", 0)].committed == 145
    assert progress[TopicPartition("orders", 0)].rate_out == 5.0
    behind = progress[TopicPartition("orders", 0)].behind_ms
    assert behind is not None
    assert 14_000 < behind < 17_000
    assert found.lag_history["billing"][-1][1] > 0


def test_a_rebalance_is_two_assignments() -> None:
    replay = filled()
    replay.take(group_snapshot(1_100, [member("a", 0, 1)], None))
    replay.take(group_snapshot(2_100, [member("a", 0), member("b", 1)], None))
    before, after = replay.snapshot(3_000).assignments["billing"]
    assert (before.at_ms, len(before.members)) == (1_100, 1)
    assert (after.at_ms, len(after.members)) == (2_100, 2)


def test_members_without_offsets_keep_what_was_committed() -> None:
    replay = filled()
    replay.take(group_snapshot(1_100, [member("a", 0)], [["orders", [[0, 10]]]]))
    replay.take(group_snapshot(2_100, [member("b", 0)], None))
    group = replay.snapshot(3_000).groups["billing"]
    assert group.progress[TopicPartition("orders", 0)].committed == 10
    assert [each.member_id for each in group.members] == ["b"]


def test_malformed_records_leave_the_state_as_it_was() -> None:
    replay = filled()
    for details in ({}, {"id": 1, "part": "x", "parts": 1}, {"id": 2, "part": 0, "parts": 1, "nodes": 3}):
        replay.take(event(2_000, "snapshot", details))
        replay.take(event(2_000, "group_snapshot", details, group="g"))
    assert list(replay.snapshot(3_000).topics) == ["orders"]
