# SPDX-License-Identifier: Apache-2.0
"""The marks of the time slider, and the search by name."""

from __future__ import annotations

from dataclasses import replace

from headrace.console.views.cluster.history import MOST_MARKS
from headrace.console.views.cluster.search import MOST_RESULTS, search
from tests.unit.console.views.planted import NOW, event, planted, show, topic


def test_marks_are_what_happened_oldest_first() -> None:
    snapshot = replace(
        planted(),
        events_from_ms=NOW - 100_000,
        events=(event(NOW - 50, "node_down", node=1), event(NOW - 40, "isr", topic="orders")),
        group_events={
            "billing": (
                event(NOW - 60, "join", group="billing", details={"client_id": "worker"}),
                event(NOW - 30, "commit", group="billing"),
            )
        },
    )
    document = show("history", snapshot)
    assert (document["from"], document["to"]) == (NOW - 100_000, NOW)
    assert [(mark["kind"], mark["text"], mark["path"]) for mark in document["marks"]] == [
        ("join", "billing: worker joined", "/groups/billing"),
        ("node_down", "Node 1 is down", "/"),
    ]


def test_a_cluster_that_records_nothing_has_no_past() -> None:
    document = show("history", replace(planted(), records_events=False))
    assert (document["from"], document["to"], document["marks"]) == (None, None, [])
    assert document["recorded"] is False


def test_marks_are_bounded() -> None:
    events = tuple(event(number, "node_up", node=1) for number in range(700))
    marks = show("history", replace(planted(), events=events))["marks"]
    assert (len(marks), marks[-1]["at"]) == (MOST_MARKS, 699)


def test_search_finds_topics_groups_and_nodes_beginnings_first() -> None:
    snapshot = replace(planted(), topics={name: topic(name) for name in ("orders", "old orders", "a/b?c")})
    assert [each["name"] for each in search(snapshot, "ORDERS")] == ["orders", "old orders"]
    assert search(snapshot, "bill") == [{"kind": "group", "name": "billing", "path": "/groups/billing"}]
    assert [each["kind"] for each in search(snapshot, "node 2")] == ["node"]
    assert search(snapshot, "a/b")[0]["path"] == "/topics/a%2Fb%3Fc"
    assert search(snapshot, " ") == []


def test_search_results_are_bounded() -> None:
    topics = {f"t{number}": topic(f"t{number}") for number in range(200)}
    assert len(search(replace(planted(), topics=topics), "t")) == MOST_RESULTS
