# SPDX-License-Identifier: Apache-2.0
"""Quotas on a live node with confluent-kafka: a limited client keeps to its rate, others are not slowed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from headrace.client.tools.quotas import alter_quotas, describe_quotas
from headrace.client_quotas import QuotaEntity
from tests.harness.live.node import NodeProcess

LIMIT = 200_000
MEASURED_S = 5.0
WINDOWS = 3
BURST_S = WINDOWS - 1
"""What Kafka's windows allow a client that was idle."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    folder: Path = tmp_path_factory.mktemp("quotas")
    with NodeProcess(folder, settings={"quota.window.num": str(WINDOWS)}) as node:
        yield node


class Load:
    """Produces as fast as it may for a while; counts delivered bytes and throttle times."""

    def __init__(self, bootstrap: str, client_id: str, topic: str) -> None:
        self.delivered = 0
        self.throttles: list[float] = []
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": client_id,
                "batch.size": 20_000,
                "linger.ms": 5,
                "max.in.flight": 1,
                "log_level": 0,
                "queue.buffering.max.messages": 100,
                "throttle_cb": lambda event: self.throttles.append(event.throttle_time),
            }
        )
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> float:
        """Delivered bytes per second."""
        self._thread.join()
        return self.delivered / MEASURED_S

    def _run(self) -> None:
        deadline = time.monotonic() + MEASURED_S
        while time.monotonic() < deadline:
            try:
                self._producer.produce(self._topic, b"x" * 1000, on_delivery=self._on_delivery)
            except BufferError:
                self._producer.poll(0.01)
            self._producer.poll(0)
        self._producer.purge()

    def _on_delivery(self, error: object, message: object) -> None:
        if error is None:
            self.delivered += 1000


def test_a_limited_producer_keeps_to_its_rate_and_another_is_not_slowed(node: NodeProcess) -> None:
    alter_quotas(node.bootstrap, QuotaEntity("ANONYMOUS", "slow"), {"producer_byte_rate": LIMIT})
    slow, free = Load(node.bootstrap, "slow", "one"), Load(node.bootstrap, "free", "two")
    slow.start()
    free.start()
    slow_rate, free_rate = slow.join(), free.join()
    allowed = LIMIT * (MEASURED_S + BURST_S) / MEASURED_S
    assert 0.5 * LIMIT < slow_rate < 1.15 * allowed
    assert max(slow.throttles) > 0
    assert not free.throttles or max(free.throttles) == 0
    assert free_rate > 5 * slow_rate


def test_a_limited_consumer_keeps_to_its_rate(node: NodeProcess) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap, "batch.size": 20_000})
    for _ in range(3_000):
        producer.produce("three", b"x" * 1000)
    assert producer.flush(20) == 0
    alter_quotas(node.bootstrap, QuotaEntity("ANONYMOUS", "reader"), {"consumer_byte_rate": LIMIT})
    throttles: list[float] = []
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "client.id": "reader",
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "throttle_cb": lambda event: throttles.append(event.throttle_time),
        }
    )
    consumer.subscribe(["three"])
    read, began, first = 0, 0.0, False
    while not first or time.monotonic() < began + MEASURED_S:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            if not first:
                first, began = True, time.monotonic()
            read += len(message.value())
    consumer.close()
    assert max(throttles) > 0
    assert 0.3 * LIMIT < read / MEASURED_S < 1.2 * LIMIT * (MEASURED_S + BURST_S) / MEASURED_S


def test_quotas_survive_a_restart(node: NodeProcess) -> None:
    entity = QuotaEntity("käthe", "app/1")
    alter_quotas(node.bootstrap, entity, {"request_percentage": 12.5})
    node.stop()
    node.start()
    assert describe_quotas(node.bootstrap, entity) == {entity: {"request_percentage": 12.5}}
    alter_quotas(node.bootstrap, entity, {}, remove=["request_percentage"])
    assert describe_quotas(node.bootstrap, entity) == {}
