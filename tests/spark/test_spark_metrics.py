# SPDX-License-Identifier: Apache-2.0
"""Metrics in the progress of a query, and `headrace pipeline status`, agree with the lag of its group."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.listener import StreamingQueryListener

import headrace.spark
from headrace.cli.main import run
from tests.spark.spark_lab import Broker, Query, wait_until

RECORDS = 40


@pytest.fixture(scope="module")
def measured(spark: Any) -> Any:
    """A session of its own, since other files test a plain one."""
    session = spark.newSession()
    session.conf.set("spark.sql.streaming.noDataProgressEventInterval", "2s")
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


@dataclass(frozen=True, kw_only=True)
class Seen:
    """The lag of each partition in the query's progress, in `pipeline status` and in its group."""

    progress: dict[str, int]
    status: dict[str, int]
    group: dict[str, int]
    totals: set[int]
    state: str

    @property
    def agreed(self) -> bool:
        return self.progress == self.status == self.group and self.totals == {sum(self.group.values())}


class Looking:
    def __init__(self, query: Query, topic: str, broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
        self._query, self._topic, self._broker, self._capsys = query, topic, broker, capsys

    def __call__(self, running: Any) -> Seen | None:
        last = headrace.spark.progress(running)
        if last is None or not self._query.finished():
            return None
        source = last["sources"][0]
        (status,) = self._json("pipeline", "status", str(self._query.checkpoint))["queries"]
        group = self._json("groups", "describe", self._topic, "--over", "0s")
        return Seen(
            progress=source["latestOffset"]["behind"][self._topic],
            status={str(each["partition"]): each["lag"] for each in status["offsets"]},
            group={str(each["partition"]): each["lag"] for each in group["partitions"]},
            totals={int(source["metrics"]["totalOffsetsBehindLatest"]), status["lag"], group["lag"]},
            state=status["state"],
        )

    def _json(self, *words: str) -> Any:
        assert run([*words, "--bootstrap", self._broker.bootstrap, "--json"]) == 0
        return json.loads(self._capsys.readouterr().out)


def test_progress_status_and_group_agree(
    measured: Any,
    broker: Broker,
    tmp_path: Path,
    new_topic: Callable[..., str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """After a batch that others wrote behind, and at rest."""
    topic = new_topic(2)
    late = {"minOffsetsPerTrigger": RECORDS, "maxTriggerDelay": "1h"}
    query = Query(measured, broker, tmp_path, subscribe=topic, group=topic, **late)
    looking = Looking(query, topic, broker, capsys)

    def look(running: Any, lag: int) -> bool:
        seen = looking(running)
        return seen is not None and seen.agreed and seen.totals == {lag}

    broker.fill(topic, 0, RECORDS)
    running = query.start(processingTime="0 seconds")
    try:
        query.wait_for(RECORDS)
        broker.fill(topic, RECORDS, RECORDS + 10)
        wait_until(lambda: look(running, 10))
        seen = looking(running)
        assert seen is not None
        assert seen.state == "running"
        wait_until(lambda: running.lastProgress.sources[0].metrics.get("totalOffsetsBehindLatest") == "10")
    finally:
        running.stop()
    ran = query.run()
    wait_until(lambda: look(ran, 0))
    wait_until(lambda: looking(ran).state == "stopped")


def _number(text: str) -> Any:
    return json.loads(text)
