# SPDX-License-Identifier: Apache-2.0
"""Sends reports of a session's queries to the topic `__headrace_pipelines`, for the console.

Best effort: events only change values in memory; a thread sends them, at most once a second for each query.
When the cluster cannot be reached reports are left out, which is logged once. Read next: report_listener.py
(where events come from), client/tools/pipeline_reports.py (who reads them).
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.tools.admin import Admin
from headrace.client.tools.pipeline_reports import HEARTBEAT_MS, SETTINGS, report_producer
from headrace.pipelines.reporting.reported_query import ENDED, ReportedQuery
from headrace.types import PIPELINES_TOPIC

_SEND_S = 1.0
_RETRY_S = 30.0
_MOST_QUERIES = 200
_LAST_WAIT_S = 3.0
_log = logging.getLogger("headrace.spark")


class ProgressReports:
    """Its methods may be called from any thread, return at once and raise nothing."""

    def __init__(self, cluster: Cluster, groups: Mapping[str, str] | None = None) -> None:
        """`groups`: the consumer group of a query, by the query's name."""
        self._cluster = cluster
        self._groups = dict(groups or {})
        self._driver = socket.gethostname()
        self._lock = threading.Lock()
        self._queries: dict[str, ReportedQuery] = {}
        self._due: set[str] = set()
        self._sent_s: dict[str, float] = {}
        self._stop = threading.Event()
        self._producer: Any = None
        self._retry_s = 0.0
        self._failed = False
        self._thread = threading.Thread(target=self._run, name="headrace-progress-reports", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """The session ends: what has not ended is stopped, and the last reports are sent."""
        if self._stop.is_set():
            return
        self._await_ends()
        with self._lock:
            for query_id, query in self._queries.items():
                if query.state not in ENDED:
                    query.ended(None)
                    self._due.add(query_id)
        self._stop.set()
        self._thread.join(_LAST_WAIT_S * 2)

    # events of queries

    def started(self, query_id: str, name: str | None, run: str) -> None:
        query = ReportedQuery(query_id, name, run, _now_ms(), driver=self._driver)
        with self._lock:
            if query_id in self._queries or len(self._queries) < _MOST_QUERIES:
                self._queries[query_id] = query
                self._due.add(query_id)

    def progressed(self, query_id: str, document: Mapping[str, Any]) -> None:
        with self._lock:
            if query_id in self._queries:
                self._queries[query_id].progressed(document)
                self._due.add(query_id)

    def idle(self, query_id: str) -> None:
        with self._lock:
            query = self._queries.get(query_id)
            if query is not None and query.state != "idle":
                query.idle()
                self._due.add(query_id)

    def ended(self, query_id: str, run: str, error: str | None) -> None:
        """An id stays over restarts: an earlier run may end after the next one began."""
        with self._lock:
            query = self._queries.get(query_id)
            if query is not None and query.run == run:
                query.ended(error)
                self._due.add(query_id)

    # the thread

    def _run(self) -> None:
        while not self._stop.wait(_SEND_S):
            self._send_due()
        self._send_due()
        if self._producer is not None:
            self._producer.flush(_LAST_WAIT_S)

    def _send_due(self) -> None:
        if self._producer is None and not self._connect():
            return
        for key, value in self._taken():
            try:
                self._producer.produce(PIPELINES_TOPIC, key=key, value=value)
            except BufferError:
                break  # the cluster takes nothing: the next report has the same and more
        self._producer.poll(0)

    def _taken(self) -> list[tuple[str, bytes]]:
        """Reports to be sent now. Queries that have ended are forgotten."""
        now_s, now_ms, found = time.monotonic(), _now_ms(), []
        with self._lock:
            for query_id, query in list(self._queries.items()):
                silent_ms = (now_s - self._sent_s.get(query_id, 0.0)) * 1000
                if query_id in self._due or silent_ms > HEARTBEAT_MS:
                    found.append((query.key, query.value(now_ms, self._groups.get(query.key))))
                    self._sent_s[query_id] = now_s
                if query.state in ENDED:
                    del self._queries[query_id]
                    self._sent_s.pop(query_id, None)
            self._due.clear()
        return found

    def _connect(self) -> bool:
        """Makes the topic where it is missing. Again some time later when that fails."""
        now_s = time.monotonic()
        if now_s < self._retry_s:
            return False
        self._retry_s = now_s + _RETRY_S
        try:
            admin = Admin(self._cluster)
            if not admin.topic_exists(PIPELINES_TOPIC):
                _create(admin)
        except ClientError as error:
            if not self._failed:
                _log.warning("the progress of queries is not reported: %s", error)
            self._failed = True
            return False
        self._producer = report_producer(self._cluster, most_queued=2 * _MOST_QUERIES)
        return True

    def _await_ends(self) -> None:
        """Events of queries that have just ended are on their way."""
        deadline_s = time.monotonic() + _LAST_WAIT_S
        while time.monotonic() < deadline_s:
            with self._lock:
                if all(query.state in ENDED for query in self._queries.values()):
                    return
            time.sleep(0.05)


def _create(admin: Admin) -> None:
    try:
        admin.create_topic(PIPELINES_TOPIC, partitions=1, configs=SETTINGS)
    except ClientError as error:
        if error.code != "TOPIC_ALREADY_EXISTS":
            raise


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
