# SPDX-License-Identifier: Apache-2.0
"""What is reported of a Spark query, from its events: bounded, and valid JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.client.tools.pipeline_reports import read_report
from headrace.pipelines.reporting.reported_query import ReportedQuery


def progress(batch: int = 1, rows: int = 10, **other: Any) -> dict[str, Any]:
    held = {"id": None, "partitions": {"0": {"epoch": 0, "offset": 7}, "1": {"epoch": 0, "offset": 4}}}
    end = {"query": "q", "topics": {"orders": held}, "version": 1}
    latest = {"ends": {"orders": {"0": 10, "1": 4}}, "behind": {"orders": {"0": 3, "1": 0}}}
    return {
        "batchId": batch,
        "batchDuration": 120,
        "timestamp": "2026-01-02T03:04:05.678Z",
        "numInputRows": rows,
        "inputRowsPerSecond": 5.0,
        "processedRowsPerSecond": 9.0,
        "durationMs": {"addBatch": 90},
        "stateOperators": [],
        "sources": [{"startOffset": None, "endOffset": end, "latestOffset": latest, "numInputRows": rows}],
        "sink": {"description": "noop"},
        **other,
    }


def query(name: str | None = "store") -> ReportedQuery:
    return ReportedQuery("an-id", name, "a-run", 1, driver="here")


def fields(reported: ReportedQuery) -> dict[str, Any]:
    found = read_report(reported.key.encode(), reported.value(99, "billing"))
    assert found is not None
    assert found.at_ms == 99
    return dict(found.fields)


def test_a_batch_is_reported_with_its_lag() -> None:
    reported = query()
    reported.progressed(progress())
    found = fields(reported)
    assert (found["state"], found["group"], found["sink"]) == ("running", "billing", "noop")
    assert (found["batch"]["lag"], found["batch"]["max_lag"], found["batch"]["state_rows"]) == (3, 3, None)
    assert found["batch"]["at"] == 1767323045678
    assert found["sources"][0]["behind"] == {"orders": {"0": 3, "1": 0}}
    assert found["recent"] == [[1767323045678, 1, 10, 120]]


def test_state_is_added_up_over_its_operators() -> None:
    operator = {"numRowsTotal": 5, "memoryUsedBytes": 100, "numRowsDroppedByWatermark": 1}
    reported = query()
    reported.progressed(progress(stateOperators=[operator, operator]))
    batch = fields(reported)["batch"]
    assert (batch["state_rows"], batch["state_bytes"], batch["late"]) == (10, 200, 2)


def test_a_query_without_a_name_has_its_id_as_key() -> None:
    assert query(None).key == "an-id"


def test_only_the_newest_batches_are_kept_and_a_repeated_one_counts_once() -> None:
    reported = query()
    for number in range(200):
        reported.progressed(progress(number))
        reported.progressed(progress(number))
    recent = fields(reported)["recent"]
    assert [batch for _, batch, _, _ in recent] == list(range(140, 200))


def test_a_batch_without_rows_is_idle() -> None:
    reported = query()
    reported.progressed(progress(rows=0))
    assert fields(reported)["state"] == "idle"


@pytest.mark.parametrize(("error", "state"), [(None, "stopped"), ("x" * 9_000, "failed")])
def test_the_end_and_its_error_are_reported(error: str | None, state: str) -> None:
    reported = query()
    reported.ended(error)
    found = fields(reported)
    assert found["state"] == state
    assert found["error"] == (error and error[:2_000])


def test_rates_that_are_no_numbers_are_not_known() -> None:
    reported = query()
    reported.progressed(progress(inputRowsPerSecond=float("nan"), processedRowsPerSecond=float("inf")))
    batch = fields(reported)["batch"]
    assert (batch["input_rate"], batch["processed_rate"]) == (None, None)
    json.dumps(batch, allow_nan=False)


def test_a_source_of_another_format_has_no_lag() -> None:
    reported = query()
    reported.progressed(progress(sources=[{"description": "rate", "numInputRows": 3, "endOffset": 5}]))
    (source,) = fields(reported)["sources"]
    assert (source["description"], source["lag"], source["behind"]) == ("rate", None, None)
