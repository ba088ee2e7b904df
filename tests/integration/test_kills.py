"""SIGKILL under heavy producing (T4, one node): what was acknowledged is there, once, and where it was said.

Unmodified librdkafka producers; the history checker judges what a reader finds afterwards.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer

from headrace.testing import soak
from headrace.testing.history import FinalLog, History, Send, check
from headrace.testing.node import NodeProcess
from headrace.testing.rawclient import RawClient
from headrace.testing.simclients import records_in
from headrace.types import TopicPartition

StartNode = Callable[..., NodeProcess]
TOPIC = "killed"
FLUSH_S = 60


class HeavyProducer:
    """Sends unique values as fast as it may until told to stop; every outcome goes to the history."""

    def __init__(self, bootstrap: str, name: str, partition: int, options: dict[str, Any]) -> None:
        self.history = History()
        self.name = name
        self._partition = TopicPartition(TOPIC, partition)
        self._ordered = bool(options.get("enable.idempotence"))
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 2,
                "queue.buffering.max.messages": 5000,
                "message.timeout.ms": FLUSH_S * 1000,
                "reconnect.backoff.max.ms": 200,
                **options,
            }
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(FLUSH_S) == 0

    def _run(self) -> None:
        padding = b"." * 200
        number = 0
        while not self._stopping.is_set():
            value = f"{self.name}-{number}".encode() + padding
            send = Send(
                producer=self.name,
                partition=self._partition,
                value=value,
                durable=True,
                ordered=self._ordered,
            )
            try:
                self._producer.produce(
                    TOPIC, value, partition=self._partition.partition, on_delivery=self._delivered(send)
                )
            except BufferError:
                self._producer.poll(0.05)
                continue
            self.history.sent(send)
            number += 1
            self._producer.poll(0)

    @staticmethod
    def _delivered(send: Send) -> Callable[[KafkaError | None, Message], None]:
        def note(error: KafkaError | None, message: Message) -> None:
            if error is None:
                send.outcome, send.offset = "ok", message.offset()

        return note


def read_all(bootstrap: str, partition: int) -> FinalLog:
    records: list[tuple[int, bytes]] = []
    with RawClient(bootstrap, timeout_s=30) as client:
        end = client.end_offset(TOPIC, partition)
        while not records or records[-1][0] + 1 < end:
            position = records[-1][0] + 1 if records else 0
            data = client.fetch(TOPIC, position, partition=partition, max_bytes=20 << 20)
            records += [(r.offset, r.value or b"") for r in records_in(data) if r.offset >= position]
    return FinalLog(records=records)


def kill_again_and_again(node: NodeProcess, kills: int, seed: int) -> dict[str, Any]:
    source = random.Random(seed)
    with RawClient(node.bootstrap) as client:
        client.create_topic(TOPIC, partitions=3)
    producers = [
        HeavyProducer(node.bootstrap, "idempotent", 0, {"enable.idempotence": True}),
        HeavyProducer(node.bootstrap, "pipelined", 1, {"enable.idempotence": True, "batch.num.messages": 20}),
        # One attempt each: what is not acknowledged is unknown, and must not come twice either.
        HeavyProducer(node.bootstrap, "acks-1", 2, {"acks": "1", "retries": 0}),
    ]
    for producer in producers:
        producer.start()
    restarts_s = []
    for _ in range(kills):
        time.sleep(source.uniform(0.2, 1.0))
        node.kill()
        started = time.monotonic()
        node.start(timeout_ms=60_000)
        restarts_s.append(time.monotonic() - started)
    time.sleep(0.5)
    for producer in producers:
        producer.finish()
    history = History([send for producer in producers for send in producer.history.sends])
    final = {TopicPartition(TOPIC, partition): read_all(node.bootstrap, partition) for partition in range(3)}
    assert check(history, final) == []
    outcomes = history.outcomes()
    assert outcomes["ok"] > 500 * kills
    return {"seed": seed, "kills": kills, "sends": outcomes, "slowest_restart_s": max(restarts_s)}


@pytest.fixture
def node(start_node: StartNode) -> Iterator[NodeProcess]:
    node = start_node()
    yield node
    if not node.alive:
        node.start()


def test_t4_five_kills_lose_nothing_and_double_nothing(node: NodeProcess) -> None:
    kill_again_and_again(node, 5, soak.first_seed())


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_soak_kill_fifty_kills_lose_nothing_and_double_nothing(node: NodeProcess) -> None:
    started = time.monotonic()
    soak.write_report("kill", started, kill_again_and_again(node, 50, soak.first_seed() + 1))
