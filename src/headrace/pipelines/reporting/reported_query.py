# SPDX-License-Identifier: Apache-2.0
"""What is reported of one Spark query: folded from its events, written as JSON.

Pure: no PySpark, no clock. Read next: progress_reports.py (sends it); docs/pipelines.md has the fields.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from headrace.client.tools.pipeline_reports import VERSION
from headrace.pipelines.reporting.source_report import SourceReport, read_report

State = Literal["running", "idle", "stopped", "failed"]

ENDED: tuple[State, ...] = ("stopped", "failed")
_RECENT = 60
"""Micro-batches that a report has, for a drawing."""
_PARTITIONS = 100
_TEXT = 2_000


class ReportedQuery:
    """Not thread-safe: its owner has a lock."""

    def __init__(self, query_id: str, name: str | None, run: str, started_ms: int, *, driver: str) -> None:
        self.key = name or query_id
        self.run = run
        self.state: State = "running"
        self._about = {"name": name, "id": query_id, "run": run, "started": started_ms, "driver": driver}
        self._batch: dict[str, Any] | None = None
        self._sources: list[dict[str, Any]] = []
        self._sink: str | None = None
        self._error: str | None = None
        self._recent: deque[tuple[int, int, int, int]] = deque(maxlen=_RECENT)

    def progressed(self, document: Mapping[str, Any]) -> None:
        """After a micro-batch: Spark's progress as JSON."""
        rows = int(document.get("numInputRows") or 0)
        self.state = "running" if rows else "idle"
        batch = _batch(document)
        self._sources = [_source(each) for each in document.get("sources") or ()]
        lags = [each["lag"] for each in self._sources if each["lag"] is not None]
        largest = [each["max_lag"] for each in self._sources if each["max_lag"] is not None]
        self._batch = batch | {"lag": sum(lags) if lags else None, "max_lag": max(largest, default=None)}
        self._sink = _text((document.get("sink") or {}).get("description"))
        if not self._recent or self._recent[-1][1] != batch["id"]:
            self._recent.append((batch["at"] or 0, batch["id"], rows, batch["ms"]))

    def idle(self) -> None:
        self.state = "idle"

    def ended(self, error: str | None) -> None:
        self.state = "stopped" if error is None else "failed"
        self._error = _text(error)

    def value(self, now_ms: int, group: str | None) -> bytes:
        document = {
            "version": VERSION,
            "at": now_ms,
            "state": self.state,
            **self._about,
            "group": group,
            "batch": self._batch,
            "sources": self._sources,
            "sink": self._sink,
            "error": self._error,
            "recent": list(self._recent),
        }
        return json.dumps(document, separators=(",", ":")).encode()


def _batch(document: Mapping[str, Any]) -> dict[str, Any]:
    states = [each for each in document.get("stateOperators") or () if isinstance(each, Mapping)]
    return {
        "id": int(document.get("batchId") or 0),
        "at": _milliseconds(document.get("timestamp")),
        "ms": int(document.get("batchDuration") or 0),
        "rows": int(document.get("numInputRows") or 0),
        "input_rate": _finite(document.get("inputRowsPerSecond")),
        "processed_rate": _finite(document.get("processedRowsPerSecond")),
        "durations": {str(name): int(took) for name, took in (document.get("durationMs") or {}).items()},
        "watermark": (document.get("eventTime") or {}).get("watermark"),
        "state_rows": _sum(states, "numRowsTotal"),
        "state_bytes": _sum(states, "memoryUsedBytes"),
        "late": _sum(states, "numRowsDroppedByWatermark"),
    }


def _source(entry: Mapping[str, Any]) -> dict[str, Any]:
    report = read_report(entry)
    description = entry.get("description") if report is None else report.description
    lags = [] if report is None else report.lags
    return {
        "description": _text(description),
        "rows": int(entry.get("numInputRows") or 0),
        "lag": None if report is None else report.lag,
        "max_lag": max(lags, default=None),
        "behind": None if report is None else _most_behind(report),
    }


def _most_behind(report: SourceReport) -> dict[str, dict[str, int]] | None:
    """Of the partitions that are furthest behind."""
    if report.behind is None:
        return None
    entries = [
        (lag, topic, partition)
        for topic, partitions in report.behind.items()
        for partition, lag in partitions.items()
    ]
    found: dict[str, dict[str, int]] = {}
    for lag, topic, partition in sorted(entries, reverse=True)[:_PARTITIONS]:
        found.setdefault(topic, {})[partition] = lag
    return found


def _sum(states: list[Mapping[str, Any]], name: str) -> int | None:
    """None: the query keeps no state."""
    return sum(int(each.get(name) or 0) for each in states) if states else None


def _milliseconds(timestamp: Any) -> int | None:
    try:
        return round(datetime.fromisoformat(str(timestamp)).timestamp() * 1000)
    except ValueError:
        return None


def _finite(value: Any) -> float | None:
    return value if isinstance(value, (int, float)) and math.isfinite(value) else None


def _text(text: Any) -> str | None:
    return None if text is None else str(text)[:_TEXT]
