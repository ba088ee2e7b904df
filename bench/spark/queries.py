# SPDX-License-Identifier: Apache-2.0
"""What is measured, written once for both sides: each query takes a side and returns totals to be checked.

Runs inside Spark's driver, under either version of PySpark. Read next: sides.py, program.py.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from bench.spark.sides import Side

Totals = dict[str, Any]
_TIMEOUT_S = 300


def batch_read(spark: Any, side: Side, topic: str) -> Totals:
    frame = side.load(spark.read, topic, ["key", "value"])
    rows, length = frame.selectExpr("count(*)", "sum(length(key) + length(value))").first()
    return {"rows": rows, "bytes": length}


def to_parquet(spark: Any, side: Side, topic: str) -> Totals:
    return _to_files(spark, side, topic, "parquet")


def to_delta(spark: Any, side: Side, topic: str) -> Totals:
    return _to_files(spark, side, topic, "headrace_delta")


def store_table(spark: Any, side: Side, topic: str, path: str, schema: str | None) -> Totals:
    """By the built-in pipeline, then merged: what is measured is reading it."""
    from pathlib import Path

    from headrace.pipelines.delta.optimize import optimize_table

    side.store(spark, topic, path, schema)
    return {"files": optimize_table(Path(path)).files_after}


def read_history(spark: Any, side: Side, topic: str, path: str) -> Totals:
    frame = side.history(spark, topic, path)
    rows, total = frame.selectExpr("count(*)", "sum(length(key) + length(value))").first()
    return {"rows": rows, "total": total}


def read_typed_history(spark: Any, side: Side, topic: str, path: str, schema: str, country: str) -> Totals:
    frame = side.typed_history(spark, topic, path, schema).where(f"country = '{country}'")
    return {"total": frame.selectExpr("sum(amount)").first()[0]}


def windows(spark: Any, side: Side, topic: str) -> Totals:
    """Sums of ten seconds by customer, out of JSON."""
    counted = (
        side.load_documents(spark.readStream, topic)
        .withWatermark("at", "10 seconds")
        .groupBy(spark_functions().window("at", "10 seconds"), "customer")
        .agg(spark_functions().expr("count(*) AS orders"), spark_functions().expr("sum(amount) AS amount"))
    )
    seconds = _run(counted.writeStream.format("memory").queryName("windows").outputMode("complete"))
    rows, amount, groups = spark.sql("SELECT sum(orders), sum(amount), count(*) FROM windows").first()
    return {"seconds": seconds, "rows": rows, "amount": amount, "groups": groups}


def copy(spark: Any, side: Side, topic: str, output: str) -> Totals:
    frame = side.load(spark.readStream, topic, ["key", "value"])
    return {"seconds": _run(side.to_topic(frame.writeStream, output))}


def first_batch(spark: Any, side: Side, topic: str) -> Totals:
    frame = side.load(spark.readStream, topic, ["key", "value"])
    return {"seconds": _run(frame.writeStream.format("noop"))}


class Trickle:
    """A query that waits for single records; what its micro-batches took is told at the end."""

    def __init__(self, spark: Any, side: Side, topic: str) -> None:
        self._checkpoint = tempfile.mkdtemp(prefix="bench-spark-")
        frame = side.load(spark.readStream, topic, ["value", "timestamp"])
        newest = spark_functions().expr("max(timestamp) AS newest")
        writer = frame.observe("seen", newest).writeStream.format("noop")
        self._query = writer.option("checkpointLocation", self._checkpoint).start()

    def wait(self, batches: int) -> None:
        deadline = time.monotonic() + _TIMEOUT_S
        while len(self._with_rows()) < batches:
            if self._query.exception() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"no batch of the trickle: {self._query.exception()}")
            time.sleep(0.02)

    def end(self, *, leave_out: int) -> Totals:
        """Milliseconds of each micro-batch, and from a record's creation to the end of its micro-batch."""
        batches = self._with_rows()[leave_out:]
        self._query.stop()
        shutil.rmtree(self._checkpoint, ignore_errors=True)
        return {
            "batch_ms": [each["durationMs"]["triggerExecution"] for each in batches],
            "record_ms": [_record_ms(each) for each in batches],
        }

    def _with_rows(self) -> list[Any]:
        return [each for each in map(_document, self._query.recentProgress) if each["numInputRows"]]


def _document(progress: Any) -> Any:
    return json.loads(progress.json) if hasattr(progress, "json") else progress


def _record_ms(progress: Any) -> float:
    begun = datetime.fromisoformat(progress["timestamp"]).timestamp() * 1000
    created = datetime.fromisoformat(progress["observedMetrics"]["seen"]["newest"]).timestamp() * 1000
    return begun + float(progress["durationMs"]["triggerExecution"]) - created


def _to_files(spark: Any, side: Side, topic: str, form: str) -> Totals:
    folder = tempfile.mkdtemp(prefix="bench-spark-")
    try:
        frame = side.load(spark.readStream, topic, ["key", "value", "timestamp"])
        seconds = _run(frame.writeStream.format(form).option("path", f"{folder}/table"))
        stored = spark.read.format(form).load(f"{folder}/table")
        rows, length = stored.selectExpr("count(*)", "sum(length(key) + length(value))").first()
        return {"seconds": seconds, "rows": rows, "bytes": length}
    finally:
        shutil.rmtree(folder)


def _run(writer: Any) -> float:
    """Until it has read what is there; seconds from the call of start to the end of the query."""
    checkpoint = tempfile.mkdtemp(prefix="bench-spark-")
    try:
        writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        started = time.perf_counter()
        query = writer.start()
        if not query.awaitTermination(_TIMEOUT_S):
            query.stop()
            raise RuntimeError(f"the query did not end within {_TIMEOUT_S} s")
        return time.perf_counter() - started
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)


def spark_functions() -> Any:
    from pyspark.sql import functions

    return functions


QUERIES: dict[str, Callable[..., Totals]] = {
    each.__name__: each
    for each in (
        *(batch_read, to_parquet, to_delta, windows, copy, first_batch),
        *(store_table, read_history, read_typed_history),
    )
}
