# SPDX-License-Identifier: Apache-2.0
"""Fills in what Spark leaves out of the progress of a query over format `headrace`: description and metrics.

PySpark's data source API has no hook for either. In a classic session a listener puts them into Spark's own
progress objects when a micro-batch has ended; `progress` works them out when it is asked, on Spark Connect
too. Read next: source_report.py, pyspark_headrace/reading/task_figures.py, docs/decisions/0037-*.md.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

from py4j.java_collections import MapConverter
from py4j.protocol import Py4JError
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.query import StreamingQuery

import pyspark_headrace_delta
from headrace.client.errors import ClientError
from headrace.pipelines.reporting.source_report import SourceReport, offset_document, read_report
from pyspark_headrace.reading.task_figures import ACCUMULATOR_ID, Figures, ReceivedFigures, Update
from pyspark_headrace.source import MeasuredSource

_ALREADY_THERE = "DATA_SOURCE_ALREADY_EXISTS"
_OFFSETS = ("startOffset", "endOffset", "latestOffset")
_log = logging.getLogger("headrace.spark")
_received = ReceivedFigures()
_installed: WeakSet[SparkSession] = WeakSet()


def install_metrics(spark: SparkSession) -> None:
    """Have queries of this session carry source metrics in their progress. `spark_session` calls it.

    It registers the formats, whose tasks then send their figures to this process, and adds a listener.
    """
    if not isinstance(spark, SparkSession):
        raise ClientError(
            "a session of Spark Connect has its progress objects on the server, out of reach",
            next_step="ask for the metrics: headrace.spark.progress(query)",
        )
    Accumulator(ACCUMULATOR_ID, _received, _Receiver())  # joins PySpark's registry, by which updates find it
    for source in (MeasuredSource, pyspark_headrace_delta.DefaultSource):
        _register(spark, source)
    if spark not in _installed:
        spark.streams.addListener(_Listener(spark))
        _installed.add(spark)


def _register(spark: SparkSession, source: type[DataSource]) -> None:
    """Spark 4.0 refuses a format that it has discovered itself."""
    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        if _ALREADY_THERE not in str(error):
            raise


def progress(query: StreamingQuery) -> dict[str, Any] | None:
    """The last progress of a query as JSON, with descriptions and metrics; None before the first.

    Offsets are JSON objects, also where Spark Connect has them as text.
    """
    last = query.lastProgress
    if last is None:
        return None
    document: dict[str, Any] = json.loads(last.json)
    for source in document["sources"]:
        if (report := read_report(source)) is not None:
            source.update({name: offset_document(source[name]) for name in _OFFSETS})
            source["description"] = report.description
            source["metrics"] = report.metrics(figures_of(report))
    return document


def figures_of(report: SourceReport) -> Figures | None:
    """What the tasks of its batch sent; None when there was none, or the session has no metrics."""
    return None if report.batch is None else _received.total(report.batch)


class _Receiver(AccumulatorParam[Any]):
    def zero(self, value: Any) -> Any:
        return value

    def addInPlace(self, value1: ReceivedFigures, value2: Update) -> Any:
        value1.add(value2)
        return value1


class _Listener(StreamingQueryListener):
    """Spark keeps each progress object, and other listeners get the same one after this."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        with _errors_logged():
            self._fill_in(event.progress._jprogress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Spark makes a progress object for an idle trigger, too, and does not hand it to listeners."""
        with _errors_logged():
            query = self._spark._jsparkSession.streams().get(str(event.id))
            if query is not None:
                self._fill_in(query.lastProgress())

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        pass

    def _fill_in(self, in_spark: Any) -> None:
        """Spark's objects cannot be changed, but the array that holds them can."""
        sources = [] if in_spark is None else in_spark.sources()
        for number, source in enumerate(sources):
            if not source.metrics() and (report := _report_of(source)) is not None:
                sources[number] = self._filled(source, report)

    def _filled(self, source: Any, report: SourceReport) -> Any:
        jvm, gateway = self._spark._jvm, self._spark.sparkContext._gateway
        assert jvm is not None
        assert gateway is not None
        return jvm.org.apache.spark.sql.streaming.SourceProgress(
            report.description,
            source.startOffset(),
            source.endOffset(),
            source.latestOffset(),
            source.numInputRows(),
            source.inputRowsPerSecond(),
            source.processedRowsPerSecond(),
            MapConverter().convert(report.metrics(figures_of(report)), gateway._gateway_client),
        )


@contextmanager
def _errors_logged() -> Iterator[None]:
    """A query goes on without metrics; a session that is stopping has no progress any more."""
    try:
        yield
    except Py4JError:
        _log.debug("metrics were not added to the progress of a query", exc_info=True)


def _report_of(source: Any) -> SourceReport | None:
    return read_report({name: getattr(source, name)() for name in _OFFSETS})
