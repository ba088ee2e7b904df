# SPDX-License-Identifier: Apache-2.0
"""Compressed batches are validated by default: those of every client are accepted, damaged ones are refused,
and neither large ones nor bombs stop anybody else.

Large enough to be checked in threads; small ones: the clients' own tests in tests/compat. What Apache Kafka
answers: tests/compat/test_jvm_damaged_batches.py.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from kafka import KafkaProducer

import headrace
from headrace.wire.batch import HEADER_SIZE, read_header, write_crc
from headrace.wire.compression import PRODUCER_CAPS, Codec
from headrace.wire.error_codes import ErrorCode
from headrace.wire.records import Record, build_batch
from tests.harness.live.node import NodeProcess
from tests.harness.live.raw_client import Canary, RawClient, simple_batch
from tests.harness.waiting import wait_until

CODECS = ["gzip", "snappy", "lz4", "zstd"]
ROWS = 3000
SOURCE = random.Random(47)
VALUES = [b"%d the stream turns the wheel %s" % (row, SOURCE.randbytes(100)) for row in range(ROWS)]
"""Some 400 kB, of which hardly a third can be compressed away."""
GIANTS = 10
ROUNDS_PER_GIANT = 5
"""Of the well-behaved client: one that is stopped by each giant makes one or two."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("compressed")) as node:
        yield node


def by_librdkafka(bootstrap: str, topic: str, codec: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 200})
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def by_kafka_python(bootstrap: str, topic: str, codec: str) -> None:
    options = {"compression_type": codec, "linger_ms": 200, "batch_size": 1 << 20}
    producer = KafkaProducer(bootstrap_servers=bootstrap, **options)
    sends = [producer.send(topic, value) for value in VALUES]
    producer.flush(30)
    assert [send.get(30).offset for send in sends] == list(range(ROWS))
    producer.close()


def by_aiokafka(bootstrap: str, topic: str, codec: str) -> None:
    async def produce() -> None:
        options = {"compression_type": codec, "linger_ms": 200, "max_batch_size": 1 << 20}
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, **options) as producer:
            sends = [await producer.send(topic, value) for value in VALUES]
            assert [(await send).offset for send in sends] == list(range(ROWS))

    asyncio.run(produce())


def by_arrow(bootstrap: str, topic: str, codec: str) -> None:
    table = pa.table({"value": pa.array(VALUES, pa.binary())})
    assert headrace.write(table, topic, bootstrap=bootstrap, compression=codec).records == ROWS


CLIENTS = [by_librdkafka, by_kafka_python, by_aiokafka, by_arrow]


def consumed(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    values: list[bytes | None] = []
    deadline = time.monotonic() + 30
    while len(values) < count and time.monotonic() < deadline:
        for message in consumer.consume(1000, 0.2):
            assert message.error() is None, message.error()
            values.append(message.value())
    consumer.close()
    return values


def create(node: NodeProcess, topic: str, **configs: str) -> None:
    with RawClient(node.bootstrap) as client:
        client.create_topic(topic, **configs)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
def test_large_batches_of_every_client_are_accepted(
    node: NodeProcess, client: Callable[[str, str, str], None], codec: str
) -> None:
    topic = f"{client.__name__}-{codec}"
    create(node, topic)
    client(node.bootstrap, topic, codec)
    assert consumed(node.bootstrap, topic, ROWS) == VALUES


def damaged(batch: bytes) -> bytes:
    """The last bytes of the compressed records are gone, and length and CRC fit."""
    cut = bytearray(batch[: HEADER_SIZE + (len(batch) - HEADER_SIZE) * 2 // 3])
    cut[8:12] = (len(cut) - 12).to_bytes(4, "big")
    write_crc(memoryview(cut), 0, len(cut))
    return bytes(cut)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_damaged_batches_are_refused_and_consumers_go_on(node: NodeProcess, codec: Codec) -> None:
    topic = f"damaged-{codec.name.lower()}"
    create(node, topic)
    small, large = [b"first" * 20, b"second" * 20], VALUES[:500]
    with RawClient(node.bootstrap) as client:
        for values in (small, large):
            batch = simple_batch(*values, codec=codec)
            assert client.produce(topic, batch)[0] is ErrorCode.none
            for _ in range(3):  # alike, as in a run of requests
                assert client.produce(topic, damaged(batch)) == (ErrorCode.invalid_record, -1)
            assert client.produce(topic, batch)[0] is ErrorCode.none
    expected = [*small, *small, *large, *large]
    assert consumed(node.bootstrap, topic, len(expected)) == expected


def giant(codec: Codec) -> bytes:
    """As many sound records as may be in a batch."""
    now_ms = int(time.time() * 1000)
    value = bytes(1 << 16)
    count = (PRODUCER_CAPS.max_bytes - (1 << 20)) // len(value)
    records = [Record(n, now_ms, SOURCE.randbytes(500), value) for n in range(count)]
    return bytes(build_batch(records, codec=codec))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
def test_a_client_that_sends_the_largest_batches_does_not_stop_others(
    node: NodeProcess, codec: Codec
) -> None:
    topic = f"giants-{codec.name.lower()}"
    create(node, topic)
    batch = giant(codec)
    with (
        Canary(node.bootstrap, topic=f"beside-{topic}") as canary,
        RawClient(node.bootstrap, timeout_s=60) as client,
    ):
        frames = [client.produce_frame(topic, batch, acks=1) for _ in range(GIANTS)]
        sending = threading.Thread(target=client.send, args=(b"".join(frames),))
        begun = canary.begin()
        sending.start()
        for _ in frames:
            assert client.receive() is not None
        rounds = canary.begin() - begun
        sending.join()
        assert client.end_offset(topic) == GIANTS * read_header(batch).record_count
        canary.check(begun)
    assert rounds > ROUNDS_PER_GIANT * GIANTS


def test_what_clients_sent_before_they_left_is_appended(node: NodeProcess) -> None:
    topic, clients = "left", 4
    create(node, topic)
    batch = simple_batch(*VALUES, codec=Codec.GZIP)
    for _ in range(clients):
        with RawClient(node.bootstrap) as client:
            client.send(client.produce_frame(topic, batch, acks=1))
    with RawClient(node.bootstrap) as client:
        wait_until(lambda: client.end_offset(topic) == clients * ROWS, timeout_s=30)
    assert consumed(node.bootstrap, topic, clients * ROWS) == VALUES * clients
