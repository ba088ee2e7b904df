# SPDX-License-Identifier: Apache-2.0
"""The suite of pipelines on Spark: each performance target as a line.

Every target is a ratio to Spark's own Kafka connector within one turn, judged on Headrace and, in a line of
its own, on Apache Kafka. Read next: bench/measures/spark.py.
"""

from __future__ import annotations

from bench.measures import spark
from bench.measures.spark_histories import ROWS
from bench.model import KAFKA, OS, Better, Line, Measure, Suite

HIGHER, LOWER = Better.HIGHER, Better.LOWER
_BROKERS = (OS, KAFKA)
_PEER = "× connector"


def _ratio(
    figure: str,
    title: str,
    *,
    better: Better,
    target: float | None = None,
) -> tuple[Line, ...]:
    """Lines of one promise, one for each broker that it is judged on."""
    said = {OS: title, KAFKA: f"{title}; on Apache Kafka"}
    return tuple(
        Line(figure=figure, title=said[each], unit=_PEER, better=better, target=target, own=True, judged=each)
        for each in (_BROKERS if target is not None else _BROKERS[:1])
    )


def _rate(figure: str, title: str) -> Line:
    return Line(figure=figure, title=title, unit="rows/s", better=HIGHER, own=True)


def _lower(figure: str, title: str, unit: str) -> Line:
    return Line(figure=figure, title=title, unit=unit, better=LOWER, own=True)


def _history(title: str, *, target: float) -> tuple[Line, ...]:
    said = "… time against spark.read.parquet of the same files"
    return (
        *_ratio("versus_peer", title, better=HIGHER, target=target),
        *(
            Line(
                figure="time_versus_files",
                title=f"{said}{'' if broker == OS else '; on Apache Kafka'}",
                unit="× Parquet",
                better=LOWER,
                target=1.2,
                own=True,
                judged=broker,
            )
            for broker in _BROKERS
        ),
        _rate("ours_rows_per_s", "… ours"),
        _rate("peer_rows_per_s", "… the connector"),
        _rate("files_rows_per_s", "… spark.read.parquet"),
    )


SPARK_SUITE = Suite(
    name="spark",
    title="Pipelines on Spark",
    rounds=5,
    note=(
        "The peer is Spark's own Kafka connector (`spark-sql-kafka-0-10` 4.0.0 on PySpark 4.0.0), with the "
        "best of three settings found in the first turn; same broker, same topic of eight partitions, "
        "`local[2]` on both sides, the connector in a plain session, ours in one of `spark_session`, both "
        "kept warm but for the last measure. Ours runs on PySpark 4.3.0 "
        "unless a line says 4.0.0. Every ratio is ours to the connector's within one turn, so that the "
        "columns differ in the broker only. Code of both sides: `bench/spark/`."
    ),
    measures=(
        Measure(
            name="batch_read",
            run=spark.batch_read,
            variants=_BROKERS,
            lines=(
                *_ratio(
                    "ours_versus_peer",
                    "batch read 5 M × 100 B, count and sum of lengths, both on 4.0.0",
                    better=HIGHER,
                    target=2.5,
                ),
                *_ratio(
                    "ours_cpu_versus_peer",
                    "… CPU seconds of all Spark processes, both on 4.0.0",
                    better=LOWER,
                    target=0.35,
                ),
                *_ratio("ours_new_versus_peer", "… ours on 4.3.0", better=HIGHER),
                *_ratio("ours_new_cpu_versus_peer", "… CPU seconds, ours on 4.3.0", better=LOWER),
                _rate("ours_rows_per_s", "… ours on 4.0.0"),
                _rate("ours_new_rows_per_s", "… ours on 4.3.0"),
                _rate("peer_rows_per_s", "… the connector"),
                _lower("ours_cpu_s_per_million", "… CPU per million rows, ours on 4.0.0", "s"),
                _lower("peer_cpu_s_per_million", "… CPU per million rows, the connector", "s"),
            ),
        ),
        Measure(
            name="stream_to_files",
            run=spark.stream_to_files,
            variants=_BROKERS,
            lines=(
                *_ratio(
                    "versus_peer",
                    "stream of 5 M rows to Parquet by Spark's file sink (AvailableNow)",
                    better=HIGHER,
                    target=1.5,
                ),
                *_ratio("delta_versus_peer", "… ours to Delta instead", better=HIGHER, target=1.4),
                _rate("ours_rows_per_s", "… ours to Parquet"),
                _rate("delta_rows_per_s", "… ours to Delta"),
                _rate("peer_rows_per_s", "… the connector to Parquet"),
                _rate("made_old_rows_per_s", "for comparison: rows that Spark 4.0.0 makes up, to Parquet"),
                _rate("made_new_rows_per_s", "for comparison: rows that Spark 4.3.0 makes up, to Parquet"),
                _rate("noop_rows_per_s", "for comparison: ours to Spark's sink that drops them"),
            ),
        ),
        Measure(
            name="json_windows",
            run=spark.json_windows,
            variants=_BROKERS,
            lines=(
                *_ratio(
                    "versus_peer",
                    "2 M JSON objects to typed columns to windowed sums, end to end",
                    better=HIGHER,
                    target=2.0,
                ),
                _rate("ours_rows_per_s", "… ours"),
                _rate("peer_rows_per_s", "… the connector and from_json"),
            ),
        ),
        Measure(
            name="history",
            run=spark.history,
            variants=_BROKERS,
            lines=_history(
                f"history of {ROWS / 1e6:g} M × 100 B through its table, count and sum of lengths", target=3.0
            ),
        ),
        Measure(
            name="typed_history",
            run=spark.typed_history,
            variants=_BROKERS,
            lines=_history(
                f"two of ten JSON fields of {ROWS / 1e6:g} M, one by a filter, through a typed table",
                target=20.0,
            ),
        ),
        Measure(
            name="copy",
            run=spark.copy,
            variants=_BROKERS,
            lines=(
                *_ratio(
                    "versus_peer", "copy of 5 M rows to a topic, at least once", better=HIGHER, target=2.0
                ),
                _rate("ours_rows_per_s", "… ours"),
                _rate("peer_rows_per_s", "… the connector"),
                _rate("made_rows_per_s", "for comparison: rows that Spark makes up, to our sink"),
                _rate("noop_rows_per_s", "for comparison: ours to Spark's sink that drops them"),
            ),
        ),
        Measure(
            name="copy_once",
            run=spark.copy_once,
            variants=_BROKERS,
            lines=(
                *_ratio(
                    "versus_peer",
                    "copy of 5 M rows, ours exactly once, the connector at least once",
                    better=HIGHER,
                    target=1.2,
                ),
                _rate("ours_rows_per_s", "… ours"),
                _rate("made_rows_per_s", "for comparison: rows that Spark makes up, to our sink"),
            ),
        ),
        Measure(
            name="latency",
            run=spark.latency,
            variants=_BROKERS,
            lines=(
                *_ratio(
                    "batch_ms_versus_peer",
                    "micro-batch of one record (trigger 0), p50 of its duration",
                    better=LOWER,
                    target=1.2,
                ),
                *_ratio("record_ms_versus_peer", "… p50 from the record to the batch's end", better=LOWER),
                _lower("ours_batch_ms", "… duration, ours", "ms"),
                _lower("peer_batch_ms", "… duration, the connector", "ms"),
                _lower("ours_record_ms", "… from the record to the batch's end, ours", "ms"),
                _lower("peer_record_ms", "… from the record to the batch's end, the connector", "ms"),
            ),
        ),
        Measure(
            name="cold_start",
            run=spark.cold_start,
            variants=_BROKERS,
            warm_up=False,
            lines=(
                *_ratio(
                    "first_batch_versus_peer",
                    "first micro-batch of a fresh session, from start() to its end",
                    better=LOWER,
                    target=0.95,
                ),
                *_ratio(
                    "peak_versus_peer",
                    "peak memory of all Spark processes, batch read of 2.5 M rows",
                    better=LOWER,
                    target=1.5,
                ),
                _lower("ours_first_batch_s", "… first micro-batch, ours", "s"),
                _lower("peer_first_batch_s", "… first micro-batch, the connector", "s"),
                _lower("ours_peak_mb", "… peak memory, ours", "MB"),
                _lower("peer_peak_mb", "… peak memory, the connector", "MB"),
            ),
        ),
    ),
)
