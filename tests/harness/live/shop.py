# SPDX-License-Identifier: Apache-2.0
"""Fills a live cluster with what a shop would have, for tests that look at every page of the console.

Topics with records, groups that lag, one with members that go on reading, dead letters, an open transaction,
a reported pipeline, quotas, and names as they occur in practice: long ones too. Any Kafka will do.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.client.tools.pipeline_reports import HEARTBEAT_MS, VERSION
from headrace.client.tools.quotas import alter_quotas
from headrace.client_quotas import PRODUCER_BYTE_RATE, QuotaEntity
from headrace.types import PIPELINES_TOPIC
from tests.harness.waiting import wait_until

LONG_TOPIC = "warehouse.inventory.stock-level-corrections.by-location.v2"
DEAD_LETTERS = "orders-dead-letters"
PIPELINE = "orders-to-bronze"
TOPICS: Mapping[str, int] = {"orders": 6, "payments": 4, "clicks": 12, LONG_TOPIC: 3, DEAD_LETTERS: 1}
GROUP = "billing"
MEMBERS = ("billing-worker-1", "billing-worker-2", "billing-worker-3")
_TIMEOUT_S = 60
_RECORDS = 300
_SLOW = "billing-worker-2"
PATHS = (
    "/",
    "/topics",
    "/topics/orders",
    "/topics/orders/messages",
    "/groups",
    f"/groups/{GROUP}",
    "/pipelines",
    f"/pipelines/{PIPELINE}",
    "/dead-letters",
    f"/dead-letters/{DEAD_LETTERS}",
    "/transactions",
    "/clients",
    "/configs",
    "/configs?topic=clicks",
    "/security",
    "/security?part=quotas",
    f"/plan?topic=orders&group={GROUP}",
)
"""Every page of docs/design/console.md, with something to see."""


class Shop:
    """Open from `with` to its end: producers go on writing and members go on reading."""

    def __init__(self, bootstrap: str, *, replicas: int) -> None:
        self._bootstrap = bootstrap
        self._replicas = replicas
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []
        self._assigned: set[str] = set()
        self._reported = threading.Event()
        self._open_transaction: Producer | None = None

    def __enter__(self) -> Shop:
        try:
            self._create_topics()
            self._fill()
            self._leave_a_lag("shipping", "orders", upto=40)
            self._leave_a_lag("audit-log-exporter-of-the-compliance-department", LONG_TOPIC, upto=1)
            self._write_dead_letters()
            alter_quotas(
                self._bootstrap, QuotaEntity(client_id="clicks-loader"), {PRODUCER_BYTE_RATE: 1e6}, ()
            )
            self._begin_a_transaction()
            for name in MEMBERS:
                self._start(self._read, name)
            wait_until(lambda: self._assigned >= set(MEMBERS), "all members", timeout_s=_TIMEOUT_S)
            self._start(self._write)
            self._start(self._report_pipelines)
            assert self._reported.wait(_TIMEOUT_S), "the pipeline's report was not written"
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        for thread in self._threads:
            thread.join(_TIMEOUT_S)
        if self._open_transaction is not None:
            with suppress(KafkaException):
                self._open_transaction.abort_transaction(10)

    def _start(self, run: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=run, args=arguments, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _create_topics(self) -> None:
        names = {**TOPICS, PIPELINES_TOPIC: 1}
        config = {LONG_TOPIC: {"cleanup.policy": "compact"}, "clicks": {"retention.ms": "3600000"}}
        new = [
            NewTopic(name, partitions, self._replicas, config=config.get(name, {}))
            for name, partitions in names.items()
        ]
        admin = AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 0})
        for done in admin.create_topics(new, operation_timeout=_TIMEOUT_S).values():
            done.result(_TIMEOUT_S)

    def _producer(self, **settings: Any) -> Producer:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        return Producer({"bootstrap.servers": self._bootstrap, "log_level": 0, "linger.ms": 5, **named})

    def _fill(self) -> None:
        producer = self._producer(client_id="shop-frontend")
        for number in range(_RECORDS):
            for topic in ("orders", "payments", "clicks", LONG_TOPIC):
                _produce(producer, topic, number)
        assert producer.flush(_TIMEOUT_S) == 0

    def _write(self) -> None:
        """A few records at a time, until the end."""
        producer = self._producer(client_id="shop-frontend")
        number = _RECORDS
        while not self._closing.wait(0.05):
            number += 1
            for topic in ("orders", "clicks"):
                _produce(producer, topic, number)
            producer.poll(0)
        producer.flush(_TIMEOUT_S)

    def _leave_a_lag(self, group: str, topic: str, *, upto: int) -> None:
        consumer = self._consumer(group, f"{group}-1")
        consumer.subscribe([topic])
        read = 0
        deadline = time.monotonic() + _TIMEOUT_S
        while read < upto and time.monotonic() < deadline:
            read += len(consumer.consume(10, 0.2))
        consumer.commit(asynchronous=False)
        consumer.close()

    def _consumer(self, group: str, client_id: str) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": group,
                "client.id": client_id,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )

    def _read(self, name: str) -> None:
        """One member; the slow one falls behind."""
        consumer = self._consumer(GROUP, name)
        consumer.subscribe(["orders"], on_assign=lambda *_: self._assigned.add(name))
        while not self._closing.is_set():
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                with suppress(KafkaException):  # a rebalance may take the partition away meanwhile
                    consumer.commit(message=message)
                self._closing.wait(0.5 if name == _SLOW else 0)
        consumer.close()

    def _write_dead_letters(self) -> None:
        producer = self._producer(client_id="billing-worker-1")
        for number in range(8):
            error = "ValueError: amount is negative" if number % 3 else "KeyError: 'currency'"
            headers: list[tuple[str, str | bytes | None]] = [
                ("headrace.topic", b"orders"),
                ("headrace.partition", str(number % 6).encode()),
                ("headrace.offset", str(number).encode()),
                ("headrace.group", GROUP.encode()),
                ("headrace.attempts", b"3"),
                ("headrace.error", error.encode()),
            ]
            producer.produce(DEAD_LETTERS, b'{"amount": -1}', f"customer-{number}".encode(), headers=headers)
        assert producer.flush(_TIMEOUT_S) == 0

    def _begin_a_transaction(self) -> None:
        producer = self._producer(transactional_id="payments-settlement", transaction_timeout_ms=600_000)
        producer.init_transactions(_TIMEOUT_S)
        producer.begin_transaction()
        producer.produce("payments", b'{"settled": true}', b"batch-7")
        producer.flush(_TIMEOUT_S)
        self._open_transaction = producer

    def _report_pipelines(self) -> None:
        """Like a driver of Spark, until the end."""
        producer = self._producer(client_id="spark-driver-1")
        while True:
            producer.produce(PIPELINES_TOPIC, json.dumps(_report()).encode(), PIPELINE.encode())
            producer.flush(_TIMEOUT_S)
            self._reported.set()
            if self._closing.wait(HEARTBEAT_MS / 1000):
                return


def _produce(producer: Producer, topic: str, number: int) -> None:
    value = {"id": number, "customer": f"customer-{number % 37}", "amount": number * 7 % 400, "items": [1, 2]}
    producer.produce(topic, json.dumps(value).encode(), f"customer-{number % 37}".encode())


def _report() -> dict[str, Any]:
    now = int(time.time() * 1000)
    return {
        "version": VERSION,
        "at": now,
        "name": PIPELINE,
        "id": "5c3d6f1e-0000-4000-8000-000000000001",
        "state": "running",
        "started": now - 3_600_000,
        "driver": "spark-driver-1",
        "group": GROUP,
        "batch": {
            "id": 42,
            "at": now - 2_000,
            "ms": 1_430,
            "durations": {"addBatch": 1_100, "queryPlanning": 90, "walCommit": 120},
            "rows": 5_120,
            "input_rate": 2_560.0,
            "processed_rate": 3_580.0,
            "state_rows": 18_400,
            "state_bytes": 4_200_000,
            "lag": 310,
            "max_lag": 120,
        },
        "sources": [
            {
                "description": "headrace[orders]",
                "rows": 5_120,
                "lag": 310,
                "behind": {"orders": {"0": 120}},
            }
        ],
        "sink": "headrace_delta[bronze/orders]",
        "recent": [[now - 2_000 * (40 - n), n + 3, 4_000 + 60 * n, 900 + 130 * (n % 5)] for n in range(40)],
    }
