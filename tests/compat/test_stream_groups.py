# SPDX-License-Identifier: Apache-2.0
"""Streams as members of groups, among themselves and with other clients, on Headrace and on Apache Kafka."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import kafka
import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import headrace
from headrace.client.errors import ClientError
from headrace.cluster.engines.kafka import KafkaEngine
from tests.harness.groups.polled_consumers import QUICK_GROUPS
from tests.harness.groups.stream_members import QUICK, StreamGroup
from tests.harness.live.node import NodeProcess

TIMEOUT_S = 20
PARTITIONS = 4
WORKER = Path(__file__).with_name("stream_worker.py")
with_both_protocols = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@pytest.fixture(scope="module", params=["headrace", pytest.param("kafka", marks=pytest.mark.compat_jvm)])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap address of one broker or the other, whose groups do not make tests wait."""
    if request.param == "headrace":
        yield request.getfixturevalue("group_bootstrap")
        return
    apache: KafkaEngine = request.getfixturevalue("kafka_engine")
    with apache.start(tmp_path_factory.mktemp("apache"), QUICK_GROUPS) as node:
        yield node.bootstrap


@pytest.fixture
def shared_topic(engine: str, topic: str) -> str:
    admin = AdminClient({"bootstrap.servers": engine})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(TIMEOUT_S)
    return topic


def write(bootstrap: str, topic: str, numbers: range, **more: Any) -> list[bytes]:
    values = [b"%d" % number for number in numbers]
    rows = pa.table({"value": values})
    headrace.write(rows, topic, bootstrap=bootstrap, partitioner="round_robin", **more)
    return values


def committed(bootstrap: str, group: str, topic: str) -> list[int]:
    """As confluent-kafka sees it."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    asked = [confluent_kafka.TopicPartition(topic, number) for number in range(PARTITIONS)]
    try:
        return [each.offset for each in consumer.committed(asked, TIMEOUT_S)]
    finally:
        consumer.close()


@with_both_protocols
def test_two_streams_share_and_one_takes_over(engine: str, shared_topic: str, protocol: str) -> None:
    with StreamGroup(engine, shared_topic, shared_topic, protocol=protocol) as group:
        first = group.join("first")
        group.until_shared(4)
        values = write(engine, shared_topic, range(100))
        group.until_read(values)
        group.join("second")
        group.until_shared(2, 2)
        values += write(engine, shared_topic, range(100, 200))
        group.until_read(values)
        second = group.leave("second")
        group.until_shared(4)
        values += write(engine, shared_topic, range(200, 300))
        group.until(lambda: len(first.values) + len(second.values) >= 300, "everything is read")
    assert Counter(first.values + second.values) == Counter(values)
    assert second.values
    assert committed(engine, shared_topic, shared_topic) == [75] * PARTITIONS


@with_both_protocols
def test_a_killed_stream_loses_nothing(engine: str, shared_topic: str, protocol: str) -> None:
    values = write(engine, shared_topic, range(200))
    with StreamGroup(engine, shared_topic, shared_topic, protocol=protocol, budget=8000) as group:
        command = [sys.executable, str(WORKER), engine, shared_topic, shared_topic, protocol]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
            assert worker.stdout is not None
            handled = [worker.stdout.readline()]
            group.join("survivor")
            group.until_shared(2)
            values += write(engine, shared_topic, range(200, 400))
            handled += [worker.stdout.readline() for _ in range(220)]
            worker.kill()
            handled += worker.stdout.readlines()
        group.until_shared(4)
        values += write(engine, shared_topic, range(400, 500))
        dead = [line.strip().encode() for line in handled if line.endswith("\n")]
        group.until_read(values, also=lambda: dead)
        assert {*dead, *group.values()} == set(values)


@with_both_protocols
def test_commits_are_seen_by_others_and_others_by_streams(
    engine: str, shared_topic: str, protocol: Any
) -> None:
    write(engine, shared_topic, range(40))
    options: Any = {
        "bootstrap": engine,
        "group": shared_topic,
        "protocol": protocol,
        "commit": False,
        **QUICK,
    }
    with headrace.stream(shared_topic, **options) as stream:
        rows = 0
        while rows < 40:
            rows += next(stream).num_rows
        assert committed(engine, shared_topic, shared_topic) == [confluent_kafka.OFFSET_INVALID] * 4
        assert stream.commit() == stream.position() == {(shared_topic, n): 10 for n in range(4)}
        assert committed(engine, shared_topic, shared_topic) == [10] * 4
        stream.commit({(shared_topic, 2): 7})
    assert committed(engine, shared_topic, shared_topic) == [10, 10, 7, 10]
    consumer = confluent_kafka.Consumer({"bootstrap.servers": engine, "group.id": shared_topic})
    moved = [confluent_kafka.TopicPartition(shared_topic, number, 9) for number in range(3)]
    consumer.commit(offsets=moved, asynchronous=False)
    consumer.close()
    with headrace.stream(shared_topic, columns=["partition", "offset"], **options) as stream:
        found = []
        while len(found) < 3:
            found += [tuple(row.values()) for row in next(stream).to_pylist()]
    assert sorted(found) == [(0, 9), (1, 9), (2, 9)]


class Others:
    """A member of another library, polled by a thread of its own."""

    def __init__(self, poll: Any, close: Any) -> None:
        self.values: list[bytes] = []
        self._ending = threading.Event()
        self._poll, self._close = poll, close
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.is_set():
            self.values += self._poll()
        self._close()

    def leave(self) -> None:
        self._ending.set()
        self._thread.join()


def with_confluent(bootstrap: str, topic: str, assignor: str) -> Others:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": topic,
        "auto.offset.reset": "earliest",
        "partition.assignment.strategy": assignor,
        "session.timeout.ms": 2000,
        "heartbeat.interval.ms": 200,
    }
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe([topic])
    return Others(
        lambda: [each.value() for each in consumer.consume(100, 0.1) if each.error() is None], consumer.close
    )


def with_kafka_python(bootstrap: str, topic: str, assignor: str) -> Others:
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor

    known = {"range": RangePartitionAssignor, "cooperative-sticky": CooperativeStickyAssignor}
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=topic,
        auto_offset_reset="earliest",
        partition_assignment_strategy=[known[assignor]],
        session_timeout_ms=2000,
        heartbeat_interval_ms=200,
    )
    return Others(
        lambda: [each.value for found in consumer.poll(100).values() for each in found], consumer.close
    )


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("ours_first", [True, False], ids=["we lead", "they lead"])
def test_a_classic_group_of_three_libraries(
    engine: str, shared_topic: str, assignor: str, ours_first: bool
) -> None:
    """Whoever joins first leads, and shares out for all."""
    others: list[Others] = []
    starts = itertools.count(1000, 100)

    def seen() -> list[bytes]:
        return [value for other in others for value in other.values]

    def all_read() -> bool:
        """Writes more, since a member may join late: kafka-python joins anew when it led without metadata."""
        start = next(starts)
        group.until_read(write(engine, shared_topic, range(start, start + 100)), also=seen)
        return bool(group.values()) and all(other.values for other in others)

    with StreamGroup(engine, shared_topic, shared_topic, protocol="classic", assignor=assignor) as group:
        if ours_first:
            group.join("ours")
            group.until_shared(4)
        others += [make(engine, shared_topic, assignor) for make in (with_confluent, with_kafka_python)]
        try:
            if not ours_first:
                write(engine, shared_topic, range(40))
                group.until(lambda: len(seen()) >= 40, "the others read")
                group.join("ours")
            group.until(all_read, "every member reads")
        finally:
            for other in others:
                other.leave()
        group.until_shared(4)


@pytest.mark.compat_jvm
@with_both_protocols
def test_a_copy_in_transactions_is_exact(
    kafka_engine: KafkaEngine, tmp_path: Path, topic: str, protocol: Any
) -> None:
    """What is read goes out with the group's progress: over aborts and a rebalance every record once."""
    source, copy = topic, f"{topic}-copy"
    with kafka_engine.start(tmp_path, QUICK_GROUPS) as node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        for made in admin.create_topics([NewTopic(source, 2, 1), NewTopic(copy, 1, 1)]).values():
            made.result(TIMEOUT_S)
        values = write(node.bootstrap, source, range(3000), batch_bytes=300)
        options: Any = {"bootstrap": node.bootstrap, "group": topic, "protocol": protocol, "commit": False}
        left, tries = len(values), 0
        while left:
            transaction = headrace.transaction("copier", bootstrap=node.bootstrap)
            with headrace.stream(source, budget=8000, **options, **QUICK) as stream:
                for batch in stream:
                    tries += 1
                    transaction.begin()
                    transaction.write(batch.select(["value"]), copy)
                    transaction.send_offsets(stream.position(), stream.group_metadata())
                    if tries % 3 == 0:
                        transaction.abort()
                        stream.rewind()
                        continue
                    transaction.commit()
                    left -= batch.num_rows
                    if tries % 5 == 0 or not left:
                        break  # another member goes on
            transaction.close()
        copied = headrace.read(copy, bootstrap=node.bootstrap, columns=["value"]).read_all()
    assert tries > 10
    assert sorted(copied["value"].to_pylist()) == sorted(values)


def test_a_stream_takes_a_classic_group_to_the_new_protocol(engine: str, shared_topic: str) -> None:
    """And shares with the member that is there, which stays with the classic protocol."""
    other = with_confluent(engine, shared_topic, "range")
    try:
        with StreamGroup(engine, shared_topic, shared_topic) as group:
            values = write(engine, shared_topic, range(40))
            group.until(lambda: len(other.values) >= 40, "the other reads")
            group.join("ours", protocol="consumer")
            group.until_shared(2)
            values += write(engine, shared_topic, range(40, 140))
            group.until_read(values, also=lambda: other.values)
            assert len(group.values()) == 50
    finally:
        other.leave()


def test_a_group_that_must_stay_classic_is_named(tmp_path: Path, topic: str) -> None:
    settings = {**QUICK_GROUPS, "group.consumer.migration.policy": "disabled"}
    with NodeProcess(tmp_path, settings=settings) as node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(TIMEOUT_S)
        with StreamGroup(node.bootstrap, topic, topic) as group:
            group.join("classic", protocol="classic")
            group.until_shared(2)
            options: Any = {"bootstrap": node.bootstrap, "group": topic, "protocol": "consumer"}
            with (
                headrace.stream(topic, **options) as stream,
                pytest.raises(ClientError, match=r'upgrade is disabled\); use protocol="classic"'),
            ):
                next(stream)
