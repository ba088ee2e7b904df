# SPDX-License-Identifier: Apache-2.0
"""The broker inside a test (`headrace.testing`), with the clients that its users have."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer

import headrace
from headrace.testing import Broker
from headrace.testing.embedded.client_link import ClientLink
from headrace.testing.embedded.faults import FaultPlan
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


def test_requests_that_arrive_together_are_all_answered(kafka: Broker) -> None:
    count = 20
    bodies = [struct.pack(">hhihh", 10, 0, number, -1, 1) + b"g" for number in range(count)]
    host, port = kafka.bootstrap.split(":")
    with socket.create_connection((host, int(port)), timeout=20) as client, client.makefile("rb") as replies:
        client.sendall(b"".join(struct.pack(">i", len(body)) + body for body in bodies))
        for number in range(count):
            (size,) = struct.unpack(">i", replies.read(4))
            assert struct.unpack(">i", replies.read(size)[:4]) == (number,)


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


def test_metadata_with_an_error_is_asked_for_again(kafka: Broker) -> None:
    kafka.create_topic("orders")
    fault = kafka.fail(api="Metadata", topic="orders", error="LEADER_NOT_AVAILABLE")
    assert send(producer_of(kafka), "orders", b"first") is None
    assert fault.met == 1
    assert len(kafka.requests(api="Metadata", topic="orders")) > 1


def test_a_client_comes_back_from_api_versions_that_are_not_served(kafka: Broker) -> None:
    kafka.create_topic("orders")
    fault = kafka.fail(api="ApiVersions", client="billing", error="UNSUPPORTED_VERSION")
    assert send(producer_of(kafka), "orders", b"first") is None
    assert fault.met == 1


@pytest.mark.parametrize(
    ("api", "error"),
    [
        ("InitProducerId", "CONCURRENT_TRANSACTIONS"),
        ("AddPartitionsToTxn", "COORDINATOR_LOAD_IN_PROGRESS"),
        ("EndTxn", "COORDINATOR_NOT_AVAILABLE"),
    ],
)
def test_a_transaction_goes_on_after_an_error_of_each_api(kafka: Broker, api: str, error: str) -> None:
    kafka.create_topic("orders")
    kafka.fail(api=api, error=error)
    producer = producer_of(kafka, **{"transactional.id": "billing"})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("orders", b"first")
    producer.commit_transaction(20)
    kafka.assert_faults_met()
    kafka.assert_records("orders", ["first"], committed=True)


def test_a_fetch_session_meets_the_fault_of_a_topic(kafka: Broker) -> None:
    for topic in ("orders", "payments"):
        kafka.create_topic(topic)
        assert send(producer_of(kafka), topic, b"first") is None
    consumer = KafkaConsumer(
        "orders", "payments", bootstrap_servers=kafka.bootstrap, auto_offset_reset="earliest",
        client_id="reader", fetch_max_wait_ms=50,
    )  # fmt: skip
    try:
        assert {next(consumer).topic, next(consumer).topic} == {"orders", "payments"}
        fault = kafka.fail(api="Fetch", topic="orders", error="NOT_LEADER_OR_FOLLOWER")
        wait_until(lambda: consumer.poll(timeout_ms=50) == {} and fault.met)
        assert send(producer_of(kafka), "orders", b"second") is None
        wait_until(lambda: consumer.poll(timeout_ms=100))
    finally:
        consumer.close()


def test_a_fault_concerns_one_topic_until_it_is_healed(kafka: Broker) -> None:
    for topic in ("orders", "payments"):
        kafka.create_topic(topic)
    fault = kafka.fail(api="Produce", topic="orders", error="MESSAGE_TOO_LARGE", times=None)
    producer = producer_of(kafka)
    assert send(producer, "payments", b"first") is None
    for _ in range(2):
        assert send(producer, "orders", b"first") is not None
    assert (fault.met, kafka.faults) == (2, [fault])
    kafka.heal()
    assert send(producer, "orders", b"second") is None
    kafka.assert_records("orders", ["second"])


def test_the_leader_changes_while_a_request_is_on_its_way() -> None:
    with Broker(nodes=3) as cluster:
        cluster.create_topic("orders")
        faults = [cluster.fail(api="Produce", topic="orders", move_leader_to=node) for node in (2, 3)]
        assert send(producer_of(cluster), "orders", b"first") is None
        assert send(producer_of(cluster), "orders", b"second") is None
        cluster.assert_faults_met()
        assert [fault.problem for fault in faults] == [None, None]
        assert len(cluster.requests(api="Produce")) > 2
        cluster.assert_records("orders", ["first", "second"])


def test_an_error_without_a_reply_ends_the_connection(kafka: Broker) -> None:
    kafka.create_topic("orders")
    kafka.fail(api="Produce", error="NOT_ENOUGH_REPLICAS")
    producer = producer_of(kafka, acks=0)
    assert send(producer, "orders", b"lost") is None
    kafka.assert_faults_met()
    producer = producer_of(kafka, acks=0)
    assert send(producer, "orders", b"stored") is None
    kafka.assert_records("orders", ["stored"])


def test_a_fault_that_was_not_met_is_reported(kafka: Broker) -> None:
    kafka.create_topic("orders")
    send(producer_of(kafka), "orders", b"first")
    kafka.fail(api="Fetch", client="reader", error="NOT_LEADER_OR_FOLLOWER")
    with pytest.raises(AssertionError) as failed:
        kafka.assert_faults_met()
    report = str(failed.value)
    assert "fail(api='Fetch', client='reader', error='NOT_LEADER_OR_FOLLOWER', times=1): met by no" in report
    assert "1 × Produce of client 'billing'" in report


def test_a_fault_that_was_not_met_fails_the_test_of_a_fixture(tmp_path: Path) -> None:
    program = 'def test_nothing(kafka):\n    kafka.fail(api="Produce", drop=True)\n'
    (tmp_path / "test_fault.py").write_text(program)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "headrace.testing.pytest_plugin", str(tmp_path)]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert "fail(api='Produce', drop=True, times=1): met by no request" in done.stdout
    assert "1 passed, 1 error" in done.stdout


def test_a_fault_that_cannot_be_is_refused(kafka: Broker) -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"api": "Prodduce", "error": "NONE"}, "no API 'Prodduce': did you mean Produce"),
        ({"error": "NOT_LEADER"}, "no error 'NOT_LEADER': did you mean"),
        ({"api": "Produce"}, "say how it fails"),
        ({"error": "NOT_COORDINATOR", "drop": True}, "leave out drop="),
        ({"drop": True, "disconnect": "after"}, "leave out one of them"),
        ({"drop": True, "partition": 1}, "say of which topic"),
        ({"drop": True, "times": 0}, "times is at least 1"),
    ]
    for arguments, message in refused:
        with pytest.raises(ValueError, match=message):
            kafka.fail(**arguments)
    assert kafka.faults == []


# Inspection


def test_requests_are_plain_values(kafka: Broker) -> None:
    kafka.create_topic("orders")
    send(producer_of(kafka), "orders", b"first")
    consumer = consumer_of(kafka, **{"enable.auto.commit": False})
    consumer.subscribe(["orders"])
    assert consumer.poll(20) is not None
    consumer.commit(asynchronous=False)
    consumer.close()
    (produce,) = kafka.requests(api="Produce", topic="orders")
    assert (produce.client, produce.topics, produce.fields["acks"]) == ("billing", {"orders": (0,)}, -1)
    (commit,) = kafka.wait_for_requests(api="OffsetCommit", client="reader")
    assert (commit.group, commit.topics) == ("g", {"orders": (0,)})
    with pytest.raises(AssertionError, match=r"1 of 2 expected requests \(api='OffsetCommit'\) after 0 s"):
        kafka.wait_for_requests(2, api="OffsetCommit", timeout=0)


def test_a_test_waits_for_a_consumer(kafka: Broker) -> None:
    kafka.create_topic("orders", partitions=2)
    assert send(producer_of(kafka), "orders", b"first") is None
    with pytest.raises(AssertionError, match="group g has not committed 1 records of orders after 0 s"):
        kafka.wait_until_consumed("g", "orders", timeout=0)
    consumer = consumer_of(kafka)
    consumer.subscribe(["orders"])
    message = consumer.poll(20)
    assert message is not None
    assert kafka.wait_for_members("g") == ["reader"]
    assert sum(kafka.lag("g", "orders").values()) == 1
    consumer.commit(message, asynchronous=False)
    kafka.wait_until_consumed("g", "orders")
    assert sum(kafka.lag("g").values()) == 0
    consumer.close()
    assert kafka.wait_for_members("g", 0) == []


def test_records_of_an_aborted_transaction_are_not_committed(kafka: Broker) -> None:
    kafka.create_topic("orders")
    producer = producer_of(kafka, **{"transactional.id": "billing"})
    producer.init_transactions(20)
    for value, end in ((b"aborted", producer.abort_transaction), (b"stored", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce("orders", value)
        producer.flush(20)
        end(20)
    assert values(kafka, "orders") == [b"aborted", b"stored"]
    kafka.assert_records("orders", ["stored"], committed=True)


def test_a_topic_may_be_created_while_a_test_waits_for_its_records(kafka: Broker) -> None:
    sender = threading.Thread(target=send, args=(producer_of(kafka), "orders", b"first"))
    sender.start()
    (record,) = kafka.wait_for_records("orders")
    sender.join(20)
    assert record.timestamp.year >= 2024
    with pytest.raises(AssertionError, match="topic orders has 1 of 2 expected records after 0 s"):
        kafka.wait_for_records("orders", 2, timeout=0)


# Time


@pytest.mark.parametrize(
    "given",
    [{"retention_ms": "3600000"}, {"configs": {"retention.ms": 3_600_000}}],
    ids=["keyword", "configs"],
)
def test_retention_expires_without_sleeping(kafka: Broker, given: dict[str, Any]) -> None:
    kafka.create_topic("orders", **given)
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


def test_a_topic_is_created_when_the_controller_has_crashed() -> None:
    with Broker(nodes=3) as cluster:
        for node in (1, 2, 3):
            cluster.crash(node)
            cluster.create_topic(f"after-{node}")
            cluster.restart(node)


def test_a_broker_without_nodes_says_so(kafka: Broker) -> None:
    kafka.create_topic("orders")
    kafka.crash()
    for use in (lambda: kafka.records("orders"), lambda: kafka.create_topic("payments")):
        with pytest.raises(RuntimeError, match="no node is running"):
            use()
    kafka.restart()
    assert kafka.records("orders") == []


def test_a_crash_ends_a_connection_that_is_being_made() -> None:
    class Transport(asyncio.Transport):
        aborted = False

        def abort(self) -> None:
            self.aborted = True

    class Inner(asyncio.BufferedProtocol):
        pass

    link, transport = ClientLink(Inner(), cast(FaultPlan, None)), Transport()
    link.cut()
    link.connection_made(transport)
    assert transport.aborted


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


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_folder_keeps_what_a_broker_has_stored(tmp_path: Path, nodes: int) -> None:
    with Broker(nodes=nodes, disk=tmp_path) as broker:
        broker.create_topic("orders")
        assert send(producer_of(broker), "orders", b"first") is None
        broker.crash()
        broker.restart()
    with Broker(nodes=nodes, disk=tmp_path) as broker:
        assert send(producer_of(broker), "orders", b"second") is None
        assert values(broker, "orders") == [b"first", b"second"]
        with pytest.raises(ValueError, match="power_cut=True needs"):
            broker.crash(power_cut=True)
        assert values(broker, "orders") == [b"first", b"second"]


def test_a_temporary_folder_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Broker(disk="temporary"):
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []


# Many


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0


def test_a_hundred_brokers_in_one_process() -> None:
    before = open_descriptors()
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
    assert open_descriptors() < before + 100  # of two producers, which close when they are collected


def test_other_languages_start_a_process(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headrace", "serve", "--ephemeral", "--json"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            (address,) = json.loads(process.stdout.readline())["listeners"].values()
            producer = Producer({"bootstrap.servers": address})
            assert send(producer, "orders", b"first") is None
            assert len(list(tmp_path.iterdir())) == 1
        finally:
            process.terminate()
            assert process.wait(30) == 0
    assert list(tmp_path.iterdir()) == []


def test_settings_may_be_numbers_and_truth_values() -> None:
    settings = {"num.partitions": 3, "auto.create.topics.enable": False}
    with Broker(settings=settings) as broker:
        broker.create_topic("orders", retention_ms=1000)
        assert broker.records("orders", 0) == []


def test_a_stopped_broker_says_so() -> None:
    with pytest.raises(RuntimeError, match="is not running"):
        _ = Broker().bootstrap


def test_the_plugin_imports_no_broker() -> None:
    program = "import sys, headrace.testing.pytest_plugin; print('headrace.broker.node' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
