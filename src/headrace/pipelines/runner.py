# SPDX-License-Identifier: Apache-2.0
"""Runs pipelines as queries of one Spark session, and stops them between two micro-batches.

To stop a query, a stop file tells its source to plan no further batch; once the source has acknowledged it
and no trigger is active, stopping interrupts nothing. Read next: jobs/store.py, jobs/analyze.py,
jobs/copying.py, reporting/progress.py; pyspark_headrace/reading/query_lock.py reads the stop file.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from headrace.client.errors import ClientError
from headrace.pipelines.checkpoints.identity import claim
from headrace.pipelines.checks import cluster_of
from headrace.pipelines.definitions.definition import Analyze, Copy, Pipeline, Store
from headrace.pipelines.failures import to_client_error
from headrace.pipelines.jobs import analyze, copying, store
from headrace.pipelines.jobs.background_optimizer import BackgroundOptimizer
from headrace.pipelines.jobs.open_windows import OpenWindows, open_windows
from headrace.pipelines.jobs.records import records
from headrace.pipelines.reporting.progress import Batch, Batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from headrace.client.cluster import Cluster
    from headrace.pipelines.reporting.report_listener import Reporting
    from headrace.pipelines.reporting.source_report import SourceReport
    from pyspark_headrace.reading.task_figures import Figures

POLL_S = 0.25
_BOUNDARY_POLL_S = 0.02
_STARTING = ("Initializing StreamExecution", "Initializing sources")
_ENDING = "Terminated with exception"
_TOO_SLOW = "failed to connect back"
_START_S = 300
_LONG_TRIGGER_S = 3
"""A query that was idle for this long is waiting for its next trigger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedQuery:
    """One query of a pipeline. A pipeline with a table and a topic has two, each with its own checkpoint."""

    name: str
    pipeline: Pipeline
    group: str
    checkpoint: Path
    writer: Callable[[DataFrame], DataStreamWriter]


class RunningQuery:
    def __init__(self, planned: PlannedQuery, query: StreamingQuery, stop_file: Path) -> None:
        self.name = planned.name
        self.checkpoint = planned.checkpoint
        self.batches = Batches(planned.name, _figures_of)
        self._query = query
        self._stop_file = stop_file
        self._idle_since_s: float | None = None

    @property
    def active(self) -> bool:
        return bool(self._query.isActive)

    def await_source(self) -> bool:
        """False when the planning process did not start within Spark's ten seconds."""
        while self.active:
            message = str(self._query.status["message"])
            if message not in _STARTING and not message.startswith(_ENDING):
                return True
            time.sleep(_BOUNDARY_POLL_S)
        return _TOO_SLOW not in str(self._query.exception())

    def new_batches(self) -> list[Batch]:
        return self.batches.add(self._query.recentProgress)

    def failure(self) -> ClientError | None:
        error = self._query.exception()
        return None if error is None else to_client_error(error, self.name)

    def request_stop(self) -> None:
        if not self._stop_file.exists():
            self._stop_file.touch()

    def stop_at_boundary(self) -> None:
        """Stop the query if no batch is running; otherwise call it again."""
        seen = self._stop_file.stat().st_size > 0
        if self._query.status["isTriggerActive"]:
            self._idle_since_s = None
            return
        now_s = time.monotonic()
        self._idle_since_s = self._idle_since_s or now_s
        if seen or now_s - self._idle_since_s > _LONG_TRIGGER_S:
            self._query.stop()

    def stop(self) -> None:
        self._query.stop()


class Runner:
    """All queries of one command. `once`: each ends after the records available at its start."""

    def __init__(
        self, spark: SparkSession, pipelines: Sequence[Pipeline], *, once: bool, report: bool = False
    ) -> None:
        """`report`: the queries report their progress, each to the cluster that it reads."""
        self._spark = spark
        self._once = once
        self._report = report
        self._reporting: list[Reporting] = []
        self._planned = [each for pipeline in pipelines for each in planned_queries(pipeline)]
        self._stop_files = tempfile.TemporaryDirectory(prefix="headrace-pipelines-")
        self.queries: list[RunningQuery] = []
        self._optimizers = [
            BackgroundOptimizer(
                each.storage.place(each.path), every_ms=each.optimize_ms, target_size=each.target_size
            )
            for each in pipelines
            if isinstance(each, Store) and each.optimize_ms is not None
        ]
        self.stop_now = Event()
        """Set to stop at once, without waiting for the end of a micro-batch."""

    def start(self) -> None:
        """Start all queries; on ClientError, which names the pipeline, none is left running."""
        self._reporting = self._report_progress() if self._report else []
        # Spark looks formats up in the thread's session, which may belong to another thread.
        self._spark.createDataFrame([], "nothing INT")
        for planned in self._planned:
            try:
                claim(planned.pipeline, planned.checkpoint)
                self.queries.append(self._start_with_retries(planned))
            except Exception as error:
                self.close()
                raise to_client_error(error, planned.name) from error
        for optimizer in self._optimizers:
            optimizer.start()

    def run(self, shown: Callable[[list[Batch]], None], stop: Event) -> None:
        """Run until all have ended or `stop` is set. A failure stops the others and is raised."""
        while any(query.active for query in self.queries):
            shown([batch for query in self.queries for batch in query.new_batches()])
            if stop.is_set() or any(query.failure() for query in self.queries):
                self.stop_at_boundary()
            stop.wait(POLL_S)
        shown([batch for query in self.queries for batch in query.new_batches()])
        failures = [failure for query in self.queries if (failure := query.failure())]
        if failures:
            raise failures[0]

    def open_windows(self) -> list[OpenWindows]:
        """What a run with `once` has read but not written, since its windows may get further records."""
        found = []
        for planned in self._planned:
            pipeline = planned.pipeline
            if self._once and isinstance(pipeline, Analyze) and pipeline.emit == "closed":
                lateness_ms = pipeline.watermark_ms
                found.append(
                    open_windows(self._spark, planned.name, planned.checkpoint, lateness_ms=lateness_ms)
                )
        return [each for each in found if each is not None]

    def stop_at_boundary(self) -> None:
        """Wait until every query has stopped after a complete micro-batch."""
        for query in self.queries:
            query.request_stop()
        while active := [query for query in self.queries if query.active]:
            for query in active:
                if self.stop_now.is_set():
                    query.stop()
                else:
                    query.stop_at_boundary()
            time.sleep(_BOUNDARY_POLL_S)

    def close(self) -> None:
        """Stop at once; interrupted batches run again at the next start."""
        for query in self.queries:
            if query.active:
                query.stop()
        for optimizer in self._optimizers:
            optimizer.close()
        for reporting in self._reporting:
            reporting.close()
        self._reporting = []
        self._stop_files.cleanup()

    def _report_progress(self) -> list[Reporting]:
        from headrace.pipelines.reporting.report_listener import report  # needs PySpark

        by_cluster: dict[Cluster, dict[str, str]] = {}
        for each in self._planned:
            by_cluster.setdefault(cluster_of(each.pipeline), {})[each.name] = each.group
        return [
            report(self._spark, cluster, groups=groups, names=groups.keys())
            for cluster, groups in by_cluster.items()
        ]

    def _start_with_retries(self, planned: PlannedQuery) -> RunningQuery:
        """Start queries one after the other; retry when the machine was too busy."""
        deadline = time.monotonic() + _START_S
        running = self._start(planned)
        while not running.await_source() and time.monotonic() < deadline:
            running = self._start(planned)
        return running

    def _start(self, planned: PlannedQuery) -> RunningQuery:
        stop_file = Path(self._stop_files.name) / planned.name
        frame = records(self._spark, planned.pipeline, group=planned.group, stop_file=str(stop_file))
        writer = planned.writer(frame).queryName(planned.name)
        writer = writer.option("checkpointLocation", str(planned.checkpoint))
        every = f"{planned.pipeline.every_ms} milliseconds"
        triggered = writer.trigger(availableNow=True) if self._once else writer.trigger(processingTime=every)
        return RunningQuery(planned, triggered.start(), stop_file)


def _figures_of(report: SourceReport) -> Figures | None:
    from headrace.pipelines.reporting.query_metrics import figures_of  # needs PySpark

    return figures_of(report)


def planned_queries(pipeline: Pipeline) -> list[PlannedQuery]:
    writers: list[Callable[[DataFrame], DataStreamWriter]] = []
    if isinstance(pipeline, Store):
        writers = [lambda frame: store.table_writer(store.stored(frame, pipeline), pipeline)]
    elif isinstance(pipeline, Copy):
        writers = [lambda frame: copying.topic_writer(copying.copied(frame, pipeline), pipeline)]
    elif isinstance(pipeline, Analyze):
        if pipeline.path is not None:
            writers.append(lambda frame: analyze.table_writer(analyze.analyzed(frame, pipeline), pipeline))
        if pipeline.to is not None:
            writers.append(lambda frame: analyze.topic_writer(analyze.analyzed(frame, pipeline), pipeline))
    return [
        PlannedQuery(
            name=pipeline.name + suffix,
            pipeline=pipeline,
            group=pipeline.group + suffix,
            checkpoint=pipeline.checkpoint.with_name(pipeline.checkpoint.name + suffix),
            writer=writer,
        )
        for suffix, writer in zip(("", ".topic"), writers, strict=False)
    ]
