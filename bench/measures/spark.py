# SPDX-License-Identifier: Apache-2.0
"""Spark's own Kafka connector and ours on the same broker, topic and cores, one after the other.

Ratios are made within one turn; who goes first changes from turn to turn. Totals are checked on both sides.
Read next: bench/spark/queries.py (what Spark does), bench/spark/sides.py (what differs).
"""

from __future__ import annotations

import atexit
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow.compute as pc
from confluent_kafka import Producer

import headrace
from bench.cell import Cell
from bench.judge import percentile
from bench.measures.spark_histories import COUNTRY, WIDE, History, fill_documents, fill_rows
from bench.measures.spark_topics import (
    BYTES_PER_ROW,
    PARTITIONS,
    Documents,
    batch_of_documents,
    batch_of_rows,
    fill_partitions,
    total_rows,
)
from bench.model import Figures
from bench.spark.processes import NEW, OLD, SparkProcess, SparkProcesses

_ROWS = 5_000_000
_DOCUMENTS = 2_000_000
_ROWS_FOR_MEMORY = 2_500_000
_TRICKLE_RECORDS = 18
_TRICKLE_LEFT_OUT = 6
_PAUSE_S = 0.05
_FETCH = {"kafka.max.partition.fetch.bytes": str(8 << 20), "kafka.fetch.max.bytes": str(64 << 20)}
_TUNINGS: tuple[dict[str, str], ...] = (
    {"minPartitions": "4"},
    {"minPartitions": "4", "kafka.max.poll.records": "5000", **_FETCH},
    {"minPartitions": "4", "kafka.max.poll.records": "50000", **_FETCH},
)
"""What the connector can be told; the quickest in a first turn is what it is measured with."""

_processes = SparkProcesses()
atexit.register(_processes.stop)
_best_tunings: dict[str, dict[str, str]] = {}


def batch_read(cell: Cell) -> Figures:
    """Count and sum of lengths of all rows: both on PySpark 4.0.0, and ours on 4.3.0 too."""
    topic = _topic_of_rows(cell, _ROWS)
    tuning = _tuning(cell, topic)
    asked: dict[str, Callable[[], tuple[float, float]]] = {
        "peer": lambda: _batch(cell, _peer(), "peer", topic, tuning=tuning),
        "ours": lambda: _batch(cell, _processes.get(OLD), "ours", topic),
        "ours_new": lambda: _batch(cell, _processes.get(NEW), "ours", topic),
    }
    found = _in_turn(cell, asked)
    rows = total_rows(cell, _ROWS)
    figures: Figures = {}
    for name, (seconds, cpu) in found.items():
        figures[f"{name}_rows_per_s"] = rows / seconds
        figures[f"{name}_cpu_s_per_million"] = cpu / (rows / 1e6)
    for name in ("ours", "ours_new"):
        figures[f"{name}_versus_peer"] = found["peer"][0] / found[name][0]
        figures[f"{name}_cpu_versus_peer"] = found[name][1] / found["peer"][1]
    return figures


def stream_to_files(cell: Cell) -> Figures:
    """All that is there into files, by a stream that ends itself; rows that Spark makes up as yardstick."""
    topic = _topic_of_rows(cell, _ROWS)
    tuning = _tuning(cell, topic)
    made = {"rows": total_rows(cell, _ROWS)}
    found = _in_turn(
        cell,
        {
            "peer": lambda: _files(cell, _peer(), "peer", topic, tuning=tuning),
            "ours": lambda: _files(cell, _processes.get(NEW), "ours", topic),
            "delta": lambda: _files(cell, _processes.get(NEW), "ours", topic, query="to_delta"),
            "made_old": lambda: _seconds(_processes.get(OLD), "to_parquet", "made", made, topic=topic),
            "made_new": lambda: _seconds(_processes.get(NEW), "to_parquet", "made", made, topic=topic),
            "noop": lambda: _nowhere(cell, topic),
        },
    )
    figures = {f"{name}_rows_per_s": made["rows"] / seconds for name, seconds in found.items()}
    figures["versus_peer"] = found["peer"] / found["ours"]
    figures["delta_versus_peer"] = found["peer"] / found["delta"]
    return figures


def json_windows(cell: Cell) -> Figures:
    """JSON into typed columns into sums of ten seconds by customer."""
    documents = batch_of_documents()
    topic = cell.shared_topic(
        lambda name: fill_partitions(cell, name, documents.batch, _DOCUMENTS), PARTITIONS
    )
    tuning = _tuning(cell, topic)
    found = _in_turn(
        cell,
        {
            "peer": lambda: _windows(cell, _peer(), "peer", topic, documents, tuning=tuning),
            "ours": lambda: _windows(cell, _processes.get(NEW), "ours", topic, documents),
        },
    )
    rows = total_rows(cell, _DOCUMENTS)
    figures = {f"{name}_rows_per_s": rows / seconds for name, seconds in found.items()}
    return {**figures, "versus_peer": found["peer"] / found["ours"]}


def history(cell: Cell) -> Figures:
    """Count and sum of lengths of a topic's whole history, through its table."""
    found = _histories(cell, fill_rows, None, "read_history")
    rows = cell.state["history"].rows
    return {**_against(found), **{f"{name}_rows_per_s": rows / seconds for name, seconds in found.items()}}


def typed_history(cell: Cell) -> Figures:
    """A sum over two of ten JSON fields, one of them by a filter."""
    found = _histories(cell, fill_documents, WIDE, "read_typed_history", schema=WIDE, country=COUNTRY)
    rows = cell.state["history"].rows
    return {**_against(found), **{f"{name}_rows_per_s": rows / seconds for name, seconds in found.items()}}


def copy(cell: Cell) -> Figures:
    """Topic to topic, at least once on both sides."""
    return _copies(cell, exactly_once="off")


def copy_once(cell: Cell) -> Figures:
    """Ours exactly once beside the connector's at least once."""
    return _copies(cell, exactly_once="batch")


def latency(cell: Cell) -> Figures:
    """Single records that come one after the other, into a query that waits for them."""
    found = _in_turn(
        cell,
        {
            "peer": lambda: _trickled(cell, _peer(), "peer"),
            "ours": lambda: _trickled(cell, _processes.get(NEW), "ours"),
        },
    )
    figures: Figures = {}
    for kind in ("batch_ms", "record_ms"):
        p50 = {name: percentile(answer[kind], 50) for name, answer in found.items()}
        figures |= {f"{name}_{kind}": value for name, value in p50.items()}
        figures[f"{kind}_versus_peer"] = p50["ours"] / p50["peer"]
    return figures


def cold_start(cell: Cell) -> Figures:
    """A fresh session: seconds to the end of its first micro-batch, and its memory over a large read."""
    topic = _topic_of_rows(cell, _ROWS_FOR_MEMORY)
    tuning = _TUNINGS[1]
    found = _in_turn(
        cell,
        {
            "peer": lambda: _fresh(cell, "peer", OLD, topic, tuning=tuning),
            "ours": lambda: _fresh(cell, "ours", NEW, topic),
        },
    )
    figures: Figures = {}
    for name, (seconds, peak_bytes) in found.items():
        figures[f"{name}_first_batch_s"] = seconds
        figures[f"{name}_peak_mb"] = peak_bytes / 1e6
    figures["first_batch_versus_peer"] = found["ours"][0] / found["peer"][0]
    figures["peak_versus_peer"] = found["ours"][1] / found["peer"][1]
    return figures


def _histories(
    cell: Cell, fill: Callable[[Cell, str], History], stored_as: str | None, query: str, **arguments: str
) -> dict[str, float]:
    """Seconds of each side. The table is stored before the first turn."""
    new = _processes.get(NEW)
    bootstrap = {"bootstrap": cell.node.bootstrap}
    if "history" not in cell.state:
        topic = cell.create_topic(PARTITIONS)
        folder = tempfile.TemporaryDirectory(prefix="bench-history-")
        atexit.register(folder.cleanup)
        history = fill(cell, topic)
        place = {"topic": topic, "path": f"{folder.name}/table"}
        new.call("store_table", "ours", bootstrap, **place, schema=stored_as)
        cell.state |= {"topic": topic, "history": history, "place": place}
    place = cell.state["place"]
    tuning = _tuning(cell, place["topic"])

    def seconds(spark: SparkProcess, side: str, options: Mapping[str, Any]) -> float:
        answer = spark.call(query, side, dict(options), **place, **arguments)
        _checked(answer, total=cell.state["history"].total)
        return float(answer["seconds"])

    return _in_turn(
        cell,
        {
            "peer": lambda: seconds(_peer(), "peer", {**bootstrap, "tuning": tuning}),
            "ours": lambda: seconds(new, "ours", bootstrap),
            "files": lambda: seconds(new, "files", {}),
        },
    )


def _against(found: Mapping[str, float]) -> Figures:
    return {
        "versus_peer": found["peer"] / found["ours"],
        "time_versus_files": found["ours"] / found["files"],
    }


# -- one side's turn ---------------------------------------------------------------------------------------


def _peer() -> SparkProcess:
    return _processes.get(OLD, connector=True)


def _in_turn(cell: Cell, asked: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
    """Every answer by its name, forwards and backwards by turns."""
    turn = cell.state["turns"] = cell.state.get("turns", -1) + 1
    order = list(asked) if turn % 2 == 0 else list(asked)[::-1]
    return {name: asked[name]() for name in order}


def _tuning(cell: Cell, topic: str) -> dict[str, str]:
    """The connector's best, found out once for every node; ours is then as warm as it is by that."""
    if cell.variant not in _best_tunings:
        bootstrap = {"bootstrap": cell.node.bootstrap}

        def seconds(tuning: dict[str, str]) -> float:
            return _seconds(_peer(), "batch_read", "peer", {**bootstrap, "tuning": tuning}, topic=topic)

        seconds(_TUNINGS[0])
        _best_tunings[cell.variant] = min(_TUNINGS, key=seconds)
        for version in (OLD, NEW) * (1 + len(_TUNINGS)):
            _seconds(_processes.get(version), "batch_read", "ours", bootstrap, topic=topic)
    return _best_tunings[cell.variant]


def _topic_of_rows(cell: Cell, rows: int) -> str:
    batch = batch_of_rows()
    return cell.shared_topic(lambda name: fill_partitions(cell, name, batch, rows), PARTITIONS)


def _seconds(
    spark: SparkProcess, query: str, side: str, options: Mapping[str, Any], **arguments: Any
) -> float:
    return float(spark.call(query, side, dict(options), **arguments)["seconds"])


def _checked(answer: Mapping[str, Any], **expected: int) -> None:
    for name, value in expected.items():
        if answer[name] != value:
            raise RuntimeError(f"{name}: {answer[name]} instead of {value}")


def _batch(cell: Cell, spark: SparkProcess, side: str, topic: str, **options: Any) -> tuple[float, float]:
    """(seconds, CPU seconds of the driver, its JVM and all workers)."""
    before = spark.cpu_seconds()
    answer = spark.call("batch_read", side, {"bootstrap": cell.node.bootstrap, **options}, topic=topic)
    cpu = spark.cpu_seconds() - before
    rows = total_rows(cell, _ROWS)
    _checked(answer, rows=rows, bytes=rows * BYTES_PER_ROW)
    return answer["seconds"], cpu


def _files(
    cell: Cell, spark: SparkProcess, side: str, topic: str, *, query: str = "to_parquet", **options: Any
) -> float:
    answer = spark.call(query, side, {"bootstrap": cell.node.bootstrap, **options}, topic=topic)
    rows = total_rows(cell, _ROWS)
    _checked(answer, rows=rows, bytes=rows * BYTES_PER_ROW)
    return float(answer["seconds"])


def _windows(
    cell: Cell, spark: SparkProcess, side: str, topic: str, documents: Documents, **options: Any
) -> float:
    answer = spark.call("windows", side, {"bootstrap": cell.node.bootstrap, **options}, topic=topic)
    times = total_rows(cell, _DOCUMENTS) // documents.rows
    _checked(answer, rows=times * documents.rows, amount=times * documents.amount, groups=documents.groups)
    return float(answer["seconds"])


def _copies(cell: Cell, *, exactly_once: str) -> Figures:
    """Beside them what Spark needs without our source, and without our sink."""
    rows = total_rows(cell, _ROWS)
    topic = _topic_of_rows(cell, _ROWS)
    tuning = _tuning(cell, topic)
    found = _in_turn(
        cell,
        {
            "peer": lambda: _copied(cell, _peer(), "peer", topic, tuning=tuning),
            "ours": lambda: _copied(cell, _processes.get(NEW), "ours", topic, exactly_once=exactly_once),
            "made": lambda: _copied(
                cell, _processes.get(NEW), "made", topic, rows=rows, exactly_once=exactly_once
            ),
            "noop": lambda: _nowhere(cell, topic),
        },
    )
    figures = {f"{name}_rows_per_s": rows / seconds for name, seconds in found.items()}
    return {**figures, "versus_peer": found["peer"] / found["ours"]}


def _nowhere(cell: Cell, topic: str) -> float:
    """The same rows into Spark's sink that drops them."""
    return _seconds(
        _processes.get(NEW), "first_batch", "ours", {"bootstrap": cell.node.bootstrap}, topic=topic
    )


def _copied(cell: Cell, spark: SparkProcess, side: str, topic: str, **options: Any) -> float:
    bootstrap = cell.node.bootstrap
    with cell.topic(PARTITIONS) as output:
        answer = spark.call("copy", side, {"bootstrap": bootstrap, **options}, topic=topic, output=output)
        rows = length = 0
        for batch in headrace.read(output, bootstrap=bootstrap, columns=["key", "value"]):
            rows += batch.num_rows
            lengths = (pc.sum(pc.binary_length(column)).as_py() for column in batch.columns)
            length += sum(lengths)
    expected = total_rows(cell, _ROWS)
    _checked({"rows": rows, "bytes": length}, rows=expected, bytes=expected * BYTES_PER_ROW)
    return float(answer["seconds"])


def _trickled(cell: Cell, spark: SparkProcess, side: str) -> Mapping[str, list[float]]:
    """One record a micro-batch; the first ones, during warm-up, are left out."""
    records = cell.scaled(_TRICKLE_RECORDS, least=_TRICKLE_LEFT_OUT + 4)
    bootstrap = cell.node.bootstrap
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    with cell.topic() as topic:
        spark.call("trickle", side, {"bootstrap": bootstrap}, topic=topic)
        for number in range(records):
            producer.produce(topic, b"record %d" % number)
            producer.flush(30)
            spark.call("wait", batches=number + 1)
            time.sleep(_PAUSE_S)
        answer: Mapping[str, list[float]] = spark.call("end", leave_out=_TRICKLE_LEFT_OUT)
    return answer


def _fresh(cell: Cell, side: str, version: str, topic: str, **options: Any) -> tuple[float, int]:
    spark = SparkProcess(version, connector=side == "peer")
    chosen = {"bootstrap": cell.node.bootstrap, **options}
    try:
        with cell.topic(PARTITIONS) as few, spark.peak_memory() as peak:
            cell.touch_partitions(few, PARTITIONS)
            seconds = _seconds(spark, "first_batch", side, chosen, topic=few)
            answer = spark.call("batch_read", side, chosen, topic=topic)
            _checked(answer, rows=total_rows(cell, _ROWS_FOR_MEMORY))
    finally:
        spark.stop()
    return seconds, peak.bytes
