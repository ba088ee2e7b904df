# SPDX-License-Identifier: Apache-2.0
"""Read, write, commit in one transaction on Apache Kafka and Headrace: killed any time, every record once."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import headrace
from headrace.cluster.engines.kafka import KafkaEngine
from tests.compat.transaction_nodes import ENGINES, transactional_node
from tests.harness.waiting import poll, wait_until

pytestmark = pytest.mark.compat_jvm

COPIER = Path(__file__).parent / "exactly_once_copier.py"
KILLS = 8
SETTINGS = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "4000",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}


@pytest.fixture(scope="module", params=ENGINES)
def kafka(
    request: pytest.FixtureRequest, kafka_engine: KafkaEngine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("once")
    with transactional_node(request.param, kafka_engine, folder, SETTINGS) as node:
        yield node.bootstrap


class Copier:
    """A process that is killed while it copies, and started again under the same transactional id."""

    def __init__(self, *arguments: str, log: Path) -> None:
        self._arguments = arguments
        self._log = log
        self._process = self._start()

    def kill(self, after_s: float) -> None:
        """So long after it said that it copied something."""

        def has_copied() -> bool:
            assert self._process.poll() is None, self.said()
            return "copied" in self.said()

        wait_until(has_copied, lambda: f"something copied: {self.said()}", timeout_s=60)
        time.sleep(after_s)  # the kill comes at any moment of the next transaction
        self.stop()
        self._process = self._start()

    def said(self) -> str:
        return self._log.read_text()

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("w") as log:
            return subprocess.Popen([sys.executable, str(COPIER), *self._arguments], stdout=log, stderr=log)


class Source:
    """Writes numbers to a topic, a few at a time, until it is stopped."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.written = 0
        self._bootstrap, self._topic = bootstrap, topic
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(0.02):
            rows = [f"{n}" for n in range(self.written, self.written + 50)]
            table = pa.table({"value": rows})
            headrace.write(table, self._topic, bootstrap=self._bootstrap, partitioner="round_robin")
            self.written += len(rows)


def values(bootstrap: str, topic: str, *, committed_only: bool = True) -> list[int]:
    table = headrace.read(topic, bootstrap=bootstrap, committed_only=committed_only).read_all()
    return [int(value) for value in table["value"].to_pylist()]


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_killed_copiers_copy_every_record_once(kafka: str, topic: str, tmp_path: Path, protocol: str) -> None:
    source, target = f"{topic}-in", f"{topic}-out"
    admin = AdminClient({"bootstrap.servers": kafka})
    for created in admin.create_topics([NewTopic(source, 4, 1), NewTopic(target, 3, 1)]).values():
        created.result(30)
    chance = random.Random(5)
    writer = Source(kafka, source)
    copiers = [
        Copier(kafka, source, target, topic, protocol, str(number), log=tmp_path / f"{number}.log")
        for number in range(2)
    ]
    try:
        for kill in range(KILLS):
            copiers[kill % 2].kill(chance.uniform(0, 0.2))
        writer.stop()
        copied = poll(
            lambda: values(kafka, target),
            lambda found: len(found) >= writer.written,
            timeout_s=90,
            poll_s=0.3,
        )
        said = "".join(copier.said() for copier in copiers)
        assert sorted(copied) == list(range(writer.written)), said[-3000:]
        assert len(values(kafka, target, committed_only=False)) > len(copied), "no kill hit a transaction"
    finally:
        writer.stop()
        for copier in copiers:
            copier.stop()
