# SPDX-License-Identifier: Apache-2.0
"""What drivers of Spark queries report of them: records of the compacted topic `__headrace_pipelines`.

The key is the query's name, or its id where it has none; the value is JSON. Written by
pipelines/reporting/progress_reports.py, on any Kafka; docs/pipelines.md describes the fields.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.settings import client_settings
from headrace.client.tools.admin import Admin
from headrace.client.tools.reader import topic_reader
from headrace.types import PIPELINES_TOPIC

VERSION = 1
HEARTBEAT_MS = 15_000
"""A driver reports at least this often while its query is there."""
SETTINGS: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "segment.bytes": "4194304",
    "segment.ms": "3600000",  # records are compacted only after their segment is closed
}
_MOST_RECORDS = 20_000
_MOST_QUERIES = 1_000
_MOST_BYTES = 64 * 1024
_WAIT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineReport:
    key: str
    at_ms: int
    """When the driver wrote it."""
    fields: Mapping[str, Any]


def read_report(key: bytes | None, value: bytes | None) -> PipelineReport | None:
    """None for what is no report, is too large, or was written by a newer release in another format."""
    if key is None or value is None or len(value) > _MOST_BYTES:
        return None
    try:
        fields = json.loads(value)
        if int(fields["version"]) > VERSION:
            return None
        return PipelineReport(key=key.decode(), at_ms=int(fields["at"]), fields=fields)
    except (ValueError, KeyError, TypeError):
        return None


def report_producer(cluster: Cluster, *, most_queued: int) -> Any:
    """confluent-kafka's producer, for reports that a newer one replaces: what is late is dropped."""
    import confluent_kafka

    return confluent_kafka.Producer(
        client_settings(cluster)
        | {
            "message.timeout.ms": 10_000,
            "queue.buffering.max.messages": most_queued,
            "compression.type": "gzip",
        }
    )


class PipelineReports:
    """The newest report of each query; `update` reads what was written since. One thread at a time."""

    def __init__(self, cluster: str | Cluster) -> None:
        self._cluster = cluster
        self._admin: Admin | None = None
        self._positions: dict[int, int] = {}
        self._topic_id: str | None = None
        self._found: dict[str, PipelineReport] = {}

    def update(self) -> list[PipelineReport] | None:
        """Newest first; None: there is no such topic."""
        self._admin = self._admin or Admin(self._cluster)
        topic = self._admin.find_topic(PIPELINES_TOPIC)
        if topic is None:
            return None
        if topic.topic_id != self._topic_id:
            self._topic_id, self._positions, self._found = topic.topic_id, {}, {}
        partitions = [each.index for each in topic.partitions]
        starts = self._admin.offsets(PIPELINES_TOPIC, partitions, "earliest")
        ends = self._admin.offsets(PIPELINES_TOPIC, partitions, "latest")
        self._read(
            {
                each: max(starts[each], ends[each] - _MOST_RECORDS, self._positions.get(each, 0))
                for each in ends
            },
            ends,
        )
        self._positions = ends
        newest = sorted(self._found.values(), key=lambda report: -report.at_ms)[:_MOST_QUERIES]
        self._found = {report.key: report for report in newest}
        return newest

    def _read(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> None:
        if all(starts[each] >= ends[each] for each in ends):
            return
        deadline = time.monotonic() + _WAIT_S
        reader = topic_reader(self._cluster, PIPELINES_TOPIC, starts, ends, on_pause=lambda: _check(deadline))
        try:
            for record in reader:
                if record.value is None and record.key is not None:
                    self._found.pop(record.key.decode(errors="replace"), None)
                elif (report := read_report(record.key, record.value)) is not None:
                    self._found[report.key] = report
        except TimeoutError:
            pass  # the rest is read at the next look from the newest on
        finally:
            reader.close()


def _check(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise TimeoutError
