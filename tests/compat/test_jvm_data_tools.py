# SPDX-License-Identifier: Apache-2.0
"""Apache Kafka's console and performance tools, unmodified, also in transactions."""

from __future__ import annotations

import re

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.compat.java_tool import JavaTool

pytestmark = pytest.mark.compat_jvm

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def consume(java: JavaTool, topic: str, count: int, *arguments: str, partition: int = 0) -> list[str]:
    return java(
        "console-consumer",
        *("--topic", topic, "--partition", str(partition), "--max-messages", str(count)),
        *("--timeout-ms", "20000", *arguments),
    ).splitlines()


@pytest.mark.row("D1")
@pytest.mark.row("D2")
def test_what_the_console_producer_sends_the_console_consumer_sees(java: JavaTool, topic: str) -> None:
    java("topics", "--create", "--topic", topic)
    properties = ("parse.key=true", "key.separator=:", "parse.headers=true")
    arguments = [part for one in properties for part in ("--reader-property", one)]
    java(
        "console-producer",
        "--topic",
        topic,
        *arguments,
        stdin="h:1,g:2\tk1:one\nh:3\tk2:two\nh:4\tk3:three\n",
    )
    shown = ("print.key=true", "print.headers=true", "print.offset=true", "print.timestamp=true")
    formatting = [part for one in shown for part in ("--formatter-property", one)]
    lines = consume(java, topic, 2, "--offset", "1", *formatting)
    assert [re.sub(r"CreateTime:\d{13}", "CreateTime", line) for line in lines] == [
        "CreateTime\tOffset:1\th:3\tk2\ttwo",
        "CreateTime\tOffset:2\th:4\tk3\tthree",
    ]


@pytest.mark.row("D1")
def test_two_readers_have_independent_positions(java: JavaTool, topic: str) -> None:
    java("topics", "--create", "--topic", topic, "--partitions", "2")
    producer = Producer({"bootstrap.servers": java.bootstrap})
    for number in range(6):
        producer.produce(topic, str(number), partition=1)
    assert producer.flush(20) == 0
    assert consume(java, topic, 6, "--offset", "earliest", partition=1) == list("012345")
    assert consume(java, topic, 2, "--offset", "4", partition=1) == ["4", "5"]


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_of_the_java_producer_is_read_back(java: JavaTool, topic: str, codec: str) -> None:
    text = "\n".join(f"{codec} {number} {'x' * 200}" for number in range(50))
    java("console-producer", "--topic", topic, "--compression-codec", codec, stdin=text + "\n")
    consumer = Consumer(
        {"bootstrap.servers": java.bootstrap, "group.id": "none", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages = consumer.consume(50, timeout=20)
    consumer.close()
    assert [message.value().decode() for message in messages] == text.splitlines()


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_read_by_the_java_consumer(java: JavaTool, topic: str, codec: str) -> None:
    java("topics", "--create", "--topic", topic)
    producer = Producer({"bootstrap.servers": java.bootstrap, "compression.type": codec, "linger.ms": 100})
    values = [f"{codec} {number} {'y' * 200}" for number in range(50)]
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(20) == 0
    assert consume(java, topic, 50, "--offset", "earliest") == values


@pytest.mark.row("D7")
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_producer_performance_ends_with_every_record_in_the_log(
    java: JavaTool, topic: str, acks: str
) -> None:
    java("topics", "--create", "--topic", topic, "--partitions", "3")
    printed = java(
        "producer-perf-test",
        *("--topic", topic, "--num-records", "20000", "--record-size", "100", "--throughput", "-1"),
        *("--command-property", f"acks={acks}", f"enable.idempotence={'true' if acks == 'all' else 'false'}"),
    )
    assert "20000 records sent" in printed
    offsets = java("get-offsets", "--topic", topic).split()
    assert sum(int(line.rpartition(":")[2]) for line in offsets) == 20_000


def test_producer_performance_in_transactions(java: JavaTool, topic: str) -> None:
    java("topics", "--create", "--topic", topic)
    printed = java(
        "producer-perf-test",
        *("--topic", topic, "--num-records", "2000", "--record-size", "100", "--throughput", "-1"),
        *("--transactional-id", topic, "--transaction-duration-ms", "50"),
    )
    assert "2000 records sent" in printed
    listed = java("transactions", "list", "--transactional-id-pattern", topic)
    assert [line.split()[-1] for line in listed.strip().splitlines()[1:]] == ["CompleteCommit"]


def test_active_producers_are_shown_to_the_transactions_tool(java: JavaTool, topic: str) -> None:
    java("topics", "--create", "--topic", topic)
    producer = Producer({"bootstrap.servers": java.bootstrap, "enable.idempotence": True})
    for number in range(3):
        producer.produce(topic, str(number))
        assert producer.flush(20) == 0
    lines = java("transactions", "describe-producers", "--topic", topic, "--partition", "0").splitlines()
    header, row = (line.split("\t") for line in lines)
    shown = dict(zip((name.strip() for name in header), (value.strip() for value in row), strict=False))
    assert (shown["ProducerEpoch"], shown["LastSequence"]) == ("0", "2")
