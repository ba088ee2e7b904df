# SPDX-License-Identifier: Apache-2.0
"""aiokafka rides through a failover, a clean restart and a reassignment: every send is told and read once.

The same of confluent-kafka: test_cluster_kills.py; of Java's clients: test_jvm_verifiable_cluster.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from headrace.client.tools.reassignments import reassign
from tests.harness.live.cluster import LiveCluster
from tests.harness.waiting import until

TOPIC = "ridden"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LiveCluster]:
    with LiveCluster(tmp_path / "cluster", nodes=4) as cluster:
        yield cluster


async def _produce(producer: AIOKafkaProducer, sent: list[bytes], stopping: asyncio.Event) -> None:
    while not stopping.is_set():
        value = b"%d" % len(sent)
        await producer.send_and_wait(TOPIC, value, partition=0)
        sent.append(value)
        await asyncio.sleep(0.005)


async def _consume(consumer: AIOKafkaConsumer, read: list[bytes]) -> None:
    while True:
        record = await consumer.getone()
        read.append(record.value or b"")


async def _ride(cluster: LiveCluster, faults: list[Callable[[], object]]) -> tuple[list[bytes], list[bytes]]:
    sent: list[bytes] = []
    read: list[bytes] = []
    stopping = asyncio.Event()
    options = {"bootstrap_servers": cluster.bootstrap}
    producer = AIOKafkaProducer(**options, enable_idempotence=True, acks="all", request_timeout_ms=20_000)
    consumer = AIOKafkaConsumer(TOPIC, **options, group_id="riders", auto_offset_reset="earliest")
    async with producer, consumer:
        writing = asyncio.create_task(_produce(producer, sent, stopping))
        reading = asyncio.create_task(_consume(consumer, read))
        for fault in faults:
            await asyncio.to_thread(fault)
            wanted = len(sent) + 20
            await until(lambda wanted=wanted: len(sent) >= wanted or writing.done())
        stopping.set()
        await writing
        await until(lambda: len(read) >= len(sent))
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading
    return sent, read


def test_a_kill_a_restart_and_a_move_fail_no_send_of_aiokafka(cluster: LiveCluster) -> None:
    cluster.create_topic(TOPIC, [[0, 1, 2]], min_insync_replicas="2")
    cluster.wait_in_sync()

    def killed() -> None:
        cluster.kill(cluster.leader(TOPIC, 0))

    def restarted() -> None:
        cluster.start(0)
        cluster.wait_in_sync()
        leader = cluster.leader(TOPIC, 0)
        cluster.stop(leader)
        cluster.start(leader)
        cluster.wait_in_sync()

    def moved() -> None:
        reassign(cluster.bootstrap, {(TOPIC, 0): (3, 1, 0)}, timeout_ms=30_000)

    sent, read = asyncio.run(_ride(cluster, [killed, restarted, moved]))
    assert len(sent) > 60
    assert read == sent, "each once, in order"
    metadata = cluster.metadata()
    assert metadata is not None
    (partition,) = (each for each in metadata.partitions if each.topic == TOPIC)
    assert partition.replicas == (3, 1, 0)
