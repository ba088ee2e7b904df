# SPDX-License-Identifier: Apache-2.0
"""Spark programs killed, paused or left without executor or broker: every record once, the group never ahead.

Tables, and topics on one node, on a cluster and on Apache Kafka. Some cells here and in `make compat`; the
whole matrix of kill_cells.py by `make soak PART=spark`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest

from headrace.cluster.engines.engine import PreparedNode, RunningNode
from headrace.cluster.engines.kafka import KafkaEngine
from tests.harness.live.cluster import LiveCluster
from tests.harness.live.node import NodeProcess
from tests.spark.kill_cells import ACCIDENTS, CONDITIONS, PLACES, THREADS, Cells, Condition, setup
from tests.spark.kill_harness import Job, KilledBroker, Table, Topic, create_topic

pytestmark = pytest.mark.timeout(900)

_COMES_BACK_MS = 240_000
_ONE_COORDINATOR = {"transaction.state.log.num.partitions": "1"}


class KilledNode:
    """A node of Headrace."""

    replicas: ClassVar[int] = 1

    def __init__(self, node: NodeProcess) -> None:
        self._node = node
        self.bootstrap = node.bootstrap

    def kill(self) -> None:
        self._node.kill()

    def come_back(self) -> None:
        self._node.start(timeout_ms=_COMES_BACK_MS)


class KilledCluster:
    """Three nodes of Headrace. The one that is killed coordinates the transactions of all sinks."""

    replicas: ClassVar[int] = 3

    def __init__(self, cluster: LiveCluster) -> None:
        self._cluster = cluster
        self.bootstrap = cluster.bootstrap
        self._killed = -1

    def kill(self) -> None:
        self._killed = self._cluster.leader("__transaction_state", 0)
        self._cluster.kill(self._killed)

    def come_back(self) -> None:
        self._cluster.start(self._killed)
        self._cluster.wait_in_sync()


@dataclass(slots=True)
class KilledKafka:
    prepared: PreparedNode
    running: RunningNode
    replicas: ClassVar[int] = 1

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
def headrace_cluster(java_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KilledCluster]:
    with LiveCluster(tmp_path_factory.mktemp("kills"), settings=_ONE_COORDINATOR) as cluster:
        yield KilledCluster(cluster)


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

    def topic(self, node: KilledBroker) -> Job:
        name, folder = self._next()
        output = Topic(name=f"{name}-copy", bootstrap=node.bootstrap)
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


def test_spark_writes_each_record_once_though_drivers_are_killed_and_wake_up(
    headrace_node: KilledNode, headrace_cluster: KilledCluster, outputs: Outputs, tmp_path: Path
) -> None:
    """To a table and a topic of one node, and to a topic of three."""
    woken, killed = outputs.topic(headrace_node), outputs.topic(headrace_cluster)
    Cells({WOKEN: [outputs.table(headrace_node), woken], KILLED: [killed]}, SHORT, tmp_path).run()
    assert "was taken over by another driver" in woken.failure(1)


@pytest.mark.compat_jvm
def test_spark_copies_each_record_once_on_apache_kafka(
    kafka_node: KilledKafka, outputs: Outputs, tmp_path: Path
) -> None:
    woken, killed = outputs.topic(kafka_node), outputs.topic(kafka_node)
    Cells({WOKEN: [woken], KILLED: [killed]}, SHORT, tmp_path).run()
    assert "was taken over by another driver" in woken.failure(1)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_spark_kill_matrix(
    condition: str, place: str, outputs: Outputs, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Every accident, to topics of that place and, on one node, to tables."""
    broker = request.getfixturevalue(PLACES[place])
    jobs = {accident: [outputs.topic(broker)] for accident in ACCIDENTS}
    if isinstance(broker, KilledNode):
        for to_each in jobs.values():
            to_each.append(outputs.table(broker))
    Cells(jobs, CONDITIONS[condition], tmp_path).run()
