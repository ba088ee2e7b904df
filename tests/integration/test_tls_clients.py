# SPDX-License-Identifier: Apache-2.0
"""Real clients over TLS with client certificates, and what is logged when a client gets it wrong."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import warnings
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

import headrace
from headrace.client.errors import ClientError
from tests.harness.live.certificates import Authority
from tests.harness.live.tls_node import TlsNode
from tests.harness.waiting import wait_until

VALUES = [b"%d" % number * 20 for number in range(2_000)]


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsNode]:
    directory = tmp_path_factory.mktemp("tls")
    with TlsNode(directory, authority=Authority(directory / "ca")) as tls:
        yield tls


@pytest.fixture(scope="module")
def alice(tls: TlsNode) -> Path:
    return tls.authority.issue("alice", subject="/O=Example/OU=sales/CN=alice")


def test_our_client(tls: TlsNode, alice: Path) -> None:
    tls.create_topic("ours", 2)
    options = {"bootstrap": tls.address, "security": tls.security(alice)}
    assert headrace.write(pa.table({"value": VALUES}), "ours", **options).records == len(VALUES)
    back = headrace.topic("ours", **options).select("value").to_arrow()
    assert sorted(back["value"].to_pylist()) == sorted(VALUES)


def test_confluent_kafka(tls: TlsNode, alice: Path) -> None:
    tls.create_topic("confluent")
    producer = Producer(tls.confluent(alice))
    for value in VALUES:
        producer.produce("confluent", value)
    assert producer.flush(30) == 0
    group = {"group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer({**tls.confluent(alice), **group})
    consumer.subscribe(["confluent"])
    seen: list[bytes] = []
    wait_until(lambda: seen.extend(m.value() for m in consumer.consume(500, 0.2)) or len(seen) >= len(VALUES))
    consumer.close()
    assert seen == VALUES


def test_kafka_python(tls: TlsNode, alice: Path) -> None:
    tls.create_topic("kafka-python")
    producer = KafkaProducer(**tls.python_client(alice))
    for value in VALUES:
        producer.send("kafka-python", value)
    producer.flush(30)
    producer.close()
    consumer = KafkaConsumer(**tls.python_client(alice), auto_offset_reset="earliest")
    consumer.assign([TopicPartition("kafka-python", 0)])
    seen: list[bytes] = []

    def poll() -> bool:
        seen.extend(record.value for batch in consumer.poll(200).values() for record in batch)
        return len(seen) >= len(VALUES)

    wait_until(poll)
    consumer.close()
    assert seen == VALUES


def test_aiokafka(tls: TlsNode, alice: Path) -> None:
    tls.create_topic("aiokafka")

    async def main() -> list[bytes]:
        async with AIOKafkaProducer(**tls.python_client(alice)) as producer:
            sent = [await producer.send("aiokafka", value) for value in VALUES]
            await asyncio.gather(*sent)
        arguments = {**tls.python_client(alice), "auto_offset_reset": "earliest"}
        async with AIOKafkaConsumer("aiokafka", **arguments) as consumer, asyncio.timeout(30):
            return [(await consumer.getone()).value for _ in VALUES]

    assert asyncio.run(main()) == VALUES


# Clients that get it wrong


def test_a_client_without_certificate_is_refused(tls: TlsNode) -> None:
    with pytest.raises(ClientError, match=r"CERTIFICATE_REQUIRED|closed the connection|no TLS with"):
        headrace.read("t", bootstrap=tls.address, security=tls.security(None), timeout_ms=2000)
    wait_until(lambda: "the client has no certificate, and ssl.client.auth=required" in tls.node.log_tail())


def test_a_certificate_of_another_authority_is_refused(tls: TlsNode, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger").issue("mallory")
    with pytest.raises(ClientError, match=r"UNKNOWN_CA|closed the connection|no TLS with"):
        headrace.read("t", bootstrap=tls.address, security=tls.security(stranger), timeout_ms=2000)
    wait_until(lambda: "the client's certificate is not accepted: " in tls.node.log_tail())


def test_a_client_that_trusts_another_authority_refuses_the_node(tls: TlsNode, tmp_path: Path) -> None:
    other = Authority(tmp_path, "other")
    settings = tls.confluent(None, ca=other.ca)
    consumer = Consumer({**settings, "group.id": "g", "log_level": 0})
    with pytest.raises(KafkaException):
        consumer.list_topics(timeout=1)
    consumer.close()
    wait_until(lambda: "the client does not trust the authority" in tls.node.log_tail())


def test_a_plain_client_on_the_tls_port_is_named_in_few_lines(tls: TlsNode) -> None:
    with pytest.raises(ClientError):
        headrace.read("t", bootstrap=tls.address, timeout_ms=1000)
    line = "the client has to use TLS (security.protocol=SSL)"
    wait_until(lambda: line in tls.node.log_tail())
    before = tls.node.log_path.read_text().count(line)
    for _ in range(200):
        with socket.create_connection(("127.0.0.1", tls.port)) as plain, contextlib.suppress(OSError):
            plain.sendall(b"\0\0\0\x10" + bytes(16))
            plain.recv(1)
    assert tls.node.log_path.read_text().count(line) - before < 100


def test_a_tls_client_on_the_plain_port_is_named(tls: TlsNode) -> None:
    context = tls.authority.client_context()

    def is_named() -> bool:  # within a second of many lines further ones are left out
        with socket.create_connection(("127.0.0.1", tls.node.port), 10) as raw, pytest.raises(OSError):
            context.wrap_socket(raw, server_hostname="localhost")
        return "begins a TLS handshake; this listener has none" in tls.node.log_tail()

    wait_until(is_named, poll_s=0.2)


def test_versions_before_1_2_are_refused(tls: TlsNode) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with socket.create_connection(("127.0.0.1", tls.port), 10) as raw, pytest.raises(ssl.SSLError):
        context.wrap_socket(raw)
