# SPDX-License-Identifier: Apache-2.0
"""The way out and in: MirrorMaker 2, unmodified, moves topics and group offsets to Apache Kafka and back.

With the settings that docs/scaling.md shows, while producers write.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import headrace
from headrace.client.errors import ClientError
from headrace.client.tools.admin import Admin
from headrace.cluster.engines.engine import EngineError
from headrace.cluster.engines.kafka import KafkaEngine
from headrace.cluster.engines.kafka_jars import mirror_maker_class_path
from headrace.cluster.engines.mirror_maker import mirror_settings, running_mirror_maker
from tests.harness.left_out import leave_out
from tests.harness.live.node import NodeProcess
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.compat_jvm, pytest.mark.timeout(1500)]

SCALING = Path(__file__).resolve().parents[2] / "docs" / "scaling.md"
WITHIN_S = 400.0
_BEING_CREATED = ("NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "UNKNOWN_TOPIC_OR_PART")
TOPIC, GROUP, SLOW, PARTITIONS = "orders", "billing", "mail", 3
FIRST, PER_ROUND = 3000, 100


@pytest.fixture(scope="module")
def engine(kafka_engine: KafkaEngine) -> KafkaEngine:
    try:
        mirror_maker_class_path(kafka_engine.jars)
    except EngineError as error:
        leave_out("MirrorMaker 2", str(error))
    return kafka_engine


@contextmanager
def mirrored(engine: KafkaEngine, source: str, target: str, folder: Path) -> Iterator[Callable[[], str]]:
    """While MirrorMaker copies; gives the end of its log."""
    settings = mirror_settings(source, target, replication_factor=1)
    with running_mirror_maker(engine, folder, settings) as process:

        def log() -> str:
            assert process.poll() is None, (folder / "mirror.log").read_text()[-6000:]
            return (folder / "mirror.log").read_text()[-3000:]

        yield log


class Load:
    """Writes numbered records, round after round, until it is stopped."""

    def __init__(self, bootstrap: str, first: int = 0) -> None:
        self.count = self._first = first
        self._producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    @property
    def written(self) -> int:
        return self.count - self._first

    def write(self, count: int) -> None:
        for number in range(self.count, self.count + count):
            headers = [("number", str(number).encode())]
            self._producer.produce(TOPIC, f"order {number}", f"customer-{number % 50}", headers=headers)
        assert self._producer.flush(60) == 0
        self.count += count

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(0.2):
            self.write(PER_ROUND)


def contents(bootstrap: str) -> dict[int, list[tuple[Any, ...]]]:
    """Key, value, headers and timestamp of each record, in order, by partition."""
    columns = ["partition", "key", "value", "headers", "timestamp"]
    found: dict[int, list[tuple[Any, ...]]] = {partition: [] for partition in range(PARTITIONS)}
    for row in headrace.read(TOPIC, bootstrap=bootstrap, columns=columns).read_all().to_pylist():
        headers = [tuple(header.values()) for header in row["headers"]]
        found[row["partition"]].append((row["key"], row["value"], headers, row["timestamp"]))
    return found


def record_count(bootstrap: str) -> int:
    admin = Admin(bootstrap)
    try:
        ends = admin.offsets(TOPIC, range(PARTITIONS), "latest") if admin.topic_exists(TOPIC) else {}
    except ClientError as error:
        if error.code not in _BEING_CREATED:
            raise
        return 0
    return sum(ends.values())


def consume(
    bootstrap: str, count: int, group: str = GROUP, until: AbstractSet[bytes] = frozenset()
) -> list[bytes]:
    """At least so many values, and those of `until`, as a member of the group, committed."""
    settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.subscribe([TOPIC])
    found: list[bytes] = []

    def enough() -> bool:
        found.extend(each.value() for each in consumer.consume(200, timeout=1) if each.error() is None)
        return len(found) >= count and until <= set(found)

    try:
        wait_until(enough, lambda: f"{len(found)} of {count} records", timeout_s=WITHIN_S)
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return found


def committed(bootstrap: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    try:
        asked = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
        return {each.partition: each.offset for each in consumer.committed(asked, timeout=30)}
    finally:
        consumer.close()


def values(first: int, end: int) -> set[bytes]:
    return {f"order {number}".encode() for number in range(first, end)}


def read_rest(bootstrap: str, read: set[bytes], total: int) -> set[bytes]:
    """What the slow group has not read elsewhere; it may read some again."""
    missing = values(0, total) - read
    return set(consume(bootstrap, len(missing), SLOW, until=missing))


def move(engine: KafkaEngine, source: str, target: str, folder: Path, load: Load) -> tuple[int, set[bytes]]:
    """Moves all while `load` writes and two groups read: one to the end, one not.

    Returns how many records the first read, and the values that the second did.
    """
    done = len(consume(source, FIRST // 2))
    slow = set(consume(source, FIRST // 2, SLOW))
    with mirrored(engine, source, target, folder) as log:
        with load:
            goal = load.count + 5 * PER_ROUND
            wait_until(lambda: record_count(target) >= goal, log, timeout_s=WITHIN_S)
        wait_until(lambda: record_count(target) >= load.count, log, timeout_s=WITHIN_S)
        assert contents(target) == contents(source)
        done += len(consume(source, load.written - done))
        expected = committed(source)
        wait_until(
            lambda: committed(target) == expected,
            lambda: f"{expected}\n{committed(target)}\n{log()}",
            timeout_s=WITHIN_S,
            poll_s=0.5,
        )
    return done, slow


def test_topics_and_group_offsets_move_to_apache_kafka_and_back(engine: KafkaEngine, tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "headrace") as old, NodeProcess(tmp_path / "again") as back:
        kafka = engine.start(tmp_path / "kafka", {})
        try:
            admin = AdminClient({"bootstrap.servers": old.bootstrap})
            configs = {"retention.ms": "86400000", "headrace.flush": "os", "cleanup.policy": "delete"}
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=configs)])[TOPIC].result(20)
            load = Load(old.bootstrap)
            load.write(FIRST)
            done, slow = move(engine, old.bootstrap, kafka.bootstrap, tmp_path / "out", load)
            assert done == load.count, "each record once"
            settings = {each.name: each.value for each in Admin(kafka.bootstrap).configs("topic", TOPIC)}
            assert settings["retention.ms"] == "86400000"
            slow |= read_rest(kafka.bootstrap, slow, load.count)
            assert slow == values(0, load.count), "a group that was behind repeats some and loses none"

            later = Load(kafka.bootstrap, load.count)
            later.write(FIRST)
            done, _ = move(engine, kafka.bootstrap, back.bootstrap, tmp_path / "back", later)
            assert done == later.written, "the group went on where it had stopped on Headrace"
            last = Load(back.bootstrap, later.count)
            last.write(FIRST)
            assert set(consume(back.bootstrap, FIRST)) == values(later.count, last.count)
        finally:
            kafka.stop()


def test_the_document_shows_these_settings() -> None:
    blocks = re.findall(r"```properties\n(.*?)```", SCALING.read_text(), flags=re.DOTALL)
    lines = [line for line in blocks[0].splitlines() if line and not line.startswith("#")]
    shown = dict(line.split(" = ", 1) for line in lines)
    assert shown == mirror_settings("headrace.example:9092", "kafka.example:9092")
