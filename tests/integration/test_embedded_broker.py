"""The broker inside a test (`headrace.testing`), with the clients that its users have."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer

import headrace
from headrace.testing import Broker
from tests.harness.waiting import wait_until


@pytest.fixture
def kafka() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def producer_of(broker: Broker, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": broker.bootstrap, "client.id": "billing", **settings})


def consumer_of(broker: Broker, **settings: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": "reader",
            "group.id": "g",
            "auto.offset.reset": "earliest",
            **settings,
        }
    )


def send(producer: Producer, topic: str, value: bytes) -> KafkaError | None:
    """The delivery's error."""
    found: list[KafkaError | None] = []
    producer.produce(topic, value, on_delivery=lambda error, _: found.append(error))
    assert producer.flush(20) == 0
    return found[0]


def values(broker: Broker, topic: str) -> list[bytes | None]:
    return [record.value for record in broker.records(topic)]


# Clients


def test_confluent_kafka_writes_and_reads(kafka: Broker) -> None:
    kafka.create_topic("orders", partitions=2)
    assert send(producer_of(kafka), "orders", b"first") is None
    consumer = consumer_of(kafka)
    consumer.subscribe(["orders"])
    message = consumer.poll(20)
    assert message is not None
    assert message.value() == b"first"
    consumer.commit(message, asynchronous=False)
    assert kafka.offsets("g") == {("orders", message.partition()): 1}
    consumer.close()


def test_kafka_python_writes_and_reads(kafka: Broker) -> None:
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap)
    producer.send("orders", b"first", key=b"k", headers=[("h", b"1")]).get(20)
    producer.close()
    (record,) = kafka.records("orders")
    assert (record.key, record.value, record.headers) == (b"k", b"first", (("h", b"1"),))
    consumer = KafkaConsumer("orders", bootstrap_servers=kafka.bootstrap, auto_offset_reset="earliest")
    assert next(consumer).value == b"first"
    consumer.close()


def test_aiokafka_writes_and_reads(kafka: Broker) -> None:
    async def run() -> bytes | None:
        async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap) as producer:
            await producer.send_and_wait("orders", b"first")
        async with AIOKafkaConsumer(
            "orders", bootstrap_servers=kafka.bootstrap, auto_offset_reset="earliest"
        ) as consumer:
            return (await consumer.getone()).value

    assert asyncio.run(run()) == b"first"


def test_the_arrow_client_writes_and_reads(kafka: Broker) -> None:
    kafka.create_topic("orders")
    send(producer_of(kafka), "orders", b"first")
    table = headrace.read("orders", bootstrap=kafka.bootstrap).read_all()
    assert table.column("value").to_pylist() == [b"first"]


def test_a_cluster_serves_while_a_node_is_down() -> None:
    with Broker(nodes=3) as cluster:
        cluster.create_topic("orders")
        producer = producer_of(cluster)
        assert send(producer, "orders", b"before") is None
        cluster.crash(1)
        assert send(producer, "orders", b"meanwhile") is None
        cluster.restart(1)
        assert values(cluster, "orders") == [b"before", b"meanwhile"]
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        wait_until(lambda: len(admin.list_topics(timeout=5).brokers) == 3)


def test_a_leader_moves() -> None:
    with Broker(nodes=3) as cluster:
        cluster.create_topic("orders")
        producer = producer_of(cluster)
        assert send(producer, "orders", b"before") is None
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        leader = admin.list_topics("orders", timeout=10).topics["orders"].partitions[0].leader
        other = next(node for node in (1, 2, 3) if node != leader)
        cluster.move_leader("orders", to=other)
        assert admin.list_topics("orders", timeout=10).topics["orders"].partitions[0].leader == other
        assert send(producer, "orders", b"after") is None
        assert values(cluster, "orders") == [b"before", b"after"]


# Faults


def test_an_error_is_retried_by_the_client(kafka: Broker) -> None:
    kafka.create_topic("orders")
    kafka.fail(api="Produce", client="billing", times=2, error="NOT_LEADER_OR_FOLLOWER")
    assert send(producer_of(kafka), "orders", b"first") is None
    assert len(kafka.requests(api="Produce", client="billing")) == 3
    assert values(kafka, "orders") == [b"first"]


def test_an_error_that_is_not_retried_reaches_the_program(kafka: Broker) -> None:
    kafka.create_topic("orders")
    kafka.fail(api="Produce", error="TOPIC_AUTHORIZATION_FAILED")
    error = send(producer_of(kafka), "orders", b"first")
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert kafka.records("orders") == []


def test_other_clients_meet_no_fault_of_one(kafka: Broker) -> None:
    kafka.create_topic("orders")
    kafka.fail(api="Produce", client="shipping", error="TOPIC_AUTHORIZATION_FAILED")
    assert send(producer_of(kafka), "orders", b"first") is None


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_lost_reply_makes_a_duplicate_unless_the_producer_is_idempotent(
    kafka: Broker, idempotent: bool
) -> None:
    kafka.create_topic("orders")
    kafka.fail(api="Produce", disconnect="after")
    assert send(producer_of(kafka, **{"enable.idempotence": idempotent}), "orders", b"first") is None
    assert values(kafka, "orders") == [b"first"] * (1 if idempotent else 2)


def test_a_lost_request_has_no_effect(kafka: Broker) -> None:
    kafka.create_topic("orders")
    kafka.fail(api="Produce", disconnect="before")
    assert send(producer_of(kafka), "orders", b"first") is None
    assert values(kafka, "orders") == [b"first"]


def test_a_dropped_reply_ends_in_a_timeout_of_the_client(kafka: Broker) -> None:
    kafka.create_topic("orders")
    kafka.fail(api="Produce", drop=True)
    producer = producer_of(kafka, **{"socket.timeout.ms": 1000, "message.send.max.retries": 0})
    error = send(producer, "orders", b"first")
    assert error is not None
    assert values(kafka, "orders") == [b"first"]


def test_a_delayed_reply_comes_when_the_time_has_passed(kafka: Broker) -> None:
    kafka.create_topic("orders")
    kafka.fail(api="Produce", delay="1h")
    producer = producer_of(kafka)
    producer.produce("orders", b"first")
    wait_until(lambda: kafka.records("orders"))
    assert len(producer) == 1
    kafka.advance("1h")
    assert producer.flush(20) == 0


@pytest.mark.parametrize(
    ("api", "error"),
    [
        ("Fetch", "NOT_LEADER_OR_FOLLOWER"),
        ("ListOffsets", "LEADER_NOT_AVAILABLE"),
        ("FindCoordinator", "COORDINATOR_NOT_AVAILABLE"),
        ("JoinGroup", "COORDINATOR_LOAD_IN_PROGRESS"),
        ("SyncGroup", "REBALANCE_IN_PROGRESS"),
        ("OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS"),
        ("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS"),
    ],
)
def test_a_consumer_goes_on_after_an_error_of_each_api(kafka: Broker, api: str, error: str) -> None:
    kafka.create_topic("orders")
    send(producer_of(kafka), "orders", b"first")
    kafka.fail(api=api, client="reader", error=error)
    consumer = consumer_of(kafka)
    consumer.subscribe(["orders"])
    message = consumer.poll(30)
    assert message is not None
    assert message.error() is None
    assert message.value() == b"first"
    consumer.commit(message, asynchronous=False)
    assert kafka.offsets("g") == {("orders", 0): 1}
    assert len(kafka.requests(api=api, client="reader")) > 1
    consumer.close()


def test_a_fault_that_cannot_be_is_refused(kafka: Broker) -> None:
    with pytest.raises(ValueError, match="there is no API 'Prodduce'"):
        kafka.fail(api="Prodduce", error="NOT_LEADER_OR_FOLLOWER")
    with pytest.raises(ValueError, match="no error 'NO_SUCH'"):
        kafka.fail(error="NO_SUCH")
    with pytest.raises(ValueError, match="say how it fails"):
        kafka.fail(api="Produce")


# Time


def test_retention_expires_without_sleeping(kafka: Broker) -> None:
    kafka.create_topic("orders", retention_ms="3600000")
    send(producer_of(kafka), "orders", b"first")
    kafka.advance("30m")
    assert values(kafka, "orders") == [b"first"]
    kafka.advance("8h")
    assert kafka.records("orders") == []


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_connected_member_keeps_its_partitions_and_an_expired_one_does_not(
    kafka: Broker, protocol: str
) -> None:
    kafka.create_topic("orders")
    send(producer_of(kafka), "orders", b"first")
    consumer = consumer_of(kafka, **{"group.protocol": protocol})
    lost: list[object] = []
    consumer.subscribe(["orders"], on_lost=lambda *_: lost.append(True))
    assert consumer.poll(30) is not None
    kafka.advance("10m")
    consumer.poll(1)
    assert lost == []
    kafka.advance("1m", expire="reader")
    wait_until(lambda: consumer.poll(0.2) is None and lost)
    consumer.close()


def test_a_transaction_times_out_without_sleeping(kafka: Broker) -> None:
    kafka.create_topic("orders")
    producer = producer_of(kafka, **{"transactional.id": "billing", "transaction.timeout.ms": 60_000})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("orders", b"first")
    producer.flush(20)
    kafka.advance("2m")
    with pytest.raises(KafkaException) as refused:
        producer.commit_transaction(20)
    assert refused.value.args[0].fatal() or refused.value.args[0].txn_requires_abort()
    reader = headrace.read("orders", bootstrap=kafka.bootstrap, committed_only=True)
    assert reader.read_all().num_rows == 0


# Crashes


def test_a_crashed_broker_serves_what_it_had(kafka: Broker) -> None:
    kafka.create_topic("orders")
    producer = producer_of(kafka)
    assert send(producer, "orders", b"first") is None
    kafka.crash()
    kafka.restart()
    assert send(producer, "orders", b"second") is None
    assert values(kafka, "orders") == [b"first", b"second"]


def test_a_power_cut_takes_what_was_not_flushed() -> None:
    with Broker(settings={"headrace.flush.default": "os"}) as broker:
        broker.create_topic("orders", partitions=1)
        producer = producer_of(broker)
        for number in range(20):
            assert send(producer, "orders", b"%d" % number) is None
        broker.crash(power_cut=True)
        broker.restart()
        kept = values(broker, "orders")
        assert kept == [b"%d" % number for number in range(len(kept))]
        assert len(kept) < 20


# Many


def test_a_hundred_brokers_in_one_process() -> None:
    brokers = [Broker() for _ in range(100)]
    try:
        for broker in brokers:
            broker.start()
        assert len({broker.bootstrap for broker in brokers}) == 100
        for broker in (brokers[0], brokers[99]):
            broker.create_topic("orders")
            assert send(producer_of(broker), "orders", b"first") is None
    finally:
        for broker in brokers:
            broker.stop()
    assert not [thread for thread in threading.enumerate() if thread.name == "headrace.testing"]


def test_a_stopped_broker_says_so() -> None:
    with pytest.raises(RuntimeError, match="does not run"):
        _ = Broker().bootstrap


def test_the_plugin_imports_no_broker() -> None:
    program = "import sys, headrace.testing.pytest_plugin; print('headrace.broker.node' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
