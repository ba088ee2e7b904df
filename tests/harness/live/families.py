# SPDX-License-Identifier: Apache-2.0
"""Every family of Python clients as a load, each with a topic of one partition, a producer and a group.

confluent-kafka is there as in ConfluentLoad, with its reader and its committing group; kafka-python, aiokafka
and the Arrow client are beside it. A send that fails after the client's own retries ends the run. A log that
has not each value once and in order, or a group that did not read all of it, is an anomaly.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Protocol

import pyarrow as pa
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from kafka import KafkaConsumer, KafkaProducer

import headrace
from headrace.types import TopicPartition
from tests.harness.history import Anomaly
from tests.harness.live.cluster import LiveCluster
from tests.harness.live.kill_loop import PROGRESS_S, ConfluentLoad, Report
from tests.harness.live.load import Background, read_all
from tests.harness.waiting import poll, wait_until

AT_ONCE = 5
"""Values that a producer sends before it waits for their acknowledgements."""
_PAUSE_S = 0.02
_POLL_MS = 100
_SEND_S = 90
_SESSION_MS = 10_000
Records = Sequence[tuple[int, bytes]]


class Producing(Protocol):
    def send(self, values: Sequence[bytes]) -> None:
        """Returns when all are acknowledged, in this order; raises when one is not, after all retries."""

    def close(self) -> None: ...


class Consuming(Protocol):
    def poll(self) -> Records: ...

    def close(self) -> None: ...


class KafkaPythonProducing:
    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap.split(","),
            acks="all",
            enable_idempotence=True,
            request_timeout_ms=20_000,
        )

    def send(self, values: Sequence[bytes]) -> None:
        for sent in [self._producer.send(self._topic, value, partition=0) for value in values]:
            sent.get(_SEND_S)

    def close(self) -> None:
        self._producer.close()


class KafkaPythonConsuming:
    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap.split(","),
            group_id=topic,
            auto_offset_reset="earliest",
            session_timeout_ms=_SESSION_MS,
            heartbeat_interval_ms=1_000,
        )

    def poll(self) -> Records:
        found = self._consumer.poll(timeout_ms=_POLL_MS)
        return [(record.offset, record.value) for records in found.values() for record in records]

    def close(self) -> None:
        self._consumer.close()


class AiokafkaProducing:
    """Its event loop runs while it is asked for something; between two sends there is nothing to do."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._runner = asyncio.Runner()
        self._producer: AIOKafkaProducer = self._runner.run(self._start(bootstrap))

    async def _start(self, bootstrap: str) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, request_timeout_ms=20_000
        )
        await producer.start()
        return producer

    def send(self, values: Sequence[bytes]) -> None:
        self._runner.run(self._send(values))

    async def _send(self, values: Sequence[bytes]) -> None:
        sent = [await self._producer.send(self._topic, value, partition=0) for value in values]
        await asyncio.wait_for(asyncio.gather(*sent), _SEND_S)

    def close(self) -> None:
        self._runner.run(self._producer.stop())
        self._runner.close()


class AiokafkaConsuming:
    def __init__(self, bootstrap: str, topic: str) -> None:
        self._runner = asyncio.Runner()
        self._consumer: AIOKafkaConsumer = self._runner.run(self._start(bootstrap, topic))

    async def _start(self, bootstrap: str, topic: str) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=topic,
            auto_offset_reset="earliest",
            session_timeout_ms=_SESSION_MS,
            heartbeat_interval_ms=1_000,
        )
        await consumer.start()
        return consumer

    def poll(self) -> Records:
        found = self._runner.run(self._consumer.getmany(timeout_ms=_POLL_MS))
        return [(record.offset, record.value or b"") for records in found.values() for record in records]

    def close(self) -> None:
        self._runner.run(self._consumer.stop())
        self._runner.close()


class ArrowProducing:
    def __init__(self, bootstrap: str, topic: str) -> None:
        self._options: dict[str, Any] = {"bootstrap": bootstrap, "timeout_ms": _SEND_S * 1000}
        self._topic = topic

    def send(self, values: Sequence[bytes]) -> None:
        headrace.write(pa.table({"value": list(values)}), self._topic, **self._options)

    def close(self) -> None: ...


class ArrowConsuming:
    def __init__(self, bootstrap: str, topic: str) -> None:
        self._stream = headrace.stream(
            topic, bootstrap=bootstrap, group=topic, session_timeout_ms=_SESSION_MS
        )

    def poll(self) -> Records:
        batch = self._stream.poll(_POLL_MS)
        if batch is None:
            return []
        return list(zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True))

    def close(self) -> None:
        self._stream.close()


FAMILIES: dict[str, tuple[Callable[[str, str], Producing], Callable[[str, str], Consuming]]] = {
    "kafka-python": (KafkaPythonProducing, KafkaPythonConsuming),
    "aiokafka": (AiokafkaProducing, AiokafkaConsuming),
    "arrow": (ArrowProducing, ArrowConsuming),
}


class _Writer(Background):
    def __init__(self, family: str, topic: str, bootstrap: str) -> None:
        super().__init__(f"{family} producer")
        self.sent: list[bytes] = []
        self.acknowledged_at: list[float] = []
        self._family, self._topic, self._bootstrap = family, topic, bootstrap

    def _run(self) -> None:
        producer = FAMILIES[self._family][0](self._bootstrap, self._topic)
        try:
            while not self.is_stopping:
                values = [b"%d" % (len(self.sent) + step) for step in range(AT_ONCE)]
                producer.send(values)
                self.sent += values
                self.acknowledged_at.append(time.monotonic())
                self.wait(_PAUSE_S)
        finally:
            producer.close()


class _Reader(Background):
    def __init__(self, family: str, topic: str, bootstrap: str) -> None:
        super().__init__(f"{family} group")
        self.read: dict[int, bytes] = {}
        self.read_again = 0
        """A member that comes back reads from the group's last commit on."""
        self._family, self._topic, self._bootstrap = family, topic, bootstrap

    def _run(self) -> None:
        consumer = FAMILIES[self._family][1](self._bootstrap, self._topic)
        try:
            while not self.is_stopping:
                for offset, value in consumer.poll():
                    assert self.read.get(offset, value) == value, f"{self.name}: another value at {offset}"
                    self.read_again += offset in self.read
                    self.read[offset] = value
        finally:
            consumer.close()


class Family:
    """One client library, with a topic named after it."""

    def __init__(self, name: str, bootstrap: str) -> None:
        self.name = name
        self.topic = f"family-{name}"
        self.writer = _Writer(name, self.topic, bootstrap)
        self.reader = _Reader(name, self.topic, bootstrap)

    def figures(self) -> dict[str, Any]:
        gaps = (after - before for before, after in pairwise(self.writer.acknowledged_at))
        return {
            "sent": len(self.writer.sent),
            "read": len(self.reader.read),
            "read_again": self.reader.read_again,
            "longest_gap_s": round(max(gaps, default=0.0), 2),
        }

    def has_read_all(self) -> bool:
        return len(self.reader.read) >= len(self.writer.sent)

    def check_alive(self) -> None:
        """Raises what ended one of its threads."""
        for thread in (self.writer, self.reader):
            if thread.failure is not None:
                raise AssertionError(f"{thread.name} failed") from thread.failure

    def judge(self, bootstrap: str) -> list[Anomaly]:
        """Each value once and in order in the log, and all of the log read."""
        partition = TopicPartition(self.topic, 0)
        stored = read_all(bootstrap, partition).records
        found = []
        if [value for _, value in stored] != self.writer.sent:
            detail = f"{self.name} sent {len(self.writer.sent)} values, the log has {len(stored)} others"
            found.append(Anomaly(kind="log-differs", partition=partition, detail=detail))
        if self.reader.read != dict(stored):
            detail = f"{self.name}: the group read {len(self.reader.read)} of {len(stored)} records"
            found.append(Anomaly(kind="unseen", partition=partition, detail=detail))
        return found


class AllFamilies:
    """Use it where kill_loop takes a load."""

    def __init__(self, cluster: LiveCluster, *, pause_s: float = 0.02) -> None:
        self._cluster = cluster
        self._confluent = ConfluentLoad(cluster.bootstrap, pause_s)
        self.families = [Family(name, cluster.bootstrap) for name in FAMILIES]

    def __enter__(self) -> AllFamilies:
        for family in self.families:
            self._cluster.create_topic(family.topic, [self._cluster.node_ids[:3]], min_insync_replicas="2")
        self._confluent.__enter__()
        for family in self.families:
            family.writer.start()
            family.reader.start()
        return self

    def wait_started(self) -> None:
        self._confluent.wait_started()
        self._wait(lambda: all(each.reader.read for each in self.families))

    def wait_progress(self) -> None:
        before = [len(each.writer.acknowledged_at) for each in self.families]
        self._confluent.wait_progress()

        def went_on() -> bool:
            now = [len(each.writer.acknowledged_at) for each in self.families]
            return all(after > count for after, count in zip(now, before, strict=True))

        self._wait(went_on)

    def _wait(self, true: Callable[[], bool]) -> None:
        def holds() -> bool:
            for family in self.families:
                family.check_alive()
            return true()

        wait_until(holds, lambda: f"progress of every family: {self.figures()}", timeout_s=PROGRESS_S)

    def __exit__(self, *_: object) -> None:
        for family in self.families:
            family.writer.stop()
        self._confluent.__exit__()
        for family in self.families:
            family.writer.finish()
            poll(family.has_read_all, timeout_s=PROGRESS_S)
            family.reader.finish()

    def judge(self, report: Report) -> None:
        self._confluent.judge(report)
        for family in self.families:
            report.anomalies += family.judge(self._cluster.bootstrap)

    def figures(self) -> dict[str, Any]:
        return {family.name: family.figures() for family in self.families}
