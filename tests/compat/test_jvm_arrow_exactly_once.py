"""Read, write and commit in one transaction on Apache Kafka: killed at any moment, every record once."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import headrace
from headrace.cluster.engines.kafka import KafkaEngine

pytestmark = pytest.mark.compat_jvm

COPIER = Path(__file__).parent / "exactly_once_copier.py"
RECORDS = 6000
SETTINGS = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "4000",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}


@pytest.fixture(scope="module")
def kafka(kafka_engine: KafkaEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kafka_engine.start(tmp_path_factory.mktemp("once"), SETTINGS) as node:
        yield node.bootstrap


class Copiers:
    """Two processes in one group; a killed one is started again under the same transactional id."""

    def __init__(self, *arguments: str, log: Path) -> None:
        self._arguments = arguments
        self._log = log.open("a")
        self._running = [self._start(number) for number in range(2)]
        self.kills = 0

    def kill(self, number: int) -> None:
        assert self._running[number].poll() is None, "it ended by itself: see the log"
        self._running[number].kill()
        self._running[number].wait()
        self.kills += 1
        self._running[number] = self._start(number)

    def stop(self) -> None:
        for each in self._running:
            each.kill()
            each.wait()
        self._log.close()

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(COPIER), *self._arguments, str(number)]
        return subprocess.Popen(command, stdout=self._log, stderr=self._log)


def committed(bootstrap: str, topic: str) -> list[bytes]:
    values: list[bytes] = headrace.read(topic, bootstrap=bootstrap).read_all()["value"].to_pylist()
    return values


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_killed_copiers_copy_every_record_once(kafka: str, topic: str, tmp_path: Path, protocol: str) -> None:
    source, target = f"{topic}-in", f"{topic}-out"
    admin = AdminClient({"bootstrap.servers": kafka})
    for created in admin.create_topics([NewTopic(source, 4, 1), NewTopic(target, 3, 1)]).values():
        created.result(30)
    chance = random.Random(5)
    copiers = Copiers(kafka, source, target, topic, protocol, log=tmp_path / "copiers.log")
    try:
        for start in range(0, RECORDS, RECORDS // 12):
            rows = [f"{n}" for n in range(start, start + RECORDS // 12)]
            headrace.write(pa.table({"value": rows}), source, bootstrap=kafka, partitioner="round_robin")
            time.sleep(chance.uniform(0.2, 1.2))
            if chance.random() < 0.6:
                copiers.kill(chance.randrange(2))
        assert copiers.kills >= 4
        deadline = time.monotonic() + 90
        while len(copied := committed(kafka, target)) < RECORDS and time.monotonic() < deadline:
            time.sleep(0.3)
        log = (tmp_path / "copiers.log").read_text()
        assert len(copied) == RECORDS, log[-3000:]
        doubled = {value: count for value, count in Counter(copied).items() if count > 1}
        assert doubled == {}, log[-3000:]
        assert {int(value) for value in copied} == set(range(RECORDS))
    finally:
        copiers.stop()
