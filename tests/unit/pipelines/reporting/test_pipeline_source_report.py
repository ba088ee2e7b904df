# SPDX-License-Identifier: Apache-2.0
"""Descriptions and metrics of sources from the documents in Spark's reports, as text and as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.pipelines.reporting.source_report import read_report
from pyspark_headrace.reading.task_figures import Figures

FIGURES = Figures(rows=7, bytes=1200, fetch_ns=3_600_000, decode_ns=400_000)


def document(*topics: str, end: int = 7) -> dict[str, Any]:
    held = {"id": None, "partitions": {"0": {"epoch": 0, "offset": end}, "1": {"epoch": 0, "offset": 4}}}
    return {"query": "q", "topics": dict.fromkeys(topics, held), "version": 1}


def source(*, start: Any = None, latest: Any = None) -> dict[str, Any]:
    return {"startOffset": start, "endOffset": document("orders"), "latestOffset": latest}


LATEST = {
    "ends": {"orders": {"0": 10, "1": 4}},
    "behind": {"orders": {"0": 3, "1": 0}},
    "lost": {"aged out": 1, "records at most": 12},
}


@pytest.mark.parametrize("as_text", [False, True])
def test_metrics_have_the_names_of_sparks_kafka_connector(as_text: bool) -> None:
    given = source(start=document("orders", end=0), latest=LATEST)
    report = read_report({name: json.dumps(each) for name, each in given.items()} if as_text else given)
    assert report is not None
    assert report.description == "headrace[orders]"
    assert (report.lag, report.lost) == (3, 12)
    assert report.metrics(FIGURES) == {
        "minOffsetsBehindLatest": "0",
        "maxOffsetsBehindLatest": "3",
        "avgOffsetsBehindLatest": "1.5",
        "totalOffsetsBehindLatest": "3",
        "endOffsets": '{"orders":{"0":7,"1":4}}',
        "latestOffsets": '{"orders":{"0":10,"1":4}}',
        "rows": "7",
        "bytes": "1200",
        "fetchTimeMs": "4",
        "decodeTimeMs": "0",
    }


def test_without_figures_and_without_an_answer_of_the_source_the_offsets_are_left() -> None:
    report = read_report(source(latest="null"))
    assert report is not None
    assert report.lag is None
    assert report.metrics(None) == {"endOffsets": '{"orders":{"0":7,"1":4}}'}


def test_an_idle_trigger_has_no_batch() -> None:
    idle, batch = read_report(source(start=document("orders"))), read_report(source())
    assert idle is not None
    assert batch is not None
    assert idle.batch is None
    assert batch.batch is not None


def test_many_topics_are_counted() -> None:
    report = read_report({"endOffset": document(*"edcba")})
    assert report is not None
    assert report.description == "headrace[a, b, c and 2 more]"


@pytest.mark.parametrize("end", [None, "null", "1234", "not JSON", '{"orders":{"0":5}}', {"topics": {}}])
def test_sources_of_other_formats_are_left_alone(end: Any) -> None:
    assert read_report({"endOffset": end}) is None


def test_a_document_of_a_later_version_is_left_alone() -> None:
    assert read_report({"endOffset": document("orders") | {"version": 2}}) is None
