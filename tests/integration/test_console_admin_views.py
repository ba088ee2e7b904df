# SPDX-License-Identifier: Apache-2.0
"""The console's views of administration against live nodes, through the observer that the console uses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.acls import AclBinding, Operation, PatternType, Permission, ResourceType
from headrace.client.cluster import Cluster
from headrace.client.tools.acls import create_acls
from headrace.client.tools.quotas import alter_quotas
from headrace.client_quotas import QuotaEntity
from headrace.config.security.acl_settings import STANDARD_AUTHORIZER
from headrace.console.observing.observer import Observer
from tests.harness.console.plain_source import plain_source
from tests.harness.live.node import NodeProcess
from tests.harness.live.secured_node import set_password

TIMEOUT_S = 60
CREATED_S = 20
RECORDS = 60
Document = dict[str, Any]
ME = "User:ANONYMOUS"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    settings = {"log.retention.ms": "86400000"}
    with NodeProcess(tmp_path_factory.mktemp("views"), settings=settings) as process:
        yield process


@asynccontextmanager
async def observing(bootstrap: str) -> AsyncIterator[Observer]:
    observer = Observer(Cluster(bootstrap=bootstrap))
    await observer.start()
    try:
        yield observer
    finally:
        await observer.close()


def view(bootstrap: str, name: str, **params: str) -> Document:
    async def ask() -> Document:
        async with observing(bootstrap) as observer:
            return await observer.view(name, params)

    found = asyncio.run(ask())
    json.dumps(found, allow_nan=False)
    return found


def wait_for(bootstrap: str, name: str, ready: Callable[[Document], bool], **params: str) -> Document:
    """The first document of the live view that is as it should be."""

    async def watch() -> Document:
        async with observing(bootstrap) as observer:
            async for document in observer.subscribe(name, params):
                if ready(document):
                    return document
        raise AssertionError("the view ended")

    return asyncio.run(asyncio.wait_for(watch(), TIMEOUT_S))


def create(bootstrap: str, name: str, partitions: int = 1, **configs: str) -> None:
    configured = {key.replace("_", "."): value for key, value in configs.items()}
    topic = NewTopic(name, partitions, 1, config=configured)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([topic])[name].result(CREATED_S)


def produce(bootstrap: str, topic: str, count: int, **record: Any) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(topic, f"value {number}".encode(), **record)
    assert producer.flush(TIMEOUT_S) == 0


def test_configs_of_a_topic_and_of_a_node_say_where_they_come_from(node: NodeProcess) -> None:
    create(node.bootstrap, "kept", retention_ms="1000000")
    first, *others = view(node.bootstrap, "configs", topic="kept")["configs"]
    assert (first["name"], first["value"], first["source"]) == ("retention.ms", "1000000", "topic")
    assert "headrace configs set --topic kept retention.ms=1000000" in first["set"]
    assert all(each["doc"] for each in others[:5])
    of_node = view(node.bootstrap, "configs", node="1", q="log.retention.ms")["configs"]
    assert [(each["value"], each["source"]) for each in of_node] == [("86400000", "file")]
    overview = view(node.bootstrap, "configs")["overview"]
    assert {"name": "kept", "changed": [{"name": "retention.ms", "value": "1000000", "source": "topic"}]} in (
        overview["topics"]
    )
    assert overview["nodes"][0]["problem"] is None


def test_a_topic_that_is_not_there_says_what_to_do(node: NodeProcess) -> None:
    answer = view(node.bootstrap, "configs", topic="nothing")["answer"]
    assert (answer["state"], answer["text"]) == ("failed", "topic 'nothing' does not exist")
    assert answer["next"]


def test_users_and_quotas_are_listed(node: NodeProcess) -> None:
    set_password(node.bootstrap, "ana", "secret of ana", "SCRAM-SHA-256")
    alter_quotas(node.bootstrap, QuotaEntity(user="ana"), {"producer_byte_rate": 1024.0})
    (user,) = view(node.bootstrap, "users")["users"]
    assert user["name"] == "ana"
    assert "secret" not in json.dumps(user)
    (quota,) = view(node.bootstrap, "quotas")["quotas"]
    assert (quota["entity"], quota["values"][0]["value"]) == ("user ana", 1024.0)


def test_without_an_authorizer_acls_are_off_and_it_says_how_to_turn_them_on(node: NodeProcess) -> None:
    answer = view(node.bootstrap, "acls")["answer"]
    assert answer["state"] == "off"
    assert "authorizer.class.name" in answer["next"]


def test_an_open_transaction_holds_up_its_partition(node: NodeProcess) -> None:
    create(node.bootstrap, "paid", 2)
    producer = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": "copier"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("paid", b"not yet", partition=1)
    assert producer.flush(TIMEOUT_S) == 0
    try:
        document = view(node.bootstrap, "transactions")
    finally:
        producer.abort_transaction()
    (found,) = document["transactions"]
    assert (found["transactional_id"], found["holds"]) == ("copier", 1)
    assert found["command"] == "headrace transactions terminate --id copier"
    (blocked,) = document["blocked"]
    assert (blocked["topic"], blocked["partition"], blocked["waiting"]) == ("paid", 1, 1)
    assert (blocked["verdict"], blocked["transactional_id"]) == ("ongoing", "copier")
    assert wait_for(node.bootstrap, "transactions", lambda each: not each["blocked"])["transactions"] == []


def test_dead_letters_are_found_and_counted_by_error(node: NodeProcess) -> None:
    create(node.bootstrap, "failed-orders")
    create(node.bootstrap, "fine-orders")
    origin = [("headrace.topic", b"fine-orders"), ("headrace.partition", b"0"), ("headrace.offset", b"5")]
    produce(node.bootstrap, "fine-orders", 5)
    for number in range(3):
        error = ("headrace.error", f"ValueError: {number}".encode())
        produce(node.bootstrap, "failed-orders", 1, headers=[*origin, error])

    def found(document: Document) -> bool:
        return any(each["sampled"] == 3 for each in document["topics"])

    document = wait_for(node.bootstrap, "dead-letters", found)
    (topic,) = document["topics"]
    assert (topic["name"], topic["records"], topic["sources"]) == ("failed-orders", 3, ["fine-orders"])
    assert [(each["error"], each["count"]) for each in topic["errors"]] == [("ValueError: #", 3)]
    records = view(node.bootstrap, "dead-letters", topic="failed-orders")["records"]
    assert [each["offset"] for each in records] == [2, 1, 0]
    assert records[0]["origin"] == {"topic": "fine-orders", "partition": 0, "offset": 5}


def test_the_members_of_a_group_are_shown_beside_their_connections(node: NodeProcess) -> None:
    create(node.bootstrap, "read")
    settings = {"bootstrap.servers": node.bootstrap, "group.id": "readers", "client.id": "reader-1"}
    consumer = Consumer(settings | {"auto.offset.reset": "earliest"})
    consumer.subscribe(["read"])
    try:
        produce(node.bootstrap, "read", 1)
        assert consumer.consume(1, TIMEOUT_S)
        document = wait_for(
            node.bootstrap,
            "clients",
            lambda each: any(one["partitions"] for one in each["members"]),
            q="reader",
        )
    finally:
        consumer.close()
    (member,) = document["members"]
    assert (member["group"], member["client_id"], member["host"]) == ("readers", "reader-1", "127.0.0.1")
    assert {each["client_id"] for each in document["clients"]} == {"reader-1"}
    assert ["readers"] in [each["groups"] for each in document["clients"]]


def test_the_plan_of_a_busy_topic_is_measured(node: NodeProcess) -> None:
    create(node.bootstrap, "busy", 2)
    producer = Producer({"bootstrap.servers": node.bootstrap})

    async def watch() -> Document:
        async with observing(node.bootstrap) as observer:
            async for document in observer.subscribe("plan", {"topic": "busy", "consume_rate": "10"}):
                for _ in range(RECORDS):
                    producer.produce("busy", b"record")
                producer.flush(TIMEOUT_S)
                if document["plan"] is not None:
                    return document
        raise AssertionError("the view ended")

    document = asyncio.run(asyncio.wait_for(watch(), TIMEOUT_S))
    rate = document["situation"]["produce_rate"]
    assert rate["source"] == "measured"
    assert document["plan"]["consumers"] >= rate["value"] / 10
    assert document["situation"]["partitions"] == 2


def test_without_reports_of_queries_it_says_how_to_have_some(node: NodeProcess) -> None:
    document = view(node.bootstrap, "pipelines")
    assert not document["reported"]
    assert "headrace pipeline run --report" in document["unknown"][0]


def test_acls_are_shown_with_their_removal_and_refused_to_who_may_not_see_them(tmp_path: Path) -> None:
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
    write = AclBinding(
        ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:ana", "*", Operation.WRITE, Permission.ALLOW
    )
    deny = AclBinding(
        ResourceType.CLUSTER,
        "kafka-cluster",
        PatternType.LITERAL,
        ME,
        "*",
        Operation.DESCRIBE,
        Permission.DENY,
    )
    with NodeProcess(tmp_path, settings=settings) as node:
        create_acls(node.bootstrap, [write])
        (acl,) = view(node.bootstrap, "acls")["acls"]
        assert (acl["principal"], acl["operation"]) == ("User:ana", "write")
        assert acl["remove"].startswith("headrace acls remove --topic orders")
        create_acls(node.bootstrap, [deny])
        answer = asyncio.run(refused(node.bootstrap))
    assert answer["state"] == "refused"
    assert answer["next"]


async def refused(bootstrap: str) -> Document:
    """Without the observer, which may not describe this cluster either."""
    from headrace.console.views.admin import acls

    async with plain_source(bootstrap) as source:
        answer: Document = (await acls.VIEW.build(source, source.now(), {}))["answer"]
        return answer
