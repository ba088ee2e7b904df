"""How far a running query is, out of what Spark reports of its micro-batches. Pure but for asking Spark.

Read next: runner.py; cli/pipeline_progress.py shows it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One micro-batch, and the sums since the pipeline was started here."""

    pipeline: str
    number: int
    at: str
    rows: int
    rows_per_second: float
    batch_ms: int
    lag: int | None
    """Records that the topics hold beyond it; None while nobody knows."""
    state_rows: int
    state_bytes: int
    late: int
    """Rows that came after their window was closed, in this batch."""
    total_rows: int
    total_late: int
    lost: int
    """Records at most, that the source reports as gone."""


class Batches:
    """What one query did: each report is taken once."""

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline
        self._seen = ""
        self.total_rows = 0
        self.total_late = 0
        self.last: Batch | None = None

    def take(self, reports: list[Any]) -> list[Batch]:
        """Those that are new, in order; reports of triggers that found nothing only renew the last one."""
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
    """Ends of the logs less where the batch ended, and what the source lost."""
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
