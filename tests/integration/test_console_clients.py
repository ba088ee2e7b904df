# SPDX-License-Identifier: Apache-2.0
"""The console's view of clients against a live node and unmodified clients: who is connected, with which
library and version, what it asked for, and its last error."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import kafka
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from headrace.client.cluster import Cluster
from headrace.console.observing.observer import Observer
from headrace.types import CLIENTS
from tests.harness.live.node import NodeProcess

TIMEOUT_S = 60
CREATED_S = 20
Document = dict[str, Any]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    settings = {"auto.create.topics.enable": "false", "group.initial.rebalance.delay.ms": "0"}
    with NodeProcess(tmp_path_factory.mktemp("clients"), settings=settings) as process:
        admin = AdminClient({"bootstrap.servers": process.bootstrap})
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(CREATED_S)
        yield process


def view(bootstrap: str, **params: str) -> Document:
    async def ask() -> Document:
        observer = Observer(Cluster(bootstrap=bootstrap))
        await observer.start()
        try:
            return await observer.view("clients", params)
        finally:
            await observer.close()

    found = asyncio.run(ask())
    json.dumps(found, allow_nan=False)
    return found


def apis(clients: list[Document]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for client in clients:
        for api in client["apis"]:
            counts[api["name"]] = counts.get(api["name"], 0) + api["count"]
    return counts


def test_a_producer_of_librdkafka_is_told_with_its_requests(node: NodeProcess) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap, "client.id": "till-1"})
    for number in range(5):
        producer.produce("orders", f"order {number}".encode())
        assert producer.flush(TIMEOUT_S) == 0
    document = view(node.bootstrap, q="till-1")
    assert document["told"]
    clients = document["clients"]
    assert document["total"] == len(clients) >= 1
    assert {each["software"] for each in clients} == {"confluent-kafka-python"}
    (version,) = {each["version"] for each in clients}
    assert version.startswith(confluent_kafka.__version__)
    assert {each["host"] for each in clients} == {"127.0.0.1"}
    assert {each["principal"] for each in clients} == {"User:ANONYMOUS"}
    assert all(each["node"] == 1 and each["port"] and each["since"] for each in clients)
    assert apis(clients)["Produce"] == 5
    assert sum(each["requests"] for each in clients) == sum(apis(clients).values())
    assert [each["last_error"] for each in clients] == [None] * len(clients)


def test_a_consumer_of_a_group_is_told_with_its_group(node: NodeProcess) -> None:
    settings = {"bootstrap.servers": node.bootstrap, "client.id": "reader-1", "group.id": "readers"}
    consumer = Consumer(settings | {"auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    try:
        assert consumer.consume(1, TIMEOUT_S)
        clients = view(node.bootstrap, q="reader-1")["clients"]
    finally:
        consumer.close()
    assert {tuple(each["groups"]) for each in clients} == {("readers",)}
    assert apis(clients)["Fetch"] >= 1
    assert apis(clients)["JoinGroup"] >= 1
    assert "MEMBER_ID_REQUIRED" not in json.dumps(clients)  # to join is not an error


def test_kafka_python_is_told_with_its_version_and_its_last_error(node: NodeProcess) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=node.bootstrap, client_id="desk-1", acks=1)
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=node.bootstrap, client_id="desk-2", auto_offset_reset="none"
    )
    try:
        producer.send("orders", b"order").get(TIMEOUT_S)
        partition = kafka.TopicPartition("orders", 0)
        consumer.assign([partition])
        consumer.seek(partition, 1_000_000)
        with pytest.raises(kafka.errors.OffsetOutOfRangeError):
            consumer.poll(timeout_ms=TIMEOUT_S * 1000)
        clients = view(node.bootstrap, q="desk-")["clients"]
    finally:
        producer.close()
        consumer.close()
    assert {each["software"] for each in clients} == {"kafka-python"}
    assert {each["version"] for each in clients} == {kafka.__version__}
    assert apis(clients)["Produce"] == 1
    assert clients[0]["client_id"] == "desk-2"  # those with an error come first
    error = clients[0]["last_error"]
    assert (error["api"], error["error"]) == ("Fetch", "OFFSET_OUT_OF_RANGE")
    assert error["at"] >= clients[0]["since"]


def test_other_tools_that_describe_the_node_are_not_told_its_clients(node: NodeProcess) -> None:
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    configs = admin.describe_configs([resource])[resource].result(CREATED_S)
    assert len(configs) > 20
    assert not [name for name in configs if name.startswith(CLIENTS)]
