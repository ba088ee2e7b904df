"""Spark programs killed, paused or left without executor or broker: every record once, the group never ahead.

Tables on Headrace, topics on Apache Kafka. One cell here and two in `make compat`; the whole
matrix of kill_cells.py by `make soak PART=spark`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from kill_cells import (
    ACCIDENTS,
    CONDITIONS,
    THREADS,
    Accident,
    Condition,
    kill_driver,
    run_cell,
    setup,
    wake_old_driver,
)
from kill_harness import Job, Jobs, Table, Topic, create_topic

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


Make = Callable[[Accident], Jobs]


@pytest.fixture
def to_tables(headrace_node: KilledNode, topic: str, tmp_path: Path) -> Make:
    def make(accident: Accident) -> Jobs:
        jobs = {}
        for moment in accident.moments or [Table.needs_broker_at]:
            folder = tmp_path / moment
            table = Table(path=folder / "table")
            jobs[moment] = Job(headrace_node, table, f"{topic}-{moment}", folder)
        return Jobs(jobs, tmp_path)

    return make


@pytest.fixture
def to_topics(kafka_node: KilledKafka, topic: str, tmp_path: Path) -> Make:
    def make(accident: Accident) -> Jobs:
        jobs = {}
        for moment in accident.moments or [Topic.needs_broker_at]:
            output = Topic(name=f"{topic}-{moment}-copy", bootstrap=kafka_node.bootstrap)
            create_topic(kafka_node, output.name, partitions=3)
            jobs[moment] = Job(kafka_node, output, f"{topic}-{moment}", tmp_path / moment)
        return Jobs(jobs, tmp_path)

    return make


def tasks_failed(job: Job) -> None:
    assert {each.run for each in job.attempts() if each.failed} == {1, 2}
    assert job.slices(1, 0) == job.slices(2, 2) + 1


_FAILING = partial(setup, THREADS, hindrance="fails")
SHORT = Condition(first=_FAILING(shuffle=3), then=_FAILING(shuffle=2), took_place=tasks_failed)
INSIDE = ("inside",)


def test_spark_stores_each_record_once_though_an_old_driver_wakes_up(to_tables: Make) -> None:
    accident = Accident(moments=INSIDE, befall=wake_old_driver)
    run_cell(to_tables(accident), accident, SHORT)


@pytest.mark.compat_jvm
def test_spark_copies_each_record_once_though_its_driver_is_killed(to_topics: Make) -> None:
    accident = Accident(moments=INSIDE, befall=kill_driver)
    run_cell(to_topics(accident), accident, SHORT)


@pytest.mark.compat_jvm
def test_spark_copies_each_record_once_though_an_old_driver_wakes_up(to_topics: Make) -> None:
    accident = Accident(moments=INSIDE, befall=wake_old_driver)
    jobs = to_topics(accident)
    run_cell(jobs, accident, SHORT)
    assert "was taken over by another driver" in jobs.by_moment["inside"].failure(1)


@pytest.mark.soak
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("accident", ACCIDENTS)
@pytest.mark.parametrize("output", ["tables", "topics"])
def test_spark_kill_matrix(
    output: str, accident: str, condition: str, request: pytest.FixtureRequest
) -> None:
    make: Make = request.getfixturevalue(f"to_{output}")
    run_cell(make(ACCIDENTS[accident]), ACCIDENTS[accident], CONDITIONS[condition])
