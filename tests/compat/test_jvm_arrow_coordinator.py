"""The node of Apache Kafka that coordinates a transaction is killed meanwhile: the transaction goes on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest
from kafka_trio import KafkaTrio

import headrace
from headrace.client.arrow.cluster import TRANSACTION, Cluster, find_coordinator
from headrace.cluster.engines.kafka import KafkaEngine

pytestmark = pytest.mark.compat_jvm

MAY_BE_KILLED = (2, 3)


@pytest.fixture(scope="module")
def trio(kafka_engine: KafkaEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaTrio]:
    with KafkaTrio(kafka_engine, tmp_path_factory.mktemp("coordinators")) as cluster:
        yield cluster


def coordinator(bootstrap: str, transactional_id: str) -> int:
    async def ask() -> int:
        cluster = Cluster(bootstrap)
        try:
            node_id, _ = await find_coordinator(cluster, TRANSACTION, transactional_id)
            return node_id
        finally:
            await cluster.close()

    return asyncio.run(ask())


def an_id_to_kill_for(trio: KafkaTrio, prefix: str) -> tuple[str, int]:
    """A transactional id, and the node that coordinates it: one that may be killed."""
    deadline = time.monotonic() + 60
    number = 0
    while (node_id := coordinator(trio.bootstrap, f"{prefix}-{number}")) not in MAY_BE_KILLED:
        number += 1
        time.sleep(0.05)
        assert time.monotonic() < deadline, "the first node coordinates everything"
    return f"{prefix}-{number}", node_id


def rows(tag: str) -> pa.Table:
    return pa.table({"value": [f"{tag} {n}" for n in range(100)]})


def expected(*tags: str) -> list[bytes]:
    return sorted(f"{tag} {n}".encode() for tag in tags for n in range(100))


def committed(trio: KafkaTrio, topic: str) -> list[bytes]:
    return sorted(headrace.read(topic, bootstrap=trio.bootstrap).read_all()["value"].to_pylist())


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_transaction_outlives_its_coordinator(trio: KafkaTrio, topic: str, end: str) -> None:
    trio.create(topic, (2, 3), (3, 2), (1, 2))
    name, killed = an_id_to_kill_for(trio, topic)
    transaction = headrace.transaction(name, bootstrap=trio.bootstrap)
    transaction.begin()
    transaction.write(rows("first"), topic, partitioner="round_robin")
    transaction.commit()
    transaction.begin()
    transaction.write(rows("before"), topic, partitioner="round_robin")
    trio.kill(killed)
    try:
        transaction.write(rows("after"), topic, partitioner="round_robin")
        transaction.send_offsets({(topic, 0): 5}, topic)
        getattr(transaction, end)()
        assert coordinator(trio.bootstrap, name) != killed
        transaction.begin()
        transaction.write(rows("next"), topic, partitioner="round_robin")
        transaction.commit()
        transaction.close()
        wanted = expected("first", "next", *(("before", "after") if end == "commit" else ()))
        deadline = time.monotonic() + 30
        while (found := committed(trio, topic)) != wanted and time.monotonic() < deadline:
            time.sleep(0.1)
        assert found == wanted
    finally:
        trio.start(killed)
