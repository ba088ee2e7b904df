# SPDX-License-Identifier: Apache-2.0
"""Built-in pipelines on real Spark: tables and topics hold what was produced, and a stop cuts nothing off."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import headrace
from headrace.client.errors import ClientError
from headrace.client.tools.groups import Groups
from headrace.pipelines.definitions.definition_file import pipelines_of
from headrace.pipelines.jobs.open_windows import OpenWindows
from headrace.pipelines.reporting.progress import Batch
from headrace.pipelines.runner import Runner
from tests.harness.live.committed import wait_for_markers
from tests.spark.spark_lab import TIMEOUT_S, Broker

TYPED = {"value": "json", "schema": "shop STRING, cents BIGINT, at TIMESTAMP"}
RECORDS = 400
pytestmark = pytest.mark.timeout(600)  # three queries at once, and a Spark of its own
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def few_partitions(spark: Any) -> Iterator[Any]:
    """Of shuffles and state: Spark's own 200 take long."""
    name = "spark.sql.shuffle.partitions"
    before = spark.conf.get(name)
    spark.conf.set(name, "2")
    yield spark
    spark.conf.set(name, before)


def sales(numbers: Sequence[int]) -> pa.Table:
    """One a second of event time, from noon on."""
    values = [
        {"shop": f"shop {each % 3}", "cents": each, "at": str(NOON + timedelta(seconds=each))}
        for each in numbers
    ]
    return pa.table({"key": [each["shop"] for each in values], "value": list(map(json.dumps, values))})


def run_once(spark: Any, document: dict[str, Any]) -> list[Batch]:
    return run_and_look(spark, document)[0]


def run_and_look(spark: Any, document: dict[str, Any]) -> tuple[list[Batch], list[OpenWindows]]:
    runner = Runner(spark, pipelines_of(document, "the test").pipelines, once=True)
    batches: list[Batch] = []
    try:
        runner.start()
        runner.run(batches.extend, Event())
        return batches, runner.open_windows()
    finally:
        runner.close()


def headrace_cli(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headrace.cli.main", "pipeline", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def offsets_of(checkpoint: Path, broker: Broker, *words: str) -> subprocess.CompletedProcess[str]:
    return headrace_cli("offsets", str(checkpoint), "--bootstrap", broker.bootstrap, *words)


def test_store_analyze_and_copy_take_every_record_once(
    few_partitions: Any, broker: Broker, tmp_path: Path, new_topic: Callable[..., str]
) -> None:
    topic, copies = new_topic(2), new_topic(1, suffix="-copies")
    headrace.write(sales(range(RECORDS)), topic, bootstrap=broker.bootstrap, key="key")
    source = {"topic": topic, **TYPED}
    results = {
        "window": "1m",
        "watermark": "30s",
        "by": "shop",
        "sum": "cents",
        "percentiles": {"cents": 100},
    }
    changes = {"where": "cents >= 390", "select": ["shop", "cents * 2 AS twice"], "new_key": "cents"}
    document = {
        "bootstrap": broker.bootstrap,
        "checkpoints": str(tmp_path / "checkpoints"),
        "store": {f"{topic}-store": {**source, "time": "at", "path": str(tmp_path / "stored")}},
        "analyze": {
            f"{topic}-analyze": {**source, **results, "time": "at", "path": str(tmp_path / "analyzed")}
        },
        "copy": {f"{topic}-copy": {**source, **changes, "to": copies}},
    }
    batches = run_once(few_partitions, document)
    assert sum(batch.rows for batch in batches) == 3 * RECORDS
    assert {batch.lag for batch in batches} == {0}

    stored = DeltaTable(tmp_path / "stored")
    assert stored.metadata().partition_columns == ["_date"]
    rows = stored.to_pyarrow_table()
    assert sorted(rows["cents"].to_pylist()) == list(range(RECORDS))
    assert set(map(str, rows["_date"].to_pylist())) == {"2026-01-01"}
    wait_for_markers(broker.bootstrap, copies)
    copied = headrace.read(copies, bootstrap=broker.bootstrap, key="string", value="string").read_all()
    assert sorted(copied["key"].to_pylist()) == [str(number) for number in range(390, RECORDS)]
    assert json.loads(copied["value"][0].as_py())["twice"] == 2 * int(copied["key"][0].as_py())

    # Windows are closed up to 30 seconds before the last record: those that end by 06:00.
    expected: Counter[tuple[str, int]] = Counter()
    for number in range(6 * 60):
        expected[f"shop {number % 3}", number // 60] += number
    analyzed = DeltaTable(tmp_path / "analyzed").to_pyarrow_table().to_pylist()
    assert {(row["shop"], row["window_start"].minute): row["sum_cents"] for row in analyzed} == expected
    assert all(
        row["count"] == 20 and row["p100_cents"] // 60 == row["window_start"].minute for row in analyzed
    )

    groups = Groups(broker.bootstrap)
    for kind in ("store", "analyze", "copy"):
        committed = groups.committed(f"{topic}-{kind}")
        assert committed == groups.ends(committed)
        assert sum(committed.values()) == RECORDS

    headrace.write(sales([5, 6, 1000]), topic, bootstrap=broker.bootstrap, key="key")
    again = run_once(few_partitions, {key: document[key] for key in ("bootstrap", "checkpoints", "analyze")})
    assert sum(batch.late for batch in again) == 2, "their windows were closed"
    late = DeltaTable(tmp_path / "analyzed").to_pyarrow_table()
    assert late.num_rows == len(analyzed) + 3, "of the window that was open"


def test_open_windows_are_reported_and_written_on_request(
    few_partitions: Any, broker: Broker, tmp_path: Path, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(1)
    headrace.write(sales(range(30)), topic, bootstrap=broker.bootstrap, key="key")
    path = str(tmp_path / "sums")
    wanted = {
        "topic": topic,
        **TYPED,
        "window": "1m",
        "by": "shop",
        "sum": "cents",
        "time": "at",
        "path": path,
    }

    def run(name: str, emit: str) -> list[OpenWindows]:
        document = {
            "bootstrap": broker.bootstrap,
            "checkpoints": str(tmp_path / "checkpoints"),
            "analyze": {f"{topic}-{name}": {**wanted, "emit": emit}},
        }
        return run_and_look(few_partitions, document)[1]

    def sums() -> dict[tuple[str, int], int]:
        rows = DeltaTable(path).to_pyarrow_table().to_pylist()
        assert len(rows) == len({(row["shop"], row["window_start"]) for row in rows}), "each window once"
        return {(row["shop"], row["window_start"].minute): row["sum_cents"] for row in rows}

    noon_ms = int(NOON.timestamp() * 1000)
    for _ in range(2):  # the second run has no micro-batch
        (found,) = run("closed", "closed")
        assert found == OpenWindows(
            pipeline=f"{topic}-closed",
            rows=3,
            windows=1,
            first_start_ms=noon_ms,
            last_end_ms=noon_ms + 60_000,
            watermark_ms=noon_ms + 19_000,
            written_from_ms=noon_ms + 70_000,
        )
    assert run("all", "all") == []
    assert sums() == {("shop 0", 0): 135, ("shop 1", 0): 145, ("shop 2", 0): 155}
    headrace.write(sales([30, 61]), topic, bootstrap=broker.bootstrap, key="key")
    assert run("all", "all") == []
    assert sums() == {("shop 0", 0): 165, ("shop 1", 0): 145, ("shop 2", 0): 155, ("shop 1", 1): 61}


def test_an_invalid_pipeline_is_reported_in_one_line(
    spark: Any, broker: Broker, tmp_path: Path, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(1)
    copy = {"topic": topic, "to": "elsewhere", **TYPED}
    document = {
        "bootstrap": broker.bootstrap,
        "checkpoints": str(tmp_path),
        "copy": {"c": {**copy, "where": "sents > 3"}},
    }
    with pytest.raises(
        ClientError, match=r"pipeline 'c': .*`sents` cannot be resolved.*fields of typed values"
    ) as told:
        run_once(spark, document)
    assert "\n" not in str(told.value)


def test_ctrl_c_stops_between_two_batches_and_offsets_move_then(
    spark: Any, broker: Broker, tmp_path: Path, new_topic: Callable[..., str]
) -> None:
    """To the whole process group, as a terminal does it."""
    topic = new_topic(2)
    headrace.write(sales(range(RECORDS)), topic, bootstrap=broker.bootstrap, key="key")
    file = tmp_path / "pipelines.toml"
    file.write_text(
        f"""
        bootstrap = "{broker.bootstrap}"
        checkpoints = "{tmp_path}/checkpoints"
        [store.{topic}]
        topic = "{topic}"
        path = "{tmp_path}/table"
        max_rows = 10
        """
    )
    checkpoint = tmp_path / "checkpoints" / topic
    command = [sys.executable, "-m", "headrace.cli.main", "pipeline", "run", str(file), "--json"]
    started = subprocess.Popen(
        [*command, "--master", "local[1]"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert started.stdout is not None
        first = json.loads(started.stdout.readline())
        assert (first["pipeline"], first["rows"]) == (topic, 10)
        refused = offsets_of(checkpoint, broker, "--to", "earliest", "--execute")
        assert refused.returncode == 1
        assert "is running; stop it first" in refused.stderr
        os.killpg(started.pid, signal.SIGINT)
        out, said = started.communicate(timeout=TIMEOUT_S)
    finally:
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()
    assert started.returncode == 0, said
    assert "SIGINT: stopping after the current micro-batch" in said
    assert "Traceback" not in said + out

    batches = [first, *map(json.loads, out.splitlines())]
    read = sum(batch["rows"] for batch in batches)
    assert 10 <= read < RECORDS, "it was stopped on its way"
    begun, done = (
        sorted(path.name for path in (checkpoint / name).glob("[0-9]*")) for name in ("offsets", "commits")
    )
    assert begun == done, "no batch was cut off"
    assert DeltaTable(tmp_path / "table").count() == read
    groups = Groups(broker.bootstrap)
    assert sum(groups.committed(topic).values()) == read, "the group was told of the last one"
    shown = json.loads(offsets_of(checkpoint, broker, "--json").stdout)
    assert sum(each["offset"] for each in shown["offsets"]) == read
    assert sum(each["lag"] for each in shown["offsets"]) == RECORDS - read

    ends = {str(each["partition"]): each["end"] for each in shown["offsets"]}
    wanted = tmp_path / "offsets.json"
    wanted.write_text(json.dumps({topic: {"0": -1, "1": ends["1"] - 3}}))
    dry = offsets_of(checkpoint, broker, "--to", str(wanted))
    assert "Nothing was changed" in dry.stderr
    moved = offsets_of(checkpoint, broker, "--to", str(wanted), "--execute")
    assert moved.returncode == 0, moved.stderr
    once = run_once(spark, tomllib.loads(file.read_text()))
    assert sum(batch.rows for batch in once) == 3, "the query really began there"
    assert DeltaTable(tmp_path / "table").count() == read + 3
