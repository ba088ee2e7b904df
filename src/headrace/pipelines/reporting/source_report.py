# SPDX-License-Identifier: Apache-2.0
"""One source of format `headrace` in the progress of a query: its description and its metrics.

Pure: works on the documents in Spark's reports, of classic sessions and of Spark Connect. Read next:
query_metrics.py (puts them into the progress), progress.py; pyspark_headrace/reading/planner.py (`report`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.client.errors import ClientError
from pyspark_headrace.reading.offsets import Offsets, read_document
from pyspark_headrace.reading.task_figures import Figures, batch_key

_TOPICS_SHOWN = 3
_NS_PER_MS = 1_000_000
_LOST = "records at most"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceReport:
    """`batch` is the key of the tasks' figures; None where no batch ran."""

    end: Offsets
    batch: str | None
    behind: Mapping[str, Mapping[str, int]] | None
    """Offsets behind the latest by topic and partition; None: Spark did not ask (a repeated batch)."""
    latest: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    lost: int = 0
    """Upper bound of lost records since the query was started."""

    @property
    def description(self) -> str:
        topics = sorted(self.end.topics)
        more = len(topics) - _TOPICS_SHOWN
        names = ", ".join(topics[:_TOPICS_SHOWN]) + (f" and {more} more" if more > 0 else "")
        return f"headrace[{names}]"

    @property
    def lags(self) -> list[int]:
        return [lag for partitions in (self.behind or {}).values() for lag in partitions.values()]

    @property
    def lag(self) -> int | None:
        """In total; None: unknown."""
        return None if self.behind is None else sum(self.lags)

    def metrics(self, figures: Figures | None) -> dict[str, str]:
        """As strings, which is what Spark has; the first three under the names of its Kafka connector."""
        found = {}
        if lags := self.lags:
            found["minOffsetsBehindLatest"] = str(min(lags))
            found["maxOffsetsBehindLatest"] = str(max(lags))
            found["avgOffsetsBehindLatest"] = str(sum(lags) / len(lags))
            found["totalOffsetsBehindLatest"] = str(sum(lags))
        found["endOffsets"] = _text(_ends(self.end))
        if self.latest:
            found["latestOffsets"] = _text(self.latest)
        if figures is not None:
            found["rows"] = str(figures.rows)
            found["bytes"] = str(figures.bytes)
            found["fetchTimeMs"] = str(milliseconds(figures.fetch_ns))
            found["decodeTimeMs"] = str(milliseconds(figures.decode_ns))
        return found


def read_report(source: Mapping[str, Any]) -> SourceReport | None:
    """From an entry of `sources`; None when it is of another format or has no offsets yet."""
    document = offset_document(source.get("endOffset"))
    if document is None or "topics" not in document or "query" not in document:
        return None
    try:
        end = read_document(document)
    except ClientError:
        return None
    said = offset_document(source.get("latestOffset")) or {}
    return SourceReport(
        end=end,
        batch=batch_key(end) if offset_document(source.get("startOffset")) != document else None,
        behind=said.get("behind"),
        latest=said.get("ends", {}),
        lost=int(said.get("lost", {}).get(_LOST, 0)),
    )


def milliseconds(nanoseconds: int) -> int:
    return round(nanoseconds / _NS_PER_MS)


def offset_document(written: Any) -> dict[str, Any] | None:
    """Spark has them as text in its objects, and as JSON in its JSON."""
    try:
        found = json.loads(written) if isinstance(written, str) else written
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _ends(end: Offsets) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {topic: {} for topic in sorted(end.topics)}
    for place, position in end:
        found[place.topic][str(place.partition)] = position.offset
    return found


def _text(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"))
