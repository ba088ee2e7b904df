# SPDX-License-Identifier: Apache-2.0
"""A day in production: orders are produced, stored, analyzed and queried, and everything goes wrong once.

Each step ends with correct totals or with an error that says what to do, and doing it gives correct totals.
Read next: the pipelines in docs/pipelines.md.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable

import headrace
from headrace.client.errors import ClientError
from headrace.pipelines.definitions.definition_file import pipelines_of
from headrace.pipelines.tables.api import table
from tests.harness.live.node import NodeProcess
from tests.spark.kill_processes import Program
from tests.spark.spark_lab import wait_until
from tests.spark.test_spark_pipelines import headrace_cli, run_once

_PARTITIONS = 2
_BATCH_ROWS = 60
_MORNING = datetime(2026, 1, 1, 9, tzinfo=UTC)
_SCHEMA = "id BIGINT, customer STRING, cents BIGINT, at TIMESTAMP"
pytestmark = [pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore::FutureWarning")]


class Day:
    """What was sold, and what the pipelines made of it."""

    def __init__(self, spark: Any, node: NodeProcess, topic: str, folder: Path) -> None:
        self._spark, self.node, self.topic, self._folder = spark, node, topic, folder
        self._sold: list[dict[str, Any]] = []
        self._admin = AdminClient({"bootstrap.servers": node.bootstrap})
        self.table = folder / "orders"
        self.checkpoints = folder / "checkpoints"

    # -- the topic -----------------------------------------------------------------------------------------

    def sell(self, count: int) -> None:
        first = len(self._sold)
        orders = [
            {
                "id": number,
                "customer": f"customer {number % 7}",
                "cents": number,
                "at": str(_MORNING + timedelta(seconds=number)),
            }
            for number in range(first, first + count)
        ]
        self._sold += orders
        rows = [{"key": each["customer"], "value": json.dumps(each)} for each in orders]
        headrace.write(rows, self.topic, bootstrap=self.node.bootstrap, create=_PARTITIONS)

    def age_out(self) -> None:
        """Retention removes all that is in the topic."""
        ends = headrace.topic(self.topic, bootstrap=self.node.bootstrap).select("partition", "offset")
        newest: Counter[int] = Counter()
        for partition, offset in zip(*ends.to_arrow().to_pydict().values(), strict=True):
            newest[partition] = max(newest[partition], offset + 1)
        removed = [TopicPartition(self.topic, partition, offset) for partition, offset in newest.items()]
        for future in self._admin.delete_records(removed).values():
            future.result(20)

    def recreate_topic(self) -> None:
        self._admin.delete_topics([self.topic])[self.topic].result(20)
        wait_until(lambda: self.topic not in self._admin.list_topics(timeout=20).topics)
        with headrace.Admin(self.node.bootstrap) as admin:
            admin.create_topic(self.topic, partitions=_PARTITIONS)

    # -- the pipelines -------------------------------------------------------------------------------------

    @property
    def definition(self) -> dict[str, Any]:
        source = {"topic": self.topic, "value": "json", "schema": _SCHEMA, "max_rows": _BATCH_ROWS}
        sums = {"time": "at", "window": "1h", "by": "customer", "sum": "cents", "emit": "all"}
        return {
            "bootstrap": self.node.bootstrap,
            "checkpoints": str(self.checkpoints),
            "store": {"orders": {**source, "path": str(self.table)}},
            "analyze": {"revenue": {**source, **sums, "path": str(self._folder / "revenue")}},
        }

    def run(self, only: str | None = None, **changed: Any) -> None:
        """All that is there, in this process."""
        kinds = {"orders": "store", "revenue": "analyze"}
        definition = self.definition
        if only is not None:
            pipeline = definition[kinds[only]][only] | changed
            definition = {name: definition[name] for name in ("bootstrap", "checkpoints")}
            definition[kinds[only]] = {only: pipeline}
        run_once(self._spark, definition)

    def refused(self, only: str, **changed: Any) -> ClientError:
        with pytest.raises(ClientError) as told:
            self.run(only, **changed)
        return told.value

    def driver(self) -> Program:
        """In a process of its own, until it is stopped or killed."""
        file = self._folder / "pipelines.json.toml"
        file.write_text(_toml(self.definition))
        pipelines_of(self.definition, "the test")  # the same as in the file, and valid
        command = [sys.executable, "-m", "headrace", "pipeline", "run", str(file), "--master", "local[2]"]
        return Program(command, {}, self._folder / f"driver-{len(os.listdir(self._folder))}.log")

    def stored(self) -> int:
        return DeltaTable(self.table).count() if (self.table / "_delta_log").exists() else 0

    def query(self) -> tuple[int, int]:
        """How many orders there are and what they cost: those in the files and those that came since."""
        orders = table(self._spark, self.topic, path=str(self.table), bootstrap=self.node.bootstrap)
        count, cents = orders.selectExpr("count(*)", "sum(cents)").first()
        return count, cents

    # -- the truth -----------------------------------------------------------------------------------------

    def check_totals(self) -> None:
        """Every order is in the table once, and the sums of all customers are right."""
        ids = DeltaTable(self.table).to_pyarrow_table(columns=["id"])["id"].to_pylist()
        assert sorted(ids) == [each["id"] for each in self._sold]
        expected: Counter[str] = Counter()
        for each in self._sold:
            expected[each["customer"]] += each["cents"]
        sums: Counter[str] = Counter()
        for row in DeltaTable(self._folder / "revenue").to_pyarrow_table().to_pylist():
            sums[row["customer"]] += row["sum_cents"]
        assert sums == expected

    def check_query(self) -> None:
        assert self.query() == (len(self._sold), sum(each["cents"] for each in self._sold))

    def forget(self, count: int) -> None:
        """The last orders are lost, as the error said."""
        del self._sold[-count:]


def _toml(definition: dict[str, Any]) -> str:
    """Of strings, numbers and tables of tables."""
    lines = [f"{name} = {json.dumps(value)}" for name, value in definition.items() if isinstance(value, str)]
    for kind, pipelines in definition.items():
        if isinstance(pipelines, dict):
            for name, keys in pipelines.items():
                lines.append(f"[{kind}.{name}]")
                lines += [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    return "\n".join(lines)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path / "node") as node:
        yield node


@pytest.fixture
def day(spark: Any, node: NodeProcess, topic: str, tmp_path: Path) -> Iterator[Day]:
    name = "spark.sql.shuffle.partitions"
    before = spark.conf.get(name)
    spark.conf.set(name, "2")
    yield Day(spark, node, topic, tmp_path)
    spark.conf.set(name, before)


def test_a_day_in_production_ends_with_correct_totals(day: Day) -> None:
    day.sell(300)
    _kill_the_driver(day)
    _kill_a_worker_of_spark(day)
    _kill_the_broker(day)
    day.run()
    day.check_totals()
    day.sell(50)
    day.check_query()


def _kill_the_driver(day: Day) -> None:
    with day.driver() as driver:
        driver.wait_until(lambda: day.stored() >= _BATCH_ROWS)
        driver.signal(signal.SIGKILL)


def _kill_a_worker_of_spark(day: Day) -> None:
    """Spark in local mode does not repeat tasks: the command ends, with an error in one line."""
    day.sell(300)
    before = day.stored()
    with day.driver() as driver:
        driver.wait_until(lambda: day.stored() > before)
        assert driver.kill_workers() > 0
        assert driver.ended() == 1
        assert "Traceback" not in driver.output()


def _kill_the_broker(day: Day) -> None:
    """The pipelines wait for it and go on."""
    day.sell(300)
    before = day.stored()
    with day.driver() as driver:
        driver.wait_until(lambda: day.stored() > before)
        day.node.kill()
        day.node.start()
        driver.wait_until(lambda: day.stored() == 900)
        driver.signal(signal.SIGINT)


def test_mistakes_of_a_day_in_production_end_with_what_to_do(day: Day) -> None:
    day.sell(300)
    day.run()
    day.check_totals()
    for mistake in (
        _misspell_an_option,
        _restore_the_checkpoint_of_yesterday,
        _lose_history_to_retention,
        _recreate_the_topic,
    ):
        mistake(day)
        day.check_totals()
        day.check_query()


def _misspell_an_option(day: Day) -> None:
    said = day.refused("orders", options={"kafka.isolaton.level": "read_uncommitted"})
    assert "kafka.isolation.level" in str(said)


def _restore_the_checkpoint_of_yesterday(day: Day) -> None:
    checkpoint = day.checkpoints / "orders"
    yesterday = checkpoint.with_name("backup")
    shutil.copytree(checkpoint, yesterday)
    day.sell(100)
    day.run()
    shutil.rmtree(checkpoint)
    yesterday.rename(checkpoint)
    day.sell(100)
    said = day.refused("orders")
    assert "an older checkpoint was restored" in str(said)
    command = ("checkpoint", str(checkpoint), "--table", str(day.table))
    assert f"headrace pipeline {' '.join(command)} --repair" in str(said.next_step)
    repaired = headrace_cli(*command, "--repair", "--execute")
    assert repaired.returncode == 0, repaired.stderr
    day.run()


def _lose_history_to_retention(day: Day) -> None:
    """What is in the table stays there; what no pipeline had read is lost, and said to be."""
    day.age_out()
    day.check_query()
    day.sell(50)
    day.age_out()
    with pytest.raises(ClientError, match="ends before the topic begins: retention removed"):
        day.query()
    for name in ("orders", "revenue"):
        said = day.refused(name)
        assert "records were removed" in str(said)
        day.run(name, on_data_loss="skip")
    day.forget(50)
    day.sell(50)
    day.run()  # a table ends where its newest batch with rows ends


def _recreate_the_topic(day: Day) -> None:
    day.recreate_topic()
    day.sell(50)
    with pytest.raises(ClientError, match="was deleted and"):
        day.query()
    for name in ("orders", "revenue"):
        said = day.refused(name)
        assert "was deleted and recreated" in str(said)
        command = ("offsets", str(day.checkpoints / name), "--bootstrap", day.node.bootstrap)
        moved = headrace_cli(*command, "--to", "earliest", "--execute")
        assert moved.returncode == 0, moved.stderr
    day.run()
