# SPDX-License-Identifier: Apache-2.0
"""confluent-kafka, kafka-python and aiokafka over every security protocol and mechanism, and their errors.

The same for Java and Go: test_jvm_security.py, test_go_security.py.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.errors
import kafka
import kafka.errors
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from headrace.cluster.engines.engine import free_ports
from tests.harness.live.guarded_node import OWN, SCRAM, WAYS, GuardedNode, Reach, Way
from tests.harness.live.node import HOST, NodeProcess
from tests.harness.waiting import poll

VALUE = b"value"
TIMEOUT_S = 20
REFUSED_MS = 1500
LOGIN = Way("SASL_PLAINTEXT", SCRAM[1])
DENIALS = {
    True: ("TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED"),
    False: ("TopicAuthorizationFailedError", "GroupAuthorizationFailedError"),
}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedNode]:
    with GuardedNode(tmp_path_factory.mktemp("guarded")) as node:
        yield node


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """What clients log when they are destroyed belongs to the test, not to pytest's last lines."""
    yield
    gc.collect()


# Each client: produces one record, consumes the first one in a group, or raises its error


class Confluent:
    @staticmethod
    def produce(reach: Reach, topic: str) -> None:
        errors: list[KafkaError] = []
        producer = Producer({**reach.confluent(), "error_cb": errors.append})
        delivered: list[Any] = []
        producer.produce(topic, VALUE, on_delivery=lambda error, _: delivered.append(error))

        def told() -> list[Any]:
            producer.poll(0.05)
            return [*refusals(errors), *delivered]

        poll(told, timeout_s=TIMEOUT_S)
        if failed := [error for error in told() if error is not None]:
            producer.purge()
            producer.flush(5)
            raise KafkaException(failed[0])
        assert delivered, errors

    @staticmethod
    def consume(reach: Reach, topic: str, group: str) -> bytes:
        settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer({**reach.confluent(), **settings})
        try:
            consumer.subscribe([topic])
            message = consumer.poll(TIMEOUT_S)
            assert message is not None
            if message.error():
                raise KafkaException(message.error())
            consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
            return bytes(message.value())
        finally:
            consumer.close()


def refusals(errors: list[KafkaError]) -> list[KafkaError]:
    return [
        error
        for error in errors
        if error.code() == KafkaError._AUTHENTICATION or "alert unknown ca" in error.str()
    ]


class KafkaPython:
    @staticmethod
    def produce(reach: Reach, topic: str) -> None:
        producer = kafka.KafkaProducer(
            **reach.kafka_python(), bootstrap_timeout_ms=REFUSED_MS, max_block_ms=10_000
        )
        try:
            producer.send(topic, VALUE).get(10)
        finally:
            producer.close(timeout=5)

    @staticmethod
    def consume(reach: Reach, topic: str, group: str) -> bytes:
        consumer = kafka.KafkaConsumer(
            **reach.kafka_python(),
            group_id=group,
            auto_offset_reset="earliest",
            bootstrap_timeout_ms=REFUSED_MS,
        )
        try:
            if topic.startswith(OWN):
                consumer.subscribe([topic])
            else:  # when it subscribes, poll raises no error
                consumer.assign([kafka.TopicPartition(topic, 0)])
            deadline = time.monotonic() + TIMEOUT_S
            while time.monotonic() < deadline:
                for records in consumer.poll(500).values():
                    return bytes(records[0].value)
            raise AssertionError("no record came")
        finally:
            consumer.close(autocommit=False)


class AioKafka:
    @staticmethod
    def produce(reach: Reach, topic: str) -> None:
        async def main() -> None:
            async with aiokafka.AIOKafkaProducer(**reach.aiokafka()) as producer:
                await producer.send_and_wait(topic, VALUE)

        asyncio.run(main())

    @staticmethod
    def consume(reach: Reach, topic: str, group: str) -> bytes:
        async def main() -> bytes:
            consumer = aiokafka.AIOKafkaConsumer(
                topic, **reach.aiokafka(), group_id=group, auto_offset_reset="earliest"
            )
            async with asyncio.timeout(TIMEOUT_S):
                async with consumer:
                    return bytes((await consumer.getone()).value)

        return asyncio.run(main())


CLIENTS = (Confluent, KafkaPython, AioKafka)
Client = type[Confluent] | type[KafkaPython] | type[AioKafka]
of_each_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)


@of_each_client
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_client_produces_and_consumes(node: GuardedNode, client: Client, way: Way) -> None:
    topic = f"ann-{client.__name__}-{way}".replace(" ", "-")
    node.create_topic(topic)
    client.produce(node.reach(way), topic)
    assert client.consume(node.reach(way), topic, topic) == VALUE


def text(error: BaseException) -> str:
    name = error.args[0].name() if isinstance(error, KafkaException) else type(error).__name__
    return f"{name} {error}"


def refusal(client: Client, way: Way) -> str:
    """aiokafka is not told by TLS why, and takes the answer to a wrong token for a login."""
    if client is AioKafka and way.mechanism in ("", "OAUTHBEARER"):
        return "closed"
    if not way.mechanism:
        return "alert unknown ca"
    return "_AUTHENTICATION" if client is Confluent else "SaslAuthenticationFailed"


ERRORS = (KafkaException, kafka.errors.KafkaError, aiokafka.errors.KafkaError)


@of_each_client
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_wrong_password_token_or_certificate_is_refused(
    node: GuardedNode, client: Client, way: Way, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ERRORS) as caught:
        client.produce(node.reach(way, wrong=True), "ann-refused")
    told = f"{text(caught.value)} {caplog.text}"  # some clients only log the reason
    assert refusal(client, way) in told


@of_each_client
def test_missing_acls_are_told_by_their_codes(node: GuardedNode, client: Client) -> None:
    reach = node.reach(LOGIN)
    for topic in ("else", "ann-group"):
        node.create_topic(f"{topic}-{client.__name__}")
    topic_denied, group_denied = DENIALS[client is Confluent]
    with pytest.raises(ERRORS) as caught:
        client.produce(reach, f"else-{client.__name__}")
    assert topic_denied in text(caught.value)
    with pytest.raises(ERRORS) as caught:
        client.consume(reach, f"else-{client.__name__}", "ann-group")
    assert topic_denied in text(caught.value)
    with pytest.raises(ERRORS) as caught:
        client.consume(reach, f"ann-group-{client.__name__}", "else")
    assert group_denied in text(caught.value)


def test_plain_without_tls_is_refused_at_start(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    done = NodeProcess(
        tmp_path,
        port=port,
        listeners=[f"SASL_PLAINTEXT={HOST}:{port}"],
        settings={"sasl.enabled.mechanisms": "PLAIN"},
    ).run_to_end()
    assert done.returncode != 0
    assert "PLAIN sends the password itself" in done.stderr
