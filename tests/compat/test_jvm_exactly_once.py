# SPDX-License-Identifier: Apache-2.0
"""Kafka Streams (exactly_once_v2) and Kafka Connect (exactly-once source) while applications and nodes die.

On three nodes of Headrace, and on three of Apache Kafka: what fails there, too, is not ours.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from headrace.cluster.engines.engine import EngineError
from headrace.cluster.engines.kafka import KafkaEngine
from headrace.cluster.engines.kafka_jars import application_class_path
from headrace.cluster.plan import EngineName
from tests.compat.connect_worker import Worker, connector
from tests.compat.java_process import JavaProcess, compile_java
from tests.harness.copies.copy_loop import read_values
from tests.harness.copies.settings import COPIES_ON_HEADRACE, COPIES_ON_KAFKA
from tests.harness.left_out import leave_out
from tests.harness.live.cluster import LiveCluster
from tests.harness.waiting import poll, wait_until

pytestmark = [pytest.mark.compat_jvm, pytest.mark.timeout(900)]

WORD_COUNT = Path(__file__).parent / "java" / "WordCount.java"
WITHIN_S = 150.0
PARTITIONS = 3
SENTENCES = ["the water turns the wheel", "the wheel turns the stone", "water runs", "the race is full"]

Strike = Callable[[LiveCluster, str], None]


@pytest.fixture(scope="module")
def class_path(kafka_engine: KafkaEngine) -> str:
    try:
        return application_class_path(kafka_engine.jars)
    except EngineError as error:
        leave_out("Kafka Streams and Connect", str(error))


@pytest.fixture(params=["kafka", "headrace"])
def cluster(
    request: pytest.FixtureRequest, kafka_engine: KafkaEngine, tmp_path: Path
) -> Iterator[LiveCluster]:
    engine: EngineName = request.param
    settings = COPIES_ON_KAFKA if engine == "kafka" else COPIES_ON_HEADRACE
    with LiveCluster(tmp_path / "cluster", engine=engine, settings=settings) as cluster:
        yield cluster


def create(cluster: LiveCluster, *topics: str, partitions: int = PARTITIONS) -> None:
    nodes = cluster.node_ids
    replicas = [[nodes[(first + step) % 3] for step in range(3)] for first in range(partitions)]
    for topic in topics:
        cluster.create_topic(topic, replicas, min_insync_replicas="2")


def wait_for(condition: Callable[[], bool], what: Callable[[], object]) -> None:
    wait_until(condition, what, timeout_s=WITHIN_S, poll_s=0.1)


def kill_the_leader(cluster: LiveCluster, topic: str) -> None:
    victim = poll(lambda: cluster.leader(topic, 0), lambda node: node >= 0)
    cluster.kill(victim)
    time.sleep(0.3)  # how long the node is away
    cluster.start(victim)
    cluster.wait_in_sync()


def restart_the_leader(cluster: LiveCluster, topic: str) -> None:
    victim = poll(lambda: cluster.leader(topic, 0), lambda node: node >= 0)
    cluster.stop(victim)
    cluster.start(victim)
    cluster.wait_in_sync()


# -- Kafka Streams ------------------------------------------------------------------------------------------


class CommittedCounts:
    """Every committed count of each word, in the order of the output."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": "watch", "enable.auto.commit": False}
        self._consumer = Consumer({**settings, "isolation.level": "read_committed"})
        self._consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
        self.found: defaultdict[str, list[int]] = defaultdict(list)

    def read(self) -> int:
        for message in self._consumer.consume(500, timeout=0.2):
            if message.error() is None:
                self.found[message.key().decode()].append(int(message.value()))
        return sum(map(len, self.found.values()))

    def close(self) -> None:
        self._consumer.close()


class Lines:
    """Sentences for the application, and how often it will have counted each word."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self.words: Counter[str] = Counter()

    def write(self, rounds: int) -> None:
        for number in range(rounds):
            for sentence in SENTENCES:
                self._producer.produce(self._topic, sentence, partition=number % PARTITIONS)
                self.words.update(sentence.split())
        assert self._producer.flush(60) == 0

    @property
    def counts(self) -> dict[str, list[int]]:
        return {word: list(range(1, total + 1)) for word, total in self.words.items()}


@pytest.mark.row("D17")
def test_streams_counts_every_word_once_while_applications_and_nodes_die(
    kafka_engine: KafkaEngine, class_path: str, cluster: LiveCluster, tmp_path: Path
) -> None:
    if shutil.which("javac") is None:
        leave_out("Java programs", "no javac: a Java development kit is needed to compile them")
    compile_java(WORD_COUNT, class_path, tmp_path)
    create(cluster, "lines", "words")
    lines, counts = Lines(cluster.bootstrap, "lines"), CommittedCounts(cluster.bootstrap, "words")

    def instance(name: str) -> JavaProcess:
        return JavaProcess(
            kafka_engine.jars.java,
            f"{tmp_path}:{class_path}",
            "WordCount",
            *(cluster.bootstrap, "count", "lines", "words", str(tmp_path / name), "exactly_once_v2", "3"),
        )

    def wait_counted(application: JavaProcess) -> None:
        total = lines.words.total()
        wait_for(lambda: counts.read() >= total, lambda: (total, counts.read(), application.lines[-20:]))

    with instance("first") as first:
        lines.write(30)
        wait_counted(first)
        for name, strike in (("second", kill_the_leader), ("third", restart_the_leader)):
            with instance(name) as other:
                other.wait_for(lambda: "state RUNNING" in other.lines, "it runs", within_s=WITHIN_S)
                lines.write(60)
                strike(cluster, "words")
                lines.write(60)
            lines.write(60)  # the other one was killed
            wait_counted(first)
    with instance("fourth") as fourth:
        wait_counted(fourth)
        assert counts.found == lines.counts
    counts.close()


# -- Kafka Connect ------------------------------------------------------------------------------------------

EXACTLY_ONCE = {"exactly.once.source.support": "enabled"}


class GrowingFile:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[bytes] = []

    def grow(self, count: int) -> None:
        more = [b"line %d" % (len(self.lines) + number) for number in range(count)]
        self.lines += more
        with self.path.open("ab") as file:
            file.write(b"".join(line + b"\n" for line in more))


def test_connect_writes_every_line_of_a_file_once_while_workers_and_nodes_die(
    kafka_engine: KafkaEngine, class_path: str, cluster: LiveCluster, tmp_path: Path
) -> None:
    file = GrowingFile(tmp_path / "lines.txt")
    file.grow(300)
    create(cluster, "from-file", partitions=1)
    settings = {
        **connector("Source", file.path, "from-file"),
        "exactly.once.support": "required",
        "transaction.boundary": "poll",
        "producer.override.transaction.timeout.ms": "10000",
    }

    def committed() -> list[bytes]:
        return read_values(cluster.bootstrap, "from-file", 0)

    def wait_written(worker: Worker) -> None:
        wait_for(lambda: len(committed()) >= len(file.lines), lambda: (len(committed()), worker.shown()))
        assert committed() == file.lines

    with ExitStack() as stack:

        def start(name: str) -> Worker:
            folder = tmp_path / name
            worker = Worker(
                kafka_engine, class_path, cluster.bootstrap, folder, replicas=3, more=EXACTLY_ONCE
            )
            stack.enter_context(worker.process)
            wait_for(worker.answers, worker.shown)
            return worker

        one = start("one")
        one.call("/connectors/file-source/config", settings)
        wait_written(one)
        kill_the_leader(cluster, "from-file")
        file.grow(300)
        wait_written(one)
        two = start("two")
        file.grow(2000)
        one.process.kill()
        restart_the_leader(cluster, "from-file")
        file.grow(300)
        wait_written(two)
