# SPDX-License-Identifier: Apache-2.0
"""What a pipeline says while it runs and when it fails, without Spark."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rich.console import Console

from headrace.cli.errors import UsageError
from headrace.cli.pipeline.options import percentiles_from, pipeline_from
from headrace.cli.pipeline.progress import line_of, table_of
from headrace.client.errors import ClientError
from headrace.pipelines.definitions.definition import Analyze
from headrace.pipelines.failures import to_client_error
from headrace.pipelines.reporting.progress import Batches
from pyspark_headrace.reading.task_figures import Figures

STREAM_FAILED = '[STREAM_FAILED] Query [id = 1] terminated with exception: x\n  File "a.py"\n'
OURS = "headrace.client.errors.ClientError: topic 'o' was deleted; create it anew"


def report(number: int, rows: int, *, end: int = 40, late: int = 0) -> dict[str, Any]:
    """As Spark's, as far as it is looked at."""
    partitions = {"0": {"epoch": 0, "offset": end}, "1": {"epoch": 0, "offset": 5}}
    offsets = {"query": "q", "topics": {"orders": {"id": "i", "partitions": partitions}}, "version": 1}
    behind = {"orders": {"0": 50 - end, "1": 0, "2": 3}}
    state = {"numRowsDroppedByWatermark": late, "numRowsTotal": 7, "memoryUsedBytes": 2048}
    return {
        "batchId": number,
        "timestamp": f"2026-01-01T00:00:0{number}.000Z",
        "numInputRows": rows,
        "batchDuration": 500,
        "stateOperators": [state],
        "sources": [
            {
                "endOffset": json.dumps(offsets),
                "latestOffset": json.dumps({"ends": {}, "behind": behind, "lost": {}}),
            }
        ],
    }


def test_micro_batches_are_counted_once_and_shown() -> None:
    batches = Batches("revenue", lambda _: Figures(rows=100, bytes=900, fetch_ns=2_400_000, decode_ns=1))
    first = report(0, 100)
    (batch,) = batches.add([first])
    assert (batch.rows_per_second, batch.lag, batch.max_lag) == (200.0, 10 + 3, 10)
    assert (batch.bytes, batch.fetch_ms, batch.decode_ms) == (900, 2, 0)
    later = batches.add([first, report(1, 50, end=50, late=2), report(2, 0, end=50, late=1)])
    assert [each.number for each in later] == [1, 2]
    assert (batches.total_rows, batches.total_late) == (150, 3)
    assert line_of(batch) == "revenue: batch 0, 100 records, 200/s, lag 13, 500 ms, state 7 rows (2.0 KiB)"
    assert line_of(later[1]).endswith("lag 3, 500 ms, state 7 rows (2.0 KiB), late 3")
    console = Console(width=120)
    with console.capture() as shown:
        console.print(table_of(["revenue", "other"], {"revenue": later[1]}))
    lines = [line.strip() for line in shown.get().splitlines()]
    row = next(line for line in lines if line.startswith("revenue"))
    assert row.split() == ["revenue", "2", "150", "0", "3", "500", "ms", "7", "2.0", "KiB", "3"]


def test_a_source_that_was_not_asked_has_no_lag() -> None:
    replayed = report(0, 0)
    replayed["sources"][0]["latestOffset"] = "null"
    (batch,) = Batches("x", lambda _: None).add([replayed])
    assert (batch.lag, batch.max_lag, batch.bytes, batch.fetch_ms, batch.decode_ms) == (None,) * 5
    assert ", lag -, " in line_of(batch)


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (
            f"{STREAM_FAILED}{OURS}\n\tat org.apache",
            "pipeline 'p': topic 'o' was deleted; create it anew",
        ),
        (
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column `amout` cannot be resolved. SQLSTATE: 42703\n'Plan",
            "pipeline 'p': A column `amout` cannot be resolved; fields of typed values are columns",
        ),
        (
            "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log for batchId: 3. SQLSTATE: 40000",
            "Concurrent update to the log for batchId: 3; another run uses this checkpoint",
        ),
        (
            (
                "An error occurred while calling o91.start.\n: org.apache.spark.SparkClassNotFoundException: "
                "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: x. SQLSTATE: 42K02\n\tat org.apache"
            ),
            "pipeline 'p': Failed to find the data source: x",
        ),
        ("", "pipeline 'p': RuntimeError"),
    ],
)
def test_failures_of_spark_in_one_line(raised: str, said: str) -> None:
    assert said in str(to_client_error(RuntimeError(raised), "p"))
    ours = ClientError("told already")
    assert to_client_error(ours, "p") is ours


def test_options_name_themselves_in_errors() -> None:
    values = {
        "topic": ["orders"],
        "window": "1m",
        "path": "/t",
        "percentiles": percentiles_from(["a.b:50,9"]),
    }
    found = pipeline_from("analyze", None, {**values, "by": [], "options": {"minPartitions": "4"}})
    assert isinstance(found, Analyze)
    assert (found.name, found.group) == ("analyze-orders", "analyze-orders")
    assert [each.name for each in found.aggregates] == ["count", "p50_b", "p9_b"]
    with pytest.raises(UsageError, match=r"^--max-rows: 0 is not a whole number"):
        pipeline_from("store", None, {"topic": ["a"], "path": "/t", "max_rows": 0})
    with pytest.raises(UsageError, match=r"^--percentile: 101"):
        pipeline_from("analyze", None, {**values, "percentiles": {"a": [101]}})
