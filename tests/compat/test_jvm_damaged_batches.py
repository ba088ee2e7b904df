# SPDX-License-Identifier: Apache-2.0
"""Compressed batches with a right CRC and damaged contents: refused by Apache Kafka and by us alike."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from headrace.cluster.engines.kafka import KafkaEngine
from headrace.wire.batch import HEADER_SIZE, write_crc
from headrace.wire.compression import Codec, compress
from headrace.wire.error_codes import ErrorCode
from headrace.wire.records import Record, build_batch
from tests.harness.live.raw_client import RawClient
from tests.harness.waiting import poll

pytestmark = pytest.mark.compat_jvm

CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
REFUSALS_OF_KAFKA = {ErrorCode.invalid_record, ErrorCode.unknown_server_error}
NOT_YET = {ErrorCode.unknown_topic_or_partition, ErrorCode.not_leader_or_follower}


@pytest.fixture(scope="module")
def kafka(kafka_engine: KafkaEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawClient]:
    node = kafka_engine.start(tmp_path_factory.mktemp("kafka"), {})
    try:
        with RawClient(f"127.0.0.1:{node.port}", timeout_s=60) as client:
            yield client
    finally:
        node.stop()


def with_payload(batch: bytes, payload: bytes) -> bytes:
    """The same header around other compressed data."""
    made = bytearray(batch[:HEADER_SIZE]) + payload
    made[8:12] = (len(made) - 12).to_bytes(4, "big")
    write_crc(memoryview(made), 0, len(made))
    return bytes(made)


def cases(codec: Codec) -> Iterator[tuple[str, bytes]]:
    now_ms = int(time.time() * 1000)
    records = [Record(number, now_ms, b"k%d" % number, b"value %d" % number * 10) for number in range(50)]
    sound, plain = bytes(build_batch(records, codec=codec)), bytes(build_batch(records))[HEADER_SIZE:]
    payload = sound[HEADER_SIZE:]
    yield "sound", sound
    yield "not of its codec", with_payload(sound, b"not compressed at all, really not")
    yield "cut off", with_payload(sound, payload[:-20])
    yield "cut in half", with_payload(sound, payload[: len(payload) // 2])
    middle = len(payload) // 2
    flipped = (
        payload[:middle] + bytes(byte ^ 0x5A for byte in payload[middle : middle + 8]) + payload[middle + 8 :]
    )
    yield "flipped bits", with_payload(sound, flipped)
    yield "no data", with_payload(sound, b"")
    yield "nothing inside", with_payload(sound, compress(codec, b""))
    yield "compressed twice", with_payload(sound, compress(codec, compress(codec, plain)))
    yield "a header that is not there", with_payload(sound, compress(codec, plain[:-1] + b"\x02"))
    yield "bytes left over", with_payload(sound, compress(codec, plain + b"zz"))
    yield "a record cut off", with_payload(sound, compress(codec, plain[:-5]))
    yield (
        "a record too few",
        with_payload(sound, compress(codec, bytes(build_batch(records[:-1]))[HEADER_SIZE:])),
    )
    apart = [records[0], records[1]._replace(offset=5)]
    yield "offsets that do not follow", bytes(build_batch(apart, codec=codec, last_offset_delta=1))


@pytest.mark.parametrize("codec", CODECS)
def test_the_same_batches_are_refused(kafka: RawClient, bootstrap: str, codec: Codec) -> None:
    topic = f"damaged-{codec.name.lower()}"
    with RawClient(bootstrap) as ours:
        for client in (kafka, ours):
            client.create_topic(topic)
            sound = next(cases(codec))[1]
            poll(lambda: client.produce(topic, sound)[0] not in NOT_YET, timeout_s=30)  # noqa: B023
        for name, batch in cases(codec):
            theirs, code = kafka.produce(topic, batch)[0], ours.produce(topic, batch)[0]
            if name == "sound":
                assert (theirs, code) == (ErrorCode.none, ErrorCode.none)
            else:
                assert theirs in REFUSALS_OF_KAFKA, name
                assert code is ErrorCode.invalid_record, name
        assert kafka.end_offset(topic) == ours.end_offset(topic)
