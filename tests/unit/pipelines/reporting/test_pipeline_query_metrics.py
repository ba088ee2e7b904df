# SPDX-License-Identifier: Apache-2.0
"""Metrics of a query's progress on demand, without Spark: the listener is tested in tests/spark."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

import headrace.spark
from headrace.client.errors import ClientError
from headrace.pipelines.reporting import query_metrics
from headrace.pipelines.reporting.source_report import read_report
from pyspark_headrace.reading.task_figures import ReceivedFigures


def document(end: int) -> dict[str, Any]:
    held = {"id": None, "partitions": {"0": {"epoch": 0, "offset": end}}}
    return {"query": "q", "topics": {"orders": held}, "version": 1}


OURS = {
    "description": "org.apache.spark.sql.execution.…@29a5886",
    "startOffset": document(0),
    "endOffset": document(7),
    "latestOffset": {"ends": {"orders": {"0": 9}}, "behind": {"orders": {"0": 2}}, "lost": {}},
}
OTHER = {"description": "RateStream", "startOffset": 1, "endOffset": 2, "latestOffset": 2}


def query_with(*sources: dict[str, Any]) -> Any:
    return SimpleNamespace(lastProgress=SimpleNamespace(json=json.dumps({"sources": sources})))


AS_TEXT = {name: json.dumps(each) if isinstance(each, dict) else each for name, each in OURS.items()}


@pytest.mark.parametrize("given", [OURS, AS_TEXT])
def test_offsets_are_objects_in_classic_sessions_and_on_connect(given: dict[str, Any]) -> None:
    (source,) = headrace.spark.progress(query_with(given))["sources"]
    assert {name: source[name] for name in OURS if name != "description"} == {
        name: each for name, each in OURS.items() if name != "description"
    }


def test_progress_on_demand_describes_our_sources_only(monkeypatch: pytest.MonkeyPatch) -> None:
    received = ReceivedFigures()
    monkeypatch.setattr(query_metrics, "_received", received)
    (ours, other) = headrace.spark.progress(query_with(OURS, OTHER))["sources"]
    assert other == OTHER
    assert ours["description"] == "headrace[orders]"
    assert ours["metrics"]["maxOffsetsBehindLatest"] == "2"
    assert "rows" not in ours["metrics"], "its tasks have sent nothing, as on Spark Connect"

    received.add({read_report(OURS).batch: {("orders", 0, 0, 7): (7, 100, 0, 0)}})
    (ours,) = headrace.spark.progress(query_with(OURS))["sources"]
    assert (ours["metrics"]["rows"], ours["metrics"]["bytes"]) == ("7", "100")
    (idle,) = headrace.spark.progress(query_with({**OURS, "startOffset": document(7)}))["sources"]
    assert "rows" not in idle["metrics"], "of the batch before"


def test_there_is_no_progress_before_the_first() -> None:
    assert headrace.spark.progress(SimpleNamespace(lastProgress=None)) is None


def test_a_session_of_spark_connect_is_told_what_works_there() -> None:
    with pytest.raises(ClientError, match=r"Spark Connect.*headrace\.spark\.progress\(query\)"):
        headrace.spark.install_metrics(SimpleNamespace())
