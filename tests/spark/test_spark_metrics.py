# SPDX-License-Identifier: Apache-2.0
"""Metrics in the progress of a query, and `headrace pipeline status`, agree with the lag of its group."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.listener import StreamingQueryListener

import headrace.spark
from tests.spark.spark_lab import Broker, Query, wait_until

RECORDS = 40


@pytest.fixture(scope="module")
def measured(spark: Any) -> Any:
    """A session of its own, since other files test a plain one."""
    session = spark.newSession()
    headrace.spark.install_metrics(session)
    headrace.spark.install_metrics(session)  # a second time changes nothing
    return session


class Events(StreamingQueryListener):
    """What a listener of the user is told of the first source."""

    def __init__(self) -> None:
        self.sources: list[Any] = []

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self.sources.append(event.progress.sources[0])

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        pass


def test_progress_has_the_metrics_of_the_source(
    measured: Any, broker: Broker, tmp_path: Path, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2)
    broker.fill(topic, 0, RECORDS)
    query = Query(measured, broker, tmp_path, subscribe=topic, maxOffsetsPerTrigger=RECORDS // 2)
    events = Events()
    measured.streams.addListener(events)
    try:
        ran = query.run()
        now = headrace.spark.progress(ran)
        wait_until(lambda: len(events.sources) == 2)
    finally:
        measured.streams.removeListener(events)
    in_progress = [each.sources[0] for each in ran.recentProgress if each.numInputRows]
    assert [dict(each.metrics) for each in in_progress] == [dict(each.metrics) for each in events.sources]
    assert {each.description for each in in_progress} == {f"headrace[{topic}]"}

    first, last = ({name: _number(text) for name, text in each.metrics.items()} for each in in_progress)
    assert first["rows"] + last["rows"] == RECORDS
    assert first["totalOffsetsBehindLatest"] == last["rows"] > 0
    assert (
        first["minOffsetsBehindLatest"] <= first["avgOffsetsBehindLatest"] <= first["maxOffsetsBehindLatest"]
    )
    assert first["avgOffsetsBehindLatest"] == first["totalOffsetsBehindLatest"] / 2
    assert last["endOffsets"] == last["latestOffsets"]
    assert sum(last["endOffsets"][topic].values()) == RECORDS
    for metrics in (first, last):
        assert metrics["bytes"] > metrics["rows"]
        assert {"fetchTimeMs", "decodeTimeMs"} <= metrics.keys()
    assert now is not None
    assert now["sources"][0]["metrics"]["maxOffsetsBehindLatest"] == "0"
    assert now["sources"][0]["description"] == f"headrace[{topic}]"


def _number(text: str) -> Any:
    return json.loads(text)
