# SPDX-License-Identifier: Apache-2.0
"""Spark queries as documents, from planted reports: state, lag and errors, whatever a stranger reports."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from headrace.client.tools.pipeline_reports import PipelineReport, read_report
from headrace.console.views.view import ViewError
from tests.unit.console.views_admin.planted import NOW_MS, billing, built, orders, snapshot


def report(name: str = "store", *, age_ms: int = 1_000, **fields: Any) -> PipelineReport:
    batch = {"id": 4, "at": NOW_MS - 900, "ms": 120, "rows": 10, "lag": 7, "durations": {"addBatch": 90}}
    given = {"state": "running", "name": name, "batch": batch, "recent": [[1, 3, 5, 80], [2, 4, 10, 120]]}
    return PipelineReport(key=name, at_ms=NOW_MS - age_ms, fields=given | fields)


def test_a_running_query_has_its_batches_and_its_lag() -> None:
    document = built(
        "pipelines", [report(group="billing")], snapshot=snapshot(topic=orders(), group=billing())
    )
    (found,) = document["pipelines"]
    assert (found["state"], found["batch_ms"], found["lag"]) == ("running", 120, 7)
    assert found["group_lag"] == 300
    assert found["recent"] == [[1, 3, 5, 80], [2, 4, 10, 120]]
    assert (document["reported"], document["alarms"], document["unknown"]) == (True, [], [])


def test_one_that_does_not_report_any_more_is_silent_unless_it_ended() -> None:
    silent, stopped = report("a", age_ms=60_000), report("b", age_ms=60_000, state="stopped")
    document = built("pipelines", [silent, stopped])
    assert [each["state"] for each in document["pipelines"]] == ["silent", "stopped"]
    assert document["pipelines"][0]["silent_for"] == 60_000
    assert [each["level"] for each in document["alarms"]] == ["warning"]


def test_a_failed_one_comes_first_with_its_error() -> None:
    failed = report("z", state="failed", error="no such customer")
    document = built("pipelines", [report("a"), failed])
    assert [each["name"] for each in document["pipelines"]] == ["z", "a"]
    assert "no such customer" in document["alarms"][0]["text"]


@pytest.mark.parametrize("answer", [None, []])
def test_without_reports_it_says_how_to_have_some(answer: list[PipelineReport] | None) -> None:
    document = built("pipelines", answer)
    assert not document["reported"]
    assert "--report" in document["unknown"][0]


def test_groups_that_move_without_members_may_be_queries() -> None:
    query = replace(billing(), members=())
    document = built("pipelines", [], snapshot=snapshot(topic=orders(), group=query))
    assert document["groups"] == [{"id": "billing", "lag": 300, "topics": ["orders"]}]
    reported = built("pipelines", [report(group="billing")], snapshot=snapshot(topic=orders(), group=query))
    assert reported["groups"] == []


def test_reports_of_strangers_are_cut_to_what_is_known() -> None:
    strange = report(
        state=["<b>"],
        batch={"ms": "long", "rows": float("nan"), "durations": [1], "lag": True},
        sources=[{"behind": {"orders": {"x": 1, "0": "many"}}}, "nothing"],
        recent=[[1, 2], [1, 2, 3, None], [1, 2, 3, 4]],
        error="x" * 10_000,
    )
    (found,) = built("pipelines", [strange])["pipelines"]
    assert (found["batch_ms"], found["rows"], found["lag"], found["batch_parts"]) == (None, None, None, {})
    assert found["sources"][0]["behind"] == [{"topic": "orders", "partition": 0, "lag": None}]
    assert found["recent"] == [[1, 2, 3, 4]]
    assert len(found["error"]) == 2_000
    json.dumps(found, allow_nan=False)


def test_one_query_is_found_by_its_name() -> None:
    found = built("pipeline", [report("a"), report("b")], {"name": "b"})
    assert found["pipeline"]["name"] == "b"
    with pytest.raises(ViewError, match="'c'"):
        built("pipeline", [report("a")], {"name": "c"})


@pytest.mark.parametrize(
    "value", [None, b"", b"no JSON", b"[]", b'{"version": 2, "at": 1}', b'{"version": 1}']
)
def test_what_is_no_report_is_left_out(value: bytes | None) -> None:
    assert read_report(b"store", value) is None
    assert read_report(b"\xff", b'{"version": 1, "at": 5}') is None
    assert read_report(b"store", b'{"version": 1, "at": 5, "x": "' + b"x" * 70_000 + b'"}') is None
