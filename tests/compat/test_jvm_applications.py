# SPDX-License-Identifier: Apache-2.0
"""What is built on groups, unmodified: Kafka Streams (word count) and Kafka Connect (distributed, files)."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from headrace.cluster.engines.engine import EngineError
from headrace.cluster.engines.kafka import KafkaEngine
from headrace.cluster.engines.kafka_jars import application_class_path
from tests.compat.connect_worker import Worker, connector
from tests.compat.java_process import JavaProcess, compile_java
from tests.harness.left_out import leave_out
from tests.harness.live.node import NodeProcess
from tests.harness.live.raw_client import RawClient
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.compat_jvm, pytest.mark.row("D17")]

WORD_COUNT = Path(__file__).parent / "java" / "WordCount.java"
WITHIN_S = 90.0


@pytest.fixture(scope="module")
def class_path(kafka_engine: KafkaEngine) -> str:
    try:
        return application_class_path(kafka_engine.jars)
    except EngineError as error:
        leave_out("Kafka Streams and Connect", str(error))


@pytest.fixture(scope="module")
def group_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with NodeProcess(tmp_path_factory.mktemp("applications"), settings=settings) as node:
        yield node


def wait_for(condition: Callable[[], bool], what: Callable[[], object]) -> None:
    wait_until(condition, what, timeout_s=WITHIN_S)


# -- Kafka Streams ------------------------------------------------------------------------------------------

SENTENCES = ["the water turns the wheel", "the wheel turns the stone", "water runs", "the race is full"]


class Counts:
    """The last count of each word in the output topic."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": f"watch-{topic}"}
        self._consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
        self._consumer.subscribe([topic])
        self.found: Counter[str] = Counter()

    def read(self) -> Counter[str]:
        for message in self._consumer.consume(500, timeout=0.2):
            if message.error() is None:
                self.found[message.key().decode()] = int(message.value())
        return self.found

    def close(self) -> None:
        self._consumer.close()


def test_streams_counts_words_over_members_that_come_and_die(
    kafka_engine: KafkaEngine, class_path: str, group_node: NodeProcess, topic: str, tmp_path: Path
) -> None:
    if shutil.which("javac") is None:
        leave_out("Java programs", "no javac: a Java development kit is needed to compile them")
    compile_java(WORD_COUNT, class_path, tmp_path)
    lines, words = topic, f"{topic}-words"
    with RawClient(group_node.bootstrap) as admin:
        admin.create_topic(lines, 4)
        admin.create_topic(words, 4)
    producer = Producer({"bootstrap.servers": group_node.bootstrap})
    expected: Counter[str] = Counter()

    def produce(rounds: int) -> None:
        for number in range(rounds):
            for sentence in SENTENCES:
                producer.produce(lines, sentence, partition=number % 4)
                expected.update(sentence.split())
        assert producer.flush(20) == 0

    def instance(name: str) -> JavaProcess:
        return JavaProcess(
            kafka_engine.jars.java,
            f"{tmp_path}:{class_path}",
            "WordCount",
            *(group_node.bootstrap, f"count-{topic}", lines, words, str(tmp_path / name)),
            *("at_least_once", "1"),
        )

    counts = Counts(group_node.bootstrap, words)
    with instance("first") as first:
        produce(20)
        wait_for(lambda: counts.read() == expected, lambda: (counts.found, first.lines[-20:]))
        with instance("second") as second:
            wait_for(lambda: "state RUNNING" in second.lines, lambda: second.lines[-20:])
            produce(20)
            wait_for(lambda: counts.read() == expected, lambda: (counts.found, second.lines[-20:]))
        produce(20)  # the second one was killed

        def at_least_once() -> bool:
            counts.read()
            return all(counts.found[word] >= count for word, count in expected.items())

        wait_for(at_least_once, lambda: (counts.found, expected, first.lines[-20:]))
    counts.close()


# -- Kafka Connect ------------------------------------------------------------------------------------------


@pytest.mark.timeout(600)
def test_connect_moves_lines_from_file_to_file_and_survives_a_worker(
    kafka_engine: KafkaEngine, class_path: str, group_node: NodeProcess, topic: str, tmp_path: Path
) -> None:
    source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("".join(f"line {number}\n" for number in range(100)))
    sink.touch()

    def arrived(count: int) -> bool:
        return {f"line {number}" for number in range(count)} <= set(sink.read_text().splitlines())

    def write_more(first: int, last: int) -> None:
        with source.open("a") as file:
            file.writelines(f"line {number}\n" for number in range(first, last))

    def start(name: str) -> Worker:
        return Worker(kafka_engine, class_path, group_node.bootstrap, tmp_path / name)

    one = start("one")
    with one.process:
        wait_for(one.answers, one.shown)
        one.call("/connectors/file-source/config", connector("Source", source, topic))
        one.call("/connectors/file-sink/config", connector("Sink", sink, topic))
        wait_for(lambda: arrived(100), one.shown)
        assert one.runs("file-source")
        assert one.runs("file-sink")
        two = start("two")
        with two.process:
            wait_for(two.answers, two.shown)
            write_more(100, 200)
            wait_for(lambda: arrived(200), two.shown)
            one.process.end()
            write_more(200, 300)
            wait_for(lambda: arrived(300), two.shown)
            assert two.runs("file-source")
            assert two.runs("file-sink")
