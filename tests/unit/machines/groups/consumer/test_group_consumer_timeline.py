# SPDX-License-Identifier: Apache-2.0
"""The timeline of a KIP-848 group (D21): what `headrace groups events` will be able to show."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.groups.consumer_groups import Consumer, GroupDriver, beat_until_stable


def told(group: GroupDriver, since: int = 0) -> list[tuple[str, dict[str, Any]]]:
    entries = group.timeline
    return [(event.kind, dict(event.details)) for event in entries[since:]]


@pytest.mark.row("D21")
def test_a_join_is_recorded_with_reason_moved_partitions_and_duration() -> None:
    group = GroupDriver({"t": 2})
    first, second = Consumer(group, "first", "t"), Consumer(group, "second", "t")
    beat_until_stable(first)
    since = len(told(group))
    second.beat()
    group.advance(3_000)
    first.beat_and_process()
    first.beat_and_process()
    group.advance(1_000)
    second.beat_and_process()
    kinds = told(group, since)
    assert [kind for kind, _ in kinds] == [
        "join",
        "rebalance",
        "target",
        "reconcile",
        "reconcile",
        "reconcile",
        "reconcile",
        "assigned",
    ]
    details = dict(kinds)
    assert kinds[1][1] == {"epoch": 3, "reason": "subscription changed"}
    assert details["target"]["moved"] == [("t-1", "first", "second")]
    assert [
        (entry["member_id"], entry["state"], entry["assigned"], entry["revoking"])
        for kind, entry in kinds
        if kind == "reconcile"
    ] == [
        ("second", "UNRELEASED_PARTITIONS", 0, 0),
        ("first", "UNREVOKED_PARTITIONS", 1, 1),
        ("first", "STABLE", 1, 0),
        ("second", "STABLE", 1, 0),
    ]
    assert details["assigned"] == {
        "epoch": 3,
        "reason": "subscription changed",
        "took_ms": 4_000,
        "members": 2,
    }


@pytest.mark.row("D21")
def test_leaving_and_timing_out_give_their_reasons() -> None:
    group = GroupDriver({"t": 1})
    leaving, silent = Consumer(group, "leaving", "t"), Consumer(group, "silent", "t")
    beat_until_stable(leaving, silent)
    since = len(told(group))
    leaving.leave()
    group.advance(50_000)
    assert [(kind, details["reason"]) for kind, details in told(group, since)] == [
        ("leave", "left"),
        ("rebalance", "leaving: left"),
        ("leave", "session timed out"),
        ("rebalance", "silent: session timed out"),
        ("empty", "leaving: left"),
    ]


def test_a_returning_static_member_is_recorded_as_rejoin() -> None:
    group = GroupDriver({"t": 1})
    consumer = Consumer(group, "old", "t", instance_id="i")
    beat_until_stable(consumer)
    consumer.leave(for_good=False)
    since = len(told(group))
    Consumer(group, "new", "t", instance_id="i").beat()
    assert told(group, since)[0] == ("rejoin", {"member_id": "new", "instance_id": "i", "replaces": "old"})
