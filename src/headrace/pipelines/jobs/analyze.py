# SPDX-License-Identifier: Apache-2.0
"""`analyze`: counts, sums, averages and percentiles by window of event time and by key.

Windows are either written once, when the watermark has passed them (`closed`), or all of them after every
micro-batch, replacing the former ones (`all`). Read next: records.py, pipelines/runner.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.pipelines.definitions.definition import Analyze
from headrace.pipelines.jobs.records import quoted, topic_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_EVENT_TIME = "_event_time"


def analyzed(frame: DataFrame, analyze: Analyze) -> DataFrame:
    """One row for each window and key: window_start, window_end, the keys, the aggregates."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's convention

    slide = None if analyze.slide_ms is None else _interval(analyze.slide_ms)
    rows = (
        frame.withColumn(_EVENT_TIME, F.expr(analyze.time).cast("timestamp"))
        .withWatermark(_EVENT_TIME, _interval(analyze.watermark_ms))
        .groupBy(
            F.window(_EVENT_TIME, _interval(analyze.window_ms), slide), *(F.expr(each) for each in analyze.by)
        )
        .agg(*(F.expr(each.expression).alias(each.name) for each in analyze.aggregates))
    )
    others = [quoted(name) for name in rows.columns if name != "window"]
    return rows.selectExpr("window.start AS window_start", "window.end AS window_end", *others)


def table_writer(rows: DataFrame, analyze: Analyze) -> DataStreamWriter:
    assert analyze.path is not None
    writer = rows.writeStream.format("headrace_delta").options(**analyze.storage.sink_options())
    return writer.option("path", analyze.path).outputMode(_mode(analyze))


def topic_writer(rows: DataFrame, analyze: Analyze) -> DataStreamWriter:
    """Write each row as a JSON object, with the grouping keys as record key."""
    assert analyze.to is not None
    keys = [quoted(name) for name in rows.columns[2 : 2 + len(analyze.by)]]
    key = {0: "CAST(NULL AS STRING)", 1: f"CAST({keys[0]} AS STRING)" if keys else ""}.get(
        len(keys), f"to_json(struct({', '.join(keys)}))"
    )
    messages = rows.selectExpr(f"{key} AS key", "to_json(struct(*)) AS value")
    options = topic_options(analyze, analyze.to)
    return messages.writeStream.format("headrace").options(**options).outputMode(_mode(analyze))


def _mode(analyze: Analyze) -> str:
    return "append" if analyze.emit == "closed" else "complete"


def _interval(duration_ms: int) -> str:
    return f"{duration_ms} milliseconds"
