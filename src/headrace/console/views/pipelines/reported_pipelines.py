# SPDX-License-Identifier: Apache-2.0
"""Queries as documents, from what their drivers reported, and the readers of these reports.

Shared by pipelines.py and pipeline.py, which describe the documents.
"""

from __future__ import annotations

import math
import threading
from typing import Any
from weakref import WeakKeyDictionary

from headrace.client.tools.pipeline_reports import HEARTBEAT_MS, PipelineReport, PipelineReports
from headrace.console.state.model import GroupState, Snapshot
from headrace.console.views.admin_document import alarm
from headrace.console.views.view import Document, Source
from headrace.types import PIPELINES_TOPIC

HOW_TO_REPORT = (
    f"no query reports its progress (topic {PIPELINES_TOPIC}): start pipelines with "
    "headrace pipeline run --report, or call headrace.spark.report_progress(spark, bootstrap)"
)
_SILENT_MS = 3 * HEARTBEAT_MS
_ACTIVE = ("running", "idle")
_RECENT = 100
_TEXT = 2_000

_readers: WeakKeyDictionary[Source, Reports] = WeakKeyDictionary()


class Reports:
    """Of one source; its viewers share what was read, and only one of them reads at a time."""

    def __init__(self, reader: PipelineReports) -> None:
        self._reader = reader
        self._lock = threading.Lock()

    def update(self) -> list[PipelineReport] | None:
        with self._lock:
            return self._reader.update()


def reports_of(source: Source) -> Reports:
    if source not in _readers:
        _readers[source] = Reports(PipelineReports(source.cluster))
    return _readers[source]


def pipeline_document(report: PipelineReport, snapshot: Snapshot) -> Document:
    fields = report.fields
    batch = _mapping(fields.get("batch"))
    group = snapshot.groups.get(str(fields.get("group")))
    age_ms = max(snapshot.at_ms - report.at_ms, 0)
    state = _text(fields.get("state")) or "unknown"
    return {
        "name": _text(fields.get("name")) or report.key,
        "id": _text(fields.get("id")),
        "run": _text(fields.get("run")),
        "state": "silent" if state in _ACTIVE and age_ms > _SILENT_MS else state,
        "at": report.at_ms,
        "silent_for": age_ms if state in _ACTIVE and age_ms > _SILENT_MS else None,
        "started": _number(fields.get("started")),
        "driver": _text(fields.get("driver")),
        "batch": _number(batch.get("id")),
        "batch_at": _number(batch.get("at")),
        "batch_ms": _number(batch.get("ms")),
        "batch_parts": _durations(batch.get("durations")),
        "rows": _number(batch.get("rows")),
        "rows_in": _number(batch.get("input_rate")),
        "rows_out": _number(batch.get("processed_rate")),
        "state_rows": _number(batch.get("state_rows")),
        "state_bytes": _number(batch.get("state_bytes")),
        "late": _number(batch.get("late")),
        "watermark": _text(batch.get("watermark")),
        "lag": _number(batch.get("lag")),
        "max_lag": _number(batch.get("max_lag")),
        "sources": _sources(fields.get("sources")),
        "sink": _text(fields.get("sink")),
        "error": _text(fields.get("error")),
        "group": _text(fields.get("group")),
        "group_lag": None if group is None else group_lag(group, snapshot),
        "recent": _recent(fields.get("recent")),
    }


def pipeline_alarms(found: list[Document]) -> list[Document]:
    alarms = []
    for each in found:
        path = None
        if each["state"] == "failed":
            alarms.append(
                alarm(
                    "error",
                    f"query {each['name']!r} failed: {(each['error'] or '')[:200]}",
                    "mend what it says and start it again; its checkpoint has how far it got",
                    since=each["at"],
                    path=path,
                )
            )
        elif each["state"] == "silent":
            alarms.append(
                alarm(
                    "warning",
                    f"query {each['name']!r} has not reported since its last sign",
                    f"see whether its driver still runs on {each['driver'] or 'its machine'}",
                    since=each["at"],
                    path=path,
                )
            )
    return alarms


def group_lag(group: GroupState, snapshot: Snapshot) -> int | None:
    """Over the partitions of which both ends are known; None: of none."""
    lags = []
    for where, progress in group.progress.items():
        topic = snapshot.topics.get(where.topic)
        partition = None if topic is None else topic.partitions.get(where.partition)
        if partition is not None and partition.end is not None and progress.committed is not None:
            lags.append(max(partition.end - progress.committed, 0))
    return sum(lags) if lags else None


def _sources(found: Any) -> list[Document]:
    return [
        {
            "description": _text(each.get("description")),
            "rows": _number(each.get("rows")),
            "lag": _number(each.get("lag")),
            "max_lag": _number(each.get("max_lag")),
            "behind": _behind(each.get("behind")),
        }
        for each in _listed(found)[:20]
        if isinstance(each, dict)
    ]


def _behind(found: Any) -> list[Document]:
    """Of the partitions, most behind first."""
    entries = [
        {"topic": str(topic), "partition": int(partition), "lag": _number(lag)}
        for topic, partitions in _mapping(found).items()
        for partition, lag in _mapping(partitions).items()
        if str(partition).isdecimal()
    ]
    return sorted(entries, key=lambda each: -float(each["lag"] or 0))[:100]


def _recent(found: Any) -> list[list[Any]]:
    """Batches, oldest first: time, number, rows, milliseconds."""
    entries = [list(each) for each in _listed(found)[-_RECENT:] if isinstance(each, list) and len(each) == 4]
    return [each for each in entries if all(_number(value) is not None for value in each)]


def _durations(found: Any) -> Document:
    return {str(name)[:60]: _number(value) for name, value in list(_mapping(found).items())[:20]}


def _mapping(found: Any) -> dict[Any, Any]:
    return found if isinstance(found, dict) else {}


def _listed(found: Any) -> list[Any]:
    return found if isinstance(found, list) else []


def _text(found: Any) -> str | None:
    return None if found is None else str(found)[:_TEXT]


def _number(found: Any) -> float | int | None:
    known = isinstance(found, (int, float)) and not isinstance(found, bool) and math.isfinite(found)
    return found if known else None
