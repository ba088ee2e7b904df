# SPDX-License-Identifier: Apache-2.0
"""The views `groups` and `group`: who is slow, why it rebalanced, what one consumer more would change."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from headrace.console.state.model import Assignment, ProgressState, Snapshot
from headrace.console.views.view import ViewError
from tests.unit.console.views.planted import NOW, event, group, member, partition, planted, show, topic


def with_group(**more: Any) -> Snapshot:
    return replace(planted(), **more)


def test_groups_have_lag_rates_trend_and_time_to_clear() -> None:
    (billing,) = show("groups", planted())["groups"]
    assert billing == {
        "id": "billing", "type": "classic", "state": "Stable", "members": 2, "topics": ["orders"], "lag": 60,
        "behind": 9_000, "rate_in": 20.0, "rate_out": 15.0, "clear_in": None, "trend": "growing",
    }  # fmt: skip
    assert show("groups", planted(), q="orders")["total"] == 1
    assert show("groups", planted(), q="other")["groups"] == []


@pytest.mark.parametrize(
    ("rate_out", "trend", "clear_in"),
    [(30.0, "shrinking", 3_000), (10.2, "steady", None), (2.0, "growing", None), (None, None, None)],
)
def test_the_trend_of_a_lag(rate_out: float | None, trend: str | None, clear_in: int | None) -> None:
    billing = group("billing", member("b", 1), progress={1: ProgressState(committed=40, rate_out=rate_out)})
    (shown,) = show("groups", with_group(groups={"billing": billing}))["groups"]
    assert (shown["trend"], shown["clear_in"]) == (trend, clear_in)


def test_no_lag_is_no_trend_and_nothing_committed_is_not_known() -> None:
    caught_up = group("billing", progress={0: ProgressState(committed=100)})
    (shown,) = show("groups", with_group(groups={"billing": caught_up}))["groups"]
    assert (shown["lag"], shown["trend"], shown["clear_in"], shown["behind"]) == (0, "none", 0, 0)
    (unknown,) = show("groups", with_group(groups={"billing": group("billing", progress={})}))["groups"]
    assert (unknown["lag"], unknown["trend"], unknown["clear_in"]) == (None, None, None)


def test_the_slowest_member_is_named_with_since_when() -> None:
    document = show("group", planted(), group="billing")
    json.dumps(document)
    quick, slow = document["members"]
    assert (quick["slow"], slow["slow"]) == (False, True)
    assert (slow["client_id"], slow["lag"], slow["behind_since"]) == ("client-b", 60, NOW - 20_000)
    assert document["partitions"][1]["position"] == 45
    assert document["totals"]["trend"] == "growing"


def test_a_member_that_catches_up_is_not_slow() -> None:
    progress = {1: ProgressState(committed=40, rate_out=50.0, behind_ms=9_000)}
    billing = group("billing", member("b", 1), progress=progress)
    (shown,) = show("group", with_group(groups={"billing": billing}), group="billing")["members"]
    assert shown["slow"] is False


BEFORE = (member("a", 0, 1),)
AFTER = (member("a", 0), member("b", 1))


def rebalanced() -> Snapshot:
    events = (
        event(NOW - 9_000, "join", group="billing", details={"member_id": "b", "client_id": "client-b"}),
        event(NOW - 9_000, "rebalance", group="billing", details={"reason": "b joined"}),
        event(
            NOW - 8_000,
            "assigned",
            group="billing",
            details={"reason": "b joined", "took_ms": 1_000, "moved": [["orders-1", "a", "b"]], "given": 0},
        ),
        event(
            NOW - 7_500, "first_fetch", group="billing",
            details={"member_id": "b", "count": 1, "topic": "orders", "partition": 1, "offset": 3},
        ),
    )  # fmt: skip
    known = (Assignment(at_ms=NOW - 60_000, members=BEFORE), Assignment(at_ms=NOW - 7_900, members=AFTER))
    return with_group(group_events={"billing": events}, assignments={"billing": known})


def test_a_rebalance_has_before_after_what_moved_why_and_for_how_long() -> None:
    (found,) = show("group", rebalanced(), group="billing")["rebalances"]
    assert (found["reason"], found["took"]) == ("b joined", 1_000)
    assert [len(each["partitions"]) for each in found["before"]] == [2]
    assert [len(each["partitions"]) for each in found["after"]] == [1, 1]
    assert found["moved"] == [{"topic": "orders", "partition": 1, "from": "a", "to": "b", "paused": 1_500}]
    assert found["text"] == (
        "Rebalanced: b joined; it took 1.0 s; partitions: 1 moved; the longest pause was 1.5 s"
    )


def test_where_no_assignment_is_known_the_event_says_what_moved() -> None:
    snapshot = replace(rebalanced(), assignments={})
    (found,) = show("group", snapshot, group="billing")["rebalances"]
    assert (found["before"], found["after"]) == ([], [])
    assert found["moved"][0]["to"] == "b"


def test_of_two_rebalances_each_has_its_own_before_and_after() -> None:
    back = event(NOW - 2_000, "assigned", group="billing", details={"reason": "b left"})
    before = rebalanced()
    snapshot = replace(
        before,
        group_events={"billing": (*before.group_events["billing"], back)},
        assignments={
            "billing": (*before.assignments["billing"], Assignment(at_ms=NOW - 1_900, members=BEFORE))
        },
    )
    second, first = show("group", snapshot, group="billing")["rebalances"]
    assert [each["to"] for each in first["moved"]] == ["b"]
    assert [each["to"] for each in second["moved"]] == ["a"]
    assert second["reason"] == "b left"


def test_the_time_line_names_members_and_keeps_what_is_rare() -> None:
    commits = tuple(
        event(NOW - 6_000 + number, "commit", group="billing", details={"member_id": "b", "partitions": 1})
        for number in range(390)
    )
    before = rebalanced()
    snapshot = replace(before, group_events={"billing": (*before.group_events["billing"], *commits)})
    timeline = show("group", snapshot, group="billing")["timeline"]
    assert timeline[0]["kind"] == "join"
    assert timeline[0]["text"] == "client-b joined"
    assert timeline[-1] == {
        "at": NOW - 6_000 + 389, "kind": "commit", "member_id": "b", "client_id": "client-b",
        "text": "client-b committed 1 partition",
    }  # fmt: skip
    assert len(timeline) <= 300


def test_one_consumer_more_takes_partitions_or_is_idle() -> None:
    wide = replace(planted(), topics={"orders": topic("orders", *(partition(index) for index in range(4)))})
    billing = group("billing", member("a", 0, 1), member("b", 2, 3), progress={}, assignor="uniform")
    found = show("group", replace(wide, groups={"billing": billing}), group="billing")["what_if"]
    assert (found["members_now"], found["members_then"], found["idle"]) == (2, 3, 0)
    assert len(found["moves"]) == 1
    assert "would read 1 of 4 partitions; 1 would move." in found["text"]
    narrow = show("group", planted(), group="billing")["what_if"]
    assert narrow["idle"] == 1
    assert "would get nothing" in narrow["text"]


def test_an_assignor_that_is_not_kafkas_is_not_guessed() -> None:
    billing = group("billing", member("a", 0), progress={}, assignor="my-own")
    assert show("group", with_group(groups={"billing": billing}), group="billing")["what_if"] is None


def test_a_group_that_does_not_exist_is_404() -> None:
    with pytest.raises(ViewError) as caught:
        show("group", planted(), group="nobody")
    assert caught.value.status == 404


def history(*lags: int) -> tuple[tuple[int, int], ...]:
    return tuple((NOW - (len(lags) - number) * 4_000, lag) for number, lag in enumerate(lags))


def test_a_group_that_commits_nothing_stands_still() -> None:
    progress = {1: ProgressState(committed=40, rate_out=0.0, behind_ms=90_000)}
    stuck = with_group(
        groups={"billing": group("billing", member("b", 1), progress=progress)},
        lag_history={"billing": history(*range(10, 40))},
    )
    (alarm,) = show("group", stuck, group="billing")["alarms"]
    assert alarm["level"] == "error"
    assert "stands still: 60 records wait" in alarm["text"]
    assert alarm["command"] == "headrace groups describe billing"
    assert show("cluster", stuck)["alarms"] == [alarm]


def test_a_group_that_falls_behind_one_without_consumers_and_one_that_keeps_rebalancing() -> None:
    progress = {1: ProgressState(committed=40, rate_out=2.0, behind_ms=90_000)}
    events = tuple(event(NOW - number * 1_000, "assigned", group="c") for number in range(9, 0, -1))
    snapshot = with_group(
        groups={
            "a": group("a", member("b", 1), progress=progress),
            "b": group("b", progress=progress),
            "c": group("c", progress={}),
        },
        group_events={"c": events},
    )
    alarms = {each["path"]: each for each in show("groups", snapshot)["alarms"]}
    assert "falls behind" in alarms["/groups/a"]["text"]
    assert "has no consumers" in alarms["/groups/b"]["text"]
    assert "rebalanced 9 times" in alarms["/groups/c"]["text"]


def test_hostile_names_are_quoted_in_commands_and_paths() -> None:
    name = "a'; rm -rf / #<script>"
    stuck = {1: ProgressState(committed=40, rate_out=2.0, behind_ms=90_000)}
    snapshot = with_group(groups={name: group(name, member("b", 1), progress=stuck)})
    (alarm,) = show("group", snapshot, group=name)["alarms"]
    assert """'a'"'"'; rm -rf / #<script>'""" in alarm["command"]
    assert alarm["path"] == "/groups/a%27%3B%20rm%20-rf%20%2F%20%23%3Cscript%3E"
