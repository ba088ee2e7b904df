# SPDX-License-Identifier: Apache-2.0
"""Queries report their progress to the console: what they read, their lag and end; it cannot fail them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace.spark
from headrace.client.cluster import Cluster
from headrace.client.tools.pipeline_reports import PipelineReport, PipelineReports
from headrace.console.state.model import Snapshot
from headrace.console.views.pipelines import pipeline as pipeline_view
from headrace.pipelines.definitions.definition_file import pipelines_of
from headrace.pipelines.reporting.report_listener import report
from headrace.pipelines.runner import Runner
from tests.harness.console.plain_source import plain_source
from tests.spark.spark_lab import Broker, wait_until

RECORDS = 30
NOBODY = "127.0.0.1:1"


@pytest.fixture(scope="module")
def session(spark: Any) -> Any:
    """A session of its own, since other files test a plain one."""
    mine = spark.newSession()
    headrace.spark.install_metrics(mine)
    return mine


def _reports(broker: Broker) -> dict[str, PipelineReport]:
    return {each.key: each for each in PipelineReports(broker.bootstrap).update() or ()}


def _started(
    session: Any, broker: Broker, topic: str, folder: Path, name: str, expression: str = "value"
) -> Any:
    frame = session.readStream.format("headrace").option("bootstrap", broker.bootstrap)
    frame = frame.option("subscribe", topic).option("startingOffsets", "earliest").load()
    frame = frame.selectExpr(expression)
    writer = frame.writeStream.format("noop").queryName(name).option("checkpointLocation", str(folder / name))
    return writer.trigger(processingTime="200 milliseconds").start()


def test_a_running_query_reports_its_batches_and_its_end(
    session: Any, broker: Broker, tmp_path: Path, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2)
    broker.fill(topic, 0, RECORDS)
    name = f"{topic}-query"
    with headrace.spark.report_progress(session, broker.bootstrap, groups={name: "billing"}):
        query = _started(session, broker, topic, tmp_path, name)
        try:
            wait_until(lambda: _rows(broker, name) == RECORDS)
            wait_until(lambda: _reports(broker)[name].fields["state"] == "idle")
        finally:
            query.stop()
        wait_until(lambda: _reports(broker)[name].fields["state"] == "stopped")
    fields = _reports(broker)[name].fields
    assert fields["group"] == "billing"
    assert fields["id"] == query.id
    assert fields["error"] is None
    assert sum(rows for _, _, rows, _ in fields["recent"]) == RECORDS
    (source,) = fields["sources"]
    assert source["description"] == f"headrace[{topic}]"
    assert source["lag"] == 0
    assert fields["batch"]["durations"]["addBatch"] > 0


def test_the_console_shows_why_a_query_failed(
    session: Any, broker: Broker, tmp_path: Path, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    broker.fill(topic, 0, RECORDS)
    name = f"{topic}-failing"
    with headrace.spark.report_progress(session, broker.bootstrap):
        query = _started(session, broker, topic, tmp_path, name, "raise_error('no such customer')")
        wait_until(lambda: not query.isActive)
        wait_until(lambda: name in _reports(broker) and _reports(broker)[name].fields["state"] == "failed")
    shown = asyncio.run(_shown(broker, name))
    assert shown["pipeline"]["state"] == "failed"
    assert "no such customer" in shown["pipeline"]["error"]
    assert [alarm["level"] for alarm in shown["alarms"]] == ["error"]


def test_a_cluster_that_cannot_be_reached_does_not_disturb_a_query(
    session: Any, broker: Broker, tmp_path: Path, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    broker.fill(topic, 0, RECORDS)
    reporting = report(session, Cluster(bootstrap=NOBODY))
    query = _started(session, broker, topic, tmp_path, f"{topic}-alone")
    try:
        query.processAllAvailable()
        assert sum(each.numInputRows for each in query.recentProgress) == RECORDS
        assert query.isActive
    finally:
        query.stop()
    before = time.monotonic()
    reporting.close()
    assert time.monotonic() - before < 30


def test_built_in_pipelines_report_with_their_group(
    session: Any, broker: Broker, tmp_path: Path, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    broker.fill(topic, 0, RECORDS)
    name = f"{topic}-stored"
    document = {
        "bootstrap": broker.bootstrap,
        "checkpoints": str(tmp_path / "checkpoints"),
        "store": {name: {"topic": topic, "path": str(tmp_path / "table")}},
    }
    runner = Runner(session, pipelines_of(document, "the test").pipelines, once=True, report=True)
    try:
        runner.start()
        wait_until(lambda: not any(query.active for query in runner.queries))
    finally:
        runner.close()
    fields = _reports(broker)[name].fields
    assert (fields["state"], fields["group"]) == ("stopped", name)
    assert sum(rows for _, _, rows, _ in fields["recent"]) == RECORDS


def _rows(broker: Broker, name: str) -> int:
    report = _reports(broker).get(name)
    return 0 if report is None else sum(rows for _, _, rows, _ in report.fields["recent"])


async def _shown(broker: Broker, name: str) -> dict[str, Any]:
    async with plain_source(broker.bootstrap) as source:
        now = Snapshot(at_ms=time.time_ns() // 1_000_000, engine="headrace")
        return await pipeline_view.VIEW.build(source, now, {"name": name})
