# SPDX-License-Identifier: Apache-2.0
"""Progress of a running query from Spark's reports of its micro-batches.

Read next: pipelines/runner.py; cli/pipeline/progress.py shows it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.pipelines.reporting.source_report import SourceReport, milliseconds, read_report
from pyspark_headrace.reading.task_figures import Figures

FiguresOf = Callable[[SourceReport], Figures | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One micro-batch, and totals since the start of the pipeline."""

    pipeline: str
    number: int
    at: str
    rows: int
    rows_per_second: float
    batch_ms: int
    lag: int | None
    """Offsets in the topics after this batch; None: unknown."""
    max_lag: int | None
    """Of the partition that is furthest behind."""
    state_rows: int
    state_bytes: int
    late: int
    """Rows of this batch that arrived after their window was closed."""
    total_rows: int
    total_late: int
    lost: int
    """Upper bound of lost records, as reported by the source."""
    bytes: int | None
    """Fetched by the tasks of this batch, compressed; None: they did not report, as are the times."""
    fetch_ms: int | None
    decode_ms: int | None


class Batches:
    """Micro-batches of one query; each report is counted once."""

    def __init__(self, pipeline: str, figures_of: FiguresOf) -> None:
        self._pipeline = pipeline
        self._figures_of = figures_of
        self._seen = ""
        self.total_rows = 0
        self.total_late = 0
        self.last: Batch | None = None

    def add(self, reports: list[Any]) -> list[Batch]:
        """New batches in order; reports of empty triggers only update the last one."""
        found = []
        for report in reports:
            if report["timestamp"] <= self._seen:
                continue
            self._seen = report["timestamp"]
            found.append(self._batch(report))
        return found

    def _batch(self, report: Any) -> Batch:
        states = [dict(each) for each in report["stateOperators"]]
        late = sum(int(each["numRowsDroppedByWatermark"]) for each in states)
        rows = int(report["numInputRows"])
        self.total_rows += rows
        self.total_late += late
        batch_ms = int(report["batchDuration"])
        source = read_report(report["sources"][0])
        figures = None if source is None else self._figures_of(source)
        self.last = Batch(
            pipeline=self._pipeline,
            number=int(report["batchId"]),
            at=str(report["timestamp"]),
            rows=rows,
            rows_per_second=rows * 1000 / batch_ms if batch_ms else 0.0,
            batch_ms=batch_ms,
            lag=None if source is None else source.lag,
            max_lag=None if source is None else max(source.lags, default=None),
            state_rows=sum(int(each["numRowsTotal"]) for each in states),
            state_bytes=sum(int(each["memoryUsedBytes"]) for each in states),
            late=late,
            total_rows=self.total_rows,
            total_late=self.total_late,
            lost=0 if source is None else source.lost,
            bytes=None if figures is None else figures.bytes,
            fetch_ms=None if figures is None else milliseconds(figures.fetch_ns),
            decode_ms=None if figures is None else milliseconds(figures.decode_ns),
        )
        return self.last
