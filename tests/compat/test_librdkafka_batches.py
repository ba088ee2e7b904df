# SPDX-License-Identifier: Apache-2.0
"""The batches that librdkafka itself writes and reads, codec by codec, without a broker in between.

librdkafka has its own lz4, snappy, gzip and zstd, and writes snappy bare where Java writes it in chunks. A
stub answers it with headrace.wire and keeps what it sends.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

from headrace.wire.api_table import APIS, RequestHeader, read_request_header
from headrace.wire.batch import read_header, split_batches
from headrace.wire.compression import Codec
from headrace.wire.messages import decode_request, encode_reply
from headrace.wire.records import Record, build_batch, read_records, validate_records
from headrace.wire.requests.fetch import FetchResult, read_fetch, write_fetch_reply
from headrace.wire.requests.produce import ProduceResult, read_produce, write_produce_reply

TOPIC = "drawn"
SERVED = (0, 1, 2, 3, 10, 18)
MESSAGES = [(f"key-{number}".encode(), b"the stream turns the wheel " * 40) for number in range(50)]


class StubBroker:
    """One thread per connection; answers just what a producer or an assigned consumer asks."""

    def __init__(self, stored: bytes = b"") -> None:
        self.stored = stored
        self.produced: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream, contextlib.suppress(OSError):
            while len(prefix := stream.read(4)) == 4:
                frame = memoryview(bytearray(stream.read(struct.unpack(">i", prefix)[0])))
                connection.sendall(self._answer(read_request_header(frame, 0, len(frame)), frame))

    def _answer(self, header: RequestHeader, frame: memoryview) -> bytes:
        key, version, correlation_id, _, position = header
        if key == 0:
            return self._produce(header, frame)
        if key == 1:
            return self._fetch(header, frame)
        request = decode_request(key, version, frame, position, len(frame))
        replies = {2: self._list_offsets, 3: self._metadata, 10: self._no_group, 18: self._api_versions}
        return encode_reply(key, version, correlation_id, replies[key](request))

    def _produce(self, header: RequestHeader, frame: memoryview) -> bytes:
        request = read_produce(frame, header.body_position, len(frame), header.api_version)
        for topic in request.topics:
            self.produced += [bytes(frame[part.start : part.end]) for part in topic.partitions]
        topics = [(t.name, t.topic_id, [ProduceResult(0, base_offset=0)]) for t in request.topics]
        return write_produce_reply(header.api_version, header.correlation_id, topics)

    def _fetch(self, header: RequestHeader, frame: memoryview) -> bytes:
        request = read_fetch(frame, header.body_position, len(frame), header.api_version)
        end = read_header(self.stored).next_offset
        topics = []
        for topic in request.topics:
            size = len(self.stored) if topic.partitions[0].fetch_offset < end else 0
            topics.append((topic.name, topic.topic_id, [FetchResult(0, 0, end, end, 0, size=size)]))
        chunks = write_fetch_reply(header.api_version, header.correlation_id, 0, 0, topics)
        return self.stored.join(chunks)

    def _list_offsets(self, request: Any) -> dict[str, Any]:
        return {"topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "offset": 0}]}]}

    def _no_group(self, request: Any) -> dict[str, Any]:
        return {"error_code": 15, "coordinators": [{"key": "none", "error_code": 15}]}

    def _metadata(self, request: Any) -> dict[str, Any]:
        partition = {"partition_index": 0, "leader_id": 1, "leader_epoch": 0, "replica_nodes": [1]}
        topic = {"name": TOPIC, "topic_id": None, "partitions": [partition]}
        brokers = [{"node_id": 1, "host": "127.0.0.1", "port": self.port}]
        return {"brokers": brokers, "cluster_id": "stub", "controller_id": 1, "topics": [topic]}

    def _api_versions(self, request: Any) -> dict[str, Any]:
        # Below topic ids: this stub gives its topic none.
        highest = {0: 12, 1: 11, 3: 9}
        return {
            "api_keys": [
                {
                    "api_key": key,
                    "min_version": APIS[key].min_version,
                    "max_version": highest.get(key, APIS[key].max_version),
                }
                for key in SERVED
            ]
        }


@pytest.fixture
def stub() -> Iterator[StubBroker]:
    broker = StubBroker()
    yield broker
    broker.close()


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
def test_what_librdkafka_writes_is_read_by_us(codec: Codec, stub: StubBroker) -> None:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{stub.port}",
            "compression.type": codec.name.lower(),
            "linger.ms": 200,
            "acks": 1,
        }
    )
    for key, value in MESSAGES:
        producer.produce(TOPIC, value, key, headers=[("unit", b"mill"), ("none", None)], timestamp=1_234_567)
    assert producer.flush(20) == 0
    records: list[Record] = []
    for data in stub.produced:
        batch = memoryview(bytearray(data))
        ((_, header),) = split_batches(batch, 0, len(batch), max_batch_bytes=1 << 20, single=True)
        assert header.codec == codec
        validate_records(batch, require_key=True)
        records += read_records(batch)
    assert [(record.key, record.value) for record in records] == MESSAGES
    assert {record.headers for record in records} == {(("unit", b"mill"), ("none", None))}
    assert {record.timestamp for record in records} == {1_234_567}


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
def test_what_we_write_is_read_by_librdkafka(codec: Codec, stub: StubBroker) -> None:
    headers = (("unit", b"mill"), ("none", None))
    records = [Record(n, 1_234_567 + n, key, value, headers) for n, (key, value) in enumerate(MESSAGES)]
    stub.stored = bytes(build_batch(records, codec=codec))
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{stub.port}",
            "group.id": "none",
            "enable.auto.commit": False,
            "check.crcs": True,
            "fetch.wait.max.ms": 10,
        }
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
        found = consumer.consume(len(records), timeout=20)
        assert [message.error() for message in found] == [None] * len(records)
        read = [
            Record(m.offset(), m.timestamp()[1], m.key(), m.value(), tuple(m.headers() or ())) for m in found
        ]
        assert read == records
    finally:
        consumer.close()
