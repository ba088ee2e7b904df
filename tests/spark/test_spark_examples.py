# SPDX-License-Identifier: Apache-2.0
"""The projects in examples/pipelines do what they say: sums are held against what was written."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka.admin import NewTopic

import headrace
from headrace.client.tools.groups import Groups
from tests.harness.left_out import leave_out
from tests.harness.live.committed import wait_for_markers
from tests.harness.live.node import NodeProcess
from tests.spark.spark_lab import Broker

EXAMPLES = Path(__file__).parents[2] / "examples/pipelines"
TIMEOUT_S = 240


@pytest.fixture
def orders(tmp_path: Path) -> Iterator[tuple[Broker, list[dict[str, Any]]]]:
    """A node of its own, since the examples name their topics, with sixty orders over six minutes."""
    with NodeProcess(tmp_path / "node") as node:
        broker = Broker(node, 0)
        for name in ("orders", "revenue", "large-orders"):
            broker.admin.create_topics([NewTopic(name, 2, 1)])[name].result(20)
        made = [
            {"customer": f"c{number % 3}", "amount": number * 2.5, "at": _minute(number)}
            for number in range(60)
        ]
        fill(broker, [json.dumps(order) for order in made])
        yield broker, made


@pytest.fixture
def few_shuffles(spark: Any) -> Iterator[None]:
    """As in the example's own session, here in one that all tests share."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", before)


def _minute(number: int) -> str:
    return f"2026-01-02T03:{number // 10:02d}:{number % 10:02d}Z"


def fill(broker: Broker, values: list[str]) -> None:
    headrace.write(pa.table({"value": values}), "orders", bootstrap=broker.bootstrap)


@pytest.mark.usefixtures("few_shuffles")
def test_plain_structured_streaming(spark: Any, orders: Any, tmp_path: Path) -> None:
    broker, made = orders
    fill(broker, ["no order", json.dumps({**made[0], "at": "2026-01-02T04:00:00Z"})])
    example = load(EXAMPLES / "plain/orders.py")
    for _ in range(2):  # the second run finds nothing new to do
        example.run(spark, broker.bootstrap, str(tmp_path), once=True)
    table = spark.read.format("headrace_delta").load(str(tmp_path / "orders"))
    assert table.count() == len(made) + 1
    assert table.selectExpr("sum(amount)").first()[0] == sum(order["amount"] for order in made)
    rejected = spark.read.format("headrace_delta").load(str(tmp_path / "rejects")).collect()
    assert [bytes(row.bytes) for row in rejected] == [b"no order"] * 2, "one by each query"

    minutes = [json.loads(value) for value in values_in(broker, "revenue")]
    assert [each["orders"] for each in minutes] == [10] * 6, "all minutes that are over"
    assert sum(each["revenue"] for each in minutes) == sum(order["amount"] for order in made)
    for group in ("store", "revenue"):
        committed = Groups(broker.bootstrap).committed(group)
        assert sum(committed.values()) == len(made) + 2


def test_a_declarative_pipeline(java_home: Path, orders: Any, tmp_path: Path) -> None:
    if find_spec("grpc_status") is None:
        leave_out("declarative pipelines", "no gRPC: pip install headrace[declarative]")
    broker, made = orders
    project = tmp_path / "project"
    shutil.copytree(EXAMPLES / "declarative", project)
    spec = project / "spark-pipeline.yml"
    changed = spec.read_text().replace("127.0.0.1:9092", broker.bootstrap)
    spec.write_text(changed.replace("file:///tmp/orders-pipeline", f"file://{tmp_path}"))
    status, output = run_whole(
        [str(Path(sys.executable).with_name("spark-pipelines")), "--conf", "spark.ui.enabled=false", "run"],
        cwd=project,
        env={**os.environ, "JAVA_HOME": str(java_home), "PYSPARK_PYTHON": sys.executable},
    )
    assert status == 0, output[-4000:]
    stored = pq.read_table(project / "spark-warehouse/orders")
    assert sorted(stored["amount"].to_pylist()) == [order["amount"] for order in made]
    totals = pq.read_table(project / "spark-warehouse/customers").to_pylist()
    assert sum(row["total"] for row in totals) == sum(order["amount"] for order in made)
    large = [json.loads(value)["amount"] for value in values_in(broker, "large-orders")]
    assert sorted(large) == [order["amount"] for order in made if order["amount"] >= 100]


def run_whole(command: list[str], **options: Any) -> tuple[int, str]:
    """Ends with all that it started: Spark's command starts a Python, which starts a JVM."""
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        **options,
    ) as process:
        try:
            output, _ = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, output


def values_in(broker: Broker, topic: str) -> list[str]:
    wait_for_markers(broker.bootstrap, topic)
    read = headrace.read(topic, bootstrap=broker.bootstrap).read_all()
    return [value.decode() for value in read["value"].to_pylist()]


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("plain_orders", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
