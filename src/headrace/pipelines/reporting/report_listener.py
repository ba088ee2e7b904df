# SPDX-License-Identifier: Apache-2.0
"""Has the queries of a Spark session report their progress: a listener that hands events on.

Read next: progress_reports.py.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.pipelines.reporting.progress_reports import ProgressReports

_log = logging.getLogger("headrace.spark")


class Reporting:
    """Goes on until `close`, or until the process ends. A context manager."""

    def __init__(self, spark: SparkSession, reports: ProgressReports, names: Collection[str] | None) -> None:
        self._spark = spark
        self._reports = reports
        self._listener = _Listener(reports, names)
        reports.start()
        spark.streams.addListener(self._listener)

    def __enter__(self) -> Reporting:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Sends the last reports; takes a few seconds at most."""
        self._reports.close()
        _logged(lambda: self._spark.streams.removeListener(self._listener))


def report(
    spark: SparkSession,
    cluster: Cluster,
    *,
    groups: Mapping[str, str] | None = None,
    names: Collection[str] | None = None,
) -> Reporting:
    """Of queries that are started from now on. `names`: only of these."""
    if not isinstance(spark, SparkSession):
        raise ClientError(
            "queries of Spark Connect run on its server, which has to report them",
            next_step="call it in the server's own program, or read headrace.spark.progress(query)",
        )
    return Reporting(spark, ProgressReports(cluster, groups), names)


class _Listener(StreamingQueryListener):
    def __init__(self, reports: ProgressReports, names: Collection[str] | None) -> None:
        self._reports = reports
        self._names = names

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        if self._names is None or event.name in self._names:
            _logged(lambda: self._reports.started(str(event.id), event.name, str(event.runId)))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        _logged(lambda: self._reports.progressed(str(progress.id), json.loads(progress.json)))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        _logged(lambda: self._reports.idle(str(event.id)))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        _logged(lambda: self._reports.ended(str(event.id), str(event.runId), event.exception))


def _logged(action: Callable[[], object]) -> None:
    """An error here must not reach Spark, which would log it for every micro-batch."""
    try:
        action()
    except Exception:  # noqa: BLE001 - whatever it is, the query goes on
        _log.debug("an event of a query was not reported", exc_info=True)
