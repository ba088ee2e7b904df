# SPDX-License-Identifier: Apache-2.0
"""Progress of a running query from Spark's reports of its micro-batches.

Read next: runner.py; cli/pipeline/progress.py shows it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


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
    """Records in the topics after this batch; None: unknown."""
    state_rows: int
    state_bytes: int
    late: int
    """Rows of this batch that arrived after their window was closed."""
    total_rows: int
    total_late: int
    lost: int
    """Upper bound of lost records, as reported by the source."""


class Batches:
    """Micro-batches of one query; each report is counted once."""

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline
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
        lag, lost = _lag(report["sources"][0])
        self.last = Batch(
            pipeline=self._pipeline,
            number=int(report["batchId"]),
            at=str(report["timestamp"]),
            rows=rows,
            rows_per_second=rows * 1000 / batch_ms if batch_ms else 0.0,
            batch_ms=batch_ms,
            lag=lag,
            state_rows=sum(int(each["numRowsTotal"]) for each in states),
            state_bytes=sum(int(each["memoryUsedBytes"]) for each in states),
            late=late,
            total_rows=self.total_rows,
            total_late=self.total_late,
            lost=lost,
        )
        return self.last


def _lag(source: Mapping[str, Any]) -> tuple[int | None, int]:
    """Lag (end offsets minus the batch's end) and losses."""
    try:
        end, latest = json.loads(source["endOffset"]), json.loads(source["latestOffset"])
        ends = latest["ends"]
        at = {
            (topic, number): each["offset"]
            for topic, held in end["topics"].items()
            for number, each in held["partitions"].items()
        }
    except (KeyError, TypeError, ValueError):
        return None, 0
    lag = sum(
        max(0, last - at.get((topic, number), 0))
        for topic, partitions in ends.items()
        for number, last in partitions.items()
    )
    return lag, int(latest.get("lost", {}).get("records at most", 0))
