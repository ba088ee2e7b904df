# SPDX-License-Identifier: Apache-2.0
"""The node of Apache Kafka that coordinates a transaction is killed meanwhile: the transaction goes on."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator

import pyarrow as pa
import pytest

import headrace
from headrace.client.coordinator import CoordinatorType, find_coordinator
from headrace.client.network_client import NetworkClient
from headrace.cluster.engines.kafka import KafkaEngine
from tests.compat.kafka_trio import KafkaTrio
from tests.harness.waiting import poll, wait_until

pytestmark = pytest.mark.compat_jvm

MAY_BE_KILLED = (2, 3)


@pytest.fixture(scope="module")
def trio(kafka_engine: KafkaEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaTrio]:
    with KafkaTrio(kafka_engine, tmp_path_factory.mktemp("coordinators")) as cluster:
        yield cluster


def coordinator(bootstrap: str, transactional_id: str) -> int:
    async def ask() -> int:
        client = NetworkClient(bootstrap)
        try:
            node_id, _ = await find_coordinator(client, CoordinatorType.TRANSACTION, transactional_id)
            return node_id
        finally:
            await client.close()

    return asyncio.run(ask())


def an_id_to_kill_for(trio: KafkaTrio, prefix: str) -> tuple[str, int]:
    """A transactional id, and the node that coordinates it: one that may be killed."""
    ids = (f"{prefix}-{number}" for number in itertools.count())
    found = poll(
        lambda: (each := next(ids), coordinator(trio.bootstrap, each)),
        lambda found: found[1] in MAY_BE_KILLED,
        timeout_s=60,
    )
    assert found[1] in MAY_BE_KILLED, "the first node coordinates everything"
    return found


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
        wait_until(lambda: committed(trio, topic) == wanted, lambda: committed(trio, topic))
    finally:
        trio.start(killed)
