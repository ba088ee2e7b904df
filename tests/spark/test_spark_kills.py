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
from kill_cells import ACCIDENTS, CONDITIONS, THREADS, Cells, Condition, setup
from kill_harness import Job, Table, Topic, create_topic

from headrace.cluster.engines.engine import PreparedNode, RunningNode
from headrace.cluster.engines.kafka import KafkaEngine
from tests.harness.live.node import NodeProcess

pytestmark = pytest.mark.timeout(900)

_COMES_BACK_MS = 240_000


class KilledNode:
    """A node of Headrace."""

    def __init__(self, node: NodeProcess) -> None:
        self._node = node
        self.bootstrap = node.bootstrap

    def kill(self) -> None:
        self._node.kill()

    def come_back(self) -> None:
        self._node.start(timeout_ms=_COMES_BACK_MS)


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
        self.running = self.prepared.launch(ready_timeout_ms=_COMES_BACK_MS)


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


class Outputs:
    """Makes the jobs of a test."""

    def __init__(self, topic: str, folder: Path) -> None:
        self._topic = topic
        self._folder = folder
        self._made = 0

    def table(self, node: KilledNode) -> Job:
        name, folder = self._next()
        return Job(node, Table(path=folder / "table"), name, folder)

    def topic(self, node: KilledKafka) -> Job:
        name, folder = self._next()
        output = Topic(name=f"{name}-copy", bootstrap=node.bootstrap, place=self._made)
        create_topic(node, output.name, partitions=3)
        return Job(node, output, name, folder)

    def _next(self) -> tuple[str, Path]:
        self._made += 1
        return f"{self._topic}-{self._made}", self._folder / f"job-{self._made}"


@pytest.fixture
def outputs(topic: str, tmp_path: Path) -> Outputs:
    return Outputs(topic, tmp_path)


def tasks_failed(job: Job) -> None:
    assert {each.run for each in job.attempts() if each.failed} == {1, 2}
    assert job.slices(1, 0) == job.slices(2, 2) + 1


_FAILING = partial(setup, THREADS, hindrance="fails")
SHORT = Condition(first=_FAILING(shuffle=3), then=_FAILING(shuffle=2), took_place=tasks_failed)
WOKEN, KILLED = "old driver woken inside its commit", "driver killed inside the commit"


def test_spark_stores_each_record_once_though_an_old_driver_wakes_up(
    headrace_node: KilledNode, outputs: Outputs, tmp_path: Path
) -> None:
    Cells({WOKEN: [outputs.table(headrace_node)]}, SHORT, tmp_path).run()


@pytest.mark.compat_jvm
def test_spark_copies_each_record_once_though_drivers_are_killed_and_wake_up(
    kafka_node: KilledKafka, outputs: Outputs, tmp_path: Path
) -> None:
    woken, killed = outputs.topic(kafka_node), outputs.topic(kafka_node)
    Cells({WOKEN: [woken], KILLED: [killed]}, SHORT, tmp_path).run()
    assert "was taken over by another driver" in woken.failure(1)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_spark_kill_matrix(
    condition: str,
    headrace_node: KilledNode,
    outputs: Outputs,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """Every accident, to tables and to topics. Without Apache Kafka the half that is left is named."""
    jobs = {accident: [outputs.table(headrace_node)] for accident in ACCIDENTS}
    missing = ""
    try:
        kafka_node = request.getfixturevalue("kafka_node")
    except pytest.skip.Exception as skipped:
        missing = f"tables passed, topics were not tried: {skipped}"
    else:
        for to_each in jobs.values():
            to_each.append(outputs.topic(kafka_node))
    Cells(jobs, CONDITIONS[condition], tmp_path).run()
    if missing:
        pytest.skip(missing)
