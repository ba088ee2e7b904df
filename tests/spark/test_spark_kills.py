"""Spark programs killed, paused or left without executor or broker: every record once, the group never ahead.

Tables on Headrace, topics on Apache Kafka. One cell here and two in `make compat`; the whole
matrix of kill_cells.py by `make soak PART=spark`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from kill_cells import ACCIDENTS, CONDITIONS, THREADS, Condition, kill_driver, pause_driver, run_cell, setup
from kill_harness import Job, Output, Table, Topic, create_topic

from headrace.cluster.engines.engine import PreparedNode, RunningNode
from headrace.cluster.engines.kafka import KafkaEngine
from headrace.testing.node import NodeProcess

pytestmark = pytest.mark.timeout(900)


class KilledNode:
    """A node of Headrace."""

    def __init__(self, node: NodeProcess) -> None:
        self._node = node
        self.bootstrap = node.bootstrap

    def kill(self) -> None:
        self._node.kill()

    def come_back(self) -> None:
        self._node.start(timeout_ms=60_000)


@dataclass(slots=True)
class KilledKafka:
    prepared: PreparedNode
    running: RunningNode

    @property
    def bootstrap(self) -> str:
        return self.running.bootstrap

    def kill(self) -> None:
        self.running.kill()

    def come_back(self) -> None:
        self.running = self.prepared.launch()


@pytest.fixture(scope="module")
def headrace_node(java_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KilledNode]:
    with NodeProcess(tmp_path_factory.mktemp("kills")) as node:
        yield KilledNode(node)


@pytest.fixture(scope="module")
def kafka_node(
    java_home: Path, kafka_engine: KafkaEngine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KilledKafka]:
    prepared = kafka_engine.prepare(tmp_path_factory.mktemp("kills"), {})
    node = KilledKafka(prepared, prepared.launch())
    yield node
    node.running.stop()


@pytest.fixture
def to_table(headrace_node: KilledNode, topic: str, tmp_path: Path) -> Job:
    return Job(headrace_node, Table(path=tmp_path / "table"), topic, tmp_path)


@pytest.fixture
def to_topic(kafka_node: KilledKafka, topic: str, tmp_path: Path) -> Job:
    output: Output = Topic(name=f"{topic}-copy", bootstrap=kafka_node.bootstrap)
    create_topic(kafka_node, f"{topic}-copy", partitions=3)
    return Job(kafka_node, output, topic, tmp_path)


def tasks_failed(job: Job) -> None:
    assert {each.run for each in job.attempts() if each.failed} == {1, 2}
    assert job.slices(1, 0) == job.slices(2, 2) + 1


_FAILING = partial(setup, THREADS, hindrance="fails")
SHORT = Condition(first=_FAILING(shuffle=3), then=_FAILING(shuffle=2), took_place=tasks_failed)


def test_spark_stores_each_record_once_though_an_old_driver_wakes_up(to_table: Job) -> None:
    run_cell(to_table, partial(pause_driver, "inside"), SHORT)


@pytest.mark.compat_jvm
def test_spark_copies_each_record_once_though_its_driver_is_killed(to_topic: Job) -> None:
    run_cell(to_topic, partial(kill_driver, "inside"), SHORT)


@pytest.mark.compat_jvm
def test_spark_copies_each_record_once_though_an_old_driver_wakes_up(to_topic: Job) -> None:
    def accident(job: Job, condition: Condition) -> None:
        said = pause_driver("inside", job, condition)
        assert "was taken over by another driver" in said

    run_cell(to_topic, accident, SHORT)


@pytest.mark.soak
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("accident", ACCIDENTS)
@pytest.mark.parametrize("output", ["table", "topic"])
def test_spark_kill_matrix(
    output: str, accident: str, condition: str, request: pytest.FixtureRequest
) -> None:
    job: Job = request.getfixturevalue(f"to_{output}")
    run_cell(job, ACCIDENTS[accident], CONDITIONS[condition])
