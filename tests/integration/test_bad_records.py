# SPDX-License-Identifier: Apache-2.0
"""Bad input, records (T16): refused with the right code; nothing is appended, nobody else notices.

Against a live node, with a well-behaved client measured beside it.
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

import crc32c
import pytest

from headrace.wire.compression import compress
from headrace.wire.error_codes import ErrorCode
from headrace.wire.records import Record, build_batch
from tests.harness import soak
from tests.harness.live.node import NodeProcess
from tests.harness.live.raw_client import Canary, RawClient, simple_batch

MEMORY_ROOM = 64 << 20
FUZZED_BATCHES, SOAK_BATCHES = 2_000, 200_000
SNAPPY = 2
LENGTH_AT, MAGIC_AT, CRC_AT, ATTRIBUTES_AT, LAST_DELTA_AT, COUNT_AT, RECORDS_AT = 8, 16, 17, 21, 23, 57, 61


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path_factory.mktemp("records")) as node:
        with RawClient(node.bootstrap) as client:
            client.create_topic("plain")
            client.create_topic("full", record_validation="full")
            client.create_topic("compacted", cleanup_policy="compact")
        yield node


@pytest.fixture(scope="module")
def canary(node: NodeProcess) -> Iterator[Canary]:
    with Canary(node.bootstrap) as canary:
        yield canary
        canary.check()


@pytest.fixture(autouse=True)
def _nothing_is_appended_and_nobody_notices(node: NodeProcess, canary: Canary) -> Iterator[None]:
    before, memory = canary.begin(), node.rss_bytes()
    ends = _end_offsets(node)
    yield
    canary.wait_for_rounds(20)
    canary.check(before)
    assert _end_offsets(node) == ends
    assert node.rss_bytes() - memory < MEMORY_ROOM


def _end_offsets(node: NodeProcess) -> list[int]:
    with RawClient(node.bootstrap) as client:
        return [client.end_offset(topic) for topic in ("plain", "full", "compacted")]


def changed(batch: bytes, position: int, data: bytes, *, mend_crc: bool = True) -> bytes:
    """The batch with other bytes at a position, and a CRC that fits them."""
    copy = bytearray(batch)
    copy[position : position + len(data)] = data
    if mend_crc:
        struct.pack_into(">I", copy, CRC_AT, crc32c.crc32c(copy[ATTRIBUTES_AT:]))
    return bytes(copy)


def with_records(payload: bytes, *, count: int = 1, codec: int = 0) -> bytes:
    """A batch with a sound header around any bytes."""
    head = simple_batch(b"x")[:RECORDS_AT]
    batch = changed(head, ATTRIBUTES_AT, struct.pack(">hi", codec, count - 1)) + payload
    batch = changed(batch, LENGTH_AT, struct.pack(">i", len(batch) - 12))
    return changed(batch, COUNT_AT, struct.pack(">i", count))


GOOD = simple_batch(b"one", b"two")


class Bad(NamedTuple):
    name: str
    batch: bytes
    codes: set[ErrorCode]


CORRUPT = {ErrorCode.corrupt_message}
INVALID = {ErrorCode.invalid_record, ErrorCode.corrupt_message}

HEADERS = [
    Bad("crc", changed(GOOD, CRC_AT, b"\0\0\0\0", mend_crc=False), CORRUPT),
    Bad("flipped byte", changed(GOOD, 70, b"\xff", mend_crc=False), CORRUPT),
    Bad("length too small", changed(GOOD, LENGTH_AT, struct.pack(">i", 10)), CORRUPT),
    Bad("length too large", changed(GOOD, LENGTH_AT, struct.pack(">i", len(GOOD))), CORRUPT | INVALID),
    Bad("negative length", changed(GOOD, LENGTH_AT, struct.pack(">i", -5)), CORRUPT),
    Bad("huge length", changed(GOOD, LENGTH_AT, struct.pack(">i", 2**31 - 1)), CORRUPT | INVALID),
    Bad("magic 3", changed(GOOD, MAGIC_AT, b"\3"), CORRUPT | INVALID),
    Bad("magic -1", changed(GOOD, MAGIC_AT, b"\xff"), CORRUPT | INVALID),
    Bad("count too large", changed(GOOD, COUNT_AT, struct.pack(">i", 3)), INVALID),
    Bad("count 0", changed(GOOD, COUNT_AT, struct.pack(">i", 0)), INVALID),
    Bad("count -1", changed(GOOD, COUNT_AT, struct.pack(">i", -1)), INVALID),
    Bad("last offset delta", changed(GOOD, LAST_DELTA_AT, struct.pack(">i", 7)), INVALID),
    Bad("unknown codec 5", changed(GOOD, ATTRIBUTES_AT, struct.pack(">h", 5)), INVALID),
    Bad("unknown codec 7", changed(GOOD, ATTRIBUTES_AT, struct.pack(">h", 7)), INVALID),
    Bad("cut header", GOOD[:40], CORRUPT | INVALID),
    Bad("cut records", GOOD[:-3], CORRUPT | INVALID),
    Bad("trailing bytes", GOOD + b"xx", CORRUPT | INVALID),
    Bad("two batches", GOOD + GOOD, INVALID),
]


@pytest.mark.parametrize("bad", HEADERS, ids=lambda bad: bad.name)
def test_a_bad_batch_is_refused(node: NodeProcess, bad: Bad) -> None:
    with RawClient(node.bootstrap) as client:
        code, offset = client.produce("plain", bad.batch)
        assert code in bad.codes
        assert offset == -1


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_sets_are_refused_as_kafka_4_does(node: NodeProcess, magic: int) -> None:
    message = struct.pack(">bb", magic, 0) + (struct.pack(">q", 0) if magic else b"")
    message += struct.pack(">i", -1) + struct.pack(">i", 3) + b"old"
    message = struct.pack(">I", 0) + message
    old = struct.pack(">qi", 0, len(message)) + message
    with RawClient(node.bootstrap) as client:
        code, _ = client.produce("plain", old)
        assert code in {
            ErrorCode.unsupported_for_message_format,
            ErrorCode.invalid_record,
            ErrorCode.corrupt_message,
        }


def test_no_records_at_all_are_refused(node: NodeProcess) -> None:
    with RawClient(node.bootstrap) as client:
        assert client.produce("plain", b"")[0] in INVALID


@cache
def _bomb(codec: int) -> bytes:
    """As large as fits into a request; all but snappy (21 to 1) expand beyond every limit."""
    return with_records(compress(codec, bytes((19 if codec == SNAPPY else 200) << 20)), codec=codec)


def _nested(codec: int) -> bytes:
    """Compressed bytes whose inside is compressed again: no record to be found."""
    return with_records(compress(codec, compress(codec, b"x" * 1000)), codec=codec)


@pytest.mark.parametrize("codec", [1, 2, 3, 4], ids=["gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("kind", [_bomb, _nested], ids=["bomb", "nested"])
@pytest.mark.parametrize("topic", ["plain", "full", "compacted"])
def test_decompression_bombs_are_refused_unexpanded(
    node: NodeProcess, codec: int, kind: Callable[[int], bytes], topic: str
) -> None:
    batch = kind(codec)
    started = time.monotonic()
    with RawClient(node.bootstrap) as client:
        code, _ = client.produce(topic, batch)
    assert code in INVALID
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("codec", [1, 2, 3, 4], ids=["gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("topic", ["plain", "full"])
def test_bytes_that_are_not_of_their_codec_are_refused(node: NodeProcess, codec: int, topic: str) -> None:
    with RawClient(node.bootstrap) as client:
        assert client.produce(topic, with_records(b"not compressed at all", codec=codec))[0] in INVALID


PAYLOADS = {
    "empty": b"",
    "endless varint": b"\xff" * 11,
    "record longer than the batch": b"\xfe\xff\xff\xff\x0f" + b"\0" * 10,
    "negative record length": b"\x01" + b"\0" * 10,
    "key longer than the record": b"\x10\0\0\0\xfe\xff\x03" + b"\0" * 10,
    "two billion headers": b"\x14\0\0\0\1\1\xfe\xff\xff\xff\x0f" + b"\0" * 10,
    "negative header count": b"\x0e\0\0\0\1\1\x01",
}


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS.keys())
def test_malformed_records_are_refused_where_records_are_checked(node: NodeProcess, payload: bytes) -> None:
    with RawClient(node.bootstrap) as client:
        for topic in ("plain", "full"):
            for codec in range(5):
                batch = with_records(compress(codec, payload), codec=codec)
                assert client.produce(topic, batch)[0] in INVALID


def test_wrong_offset_deltas_are_refused_where_records_are_checked(node: NodeProcess) -> None:
    now_ms = int(time.time() * 1000)
    records = [Record(0, now_ms, None, b"a"), Record(5, now_ms, None, b"b")]
    batch = build_batch(records, last_offset_delta=1)
    with RawClient(node.bootstrap) as client:
        assert client.produce("full", bytes(batch))[0] in INVALID


def test_a_record_without_key_is_refused_by_a_compacted_topic(node: NodeProcess) -> None:
    with RawClient(node.bootstrap) as client:
        assert client.produce("compacted", simple_batch(b"no key"))[0] is ErrorCode.invalid_record


def test_other_partitions_of_the_same_request_are_served(node: NodeProcess) -> None:
    with RawClient(node.bootstrap) as client:
        bad = {"index": 0, "records": changed(GOOD, CRC_AT, b"\0\0\0\0", mend_crc=False)}
        unknown = {"index": 99, "records": GOOD}
        topics = [{"name": "plain", "partition_data": [bad, unknown]}]
        fields = {"transactional_id": None, "acks": 1, "timeout": 1000, "topic_data": topics}
        first, second = client.call(0, 8, fields).responses[0].partition_responses
        assert first.error_code is ErrorCode.corrupt_message
        assert second.error_code is ErrorCode.unknown_topic_or_partition


def _fuzz(node: NodeProcess, count: int, seed: int) -> int:
    """Random damage to sound batches with sound CRCs, sent where every record is checked."""
    source = random.Random(seed)
    refused = 0
    with RawClient(node.bootstrap) as client:
        for _ in range(count):
            codec = source.choice((0, 0, 1, 2, 3, 4))
            values = [source.randbytes(source.randint(0, 200)) for _ in range(source.randint(1, 5))]
            batch = bytearray(simple_batch(*values, codec=codec))
            for _ in range(source.randint(1, 4)):
                batch[source.randrange(RECORDS_AT, len(batch))] ^= 1 << source.randrange(8)
            if source.random() < 0.2:
                del batch[source.randrange(RECORDS_AT, len(batch)) :]
            struct.pack_into(">i", batch, LENGTH_AT, len(batch) - 12)
            struct.pack_into(">I", batch, CRC_AT, crc32c.crc32c(batch[ATTRIBUTES_AT:]))
            code, _ = client.produce("fuzzed", bytes(batch), acks=1)
            assert code in {ErrorCode.none, ErrorCode.invalid_timestamp, *INVALID}
            refused += code is not ErrorCode.none
    return refused


@pytest.fixture(scope="module")
def _fuzzed_topic(node: NodeProcess) -> None:
    with RawClient(node.bootstrap) as client:
        client.create_topic("fuzzed", record_validation="full")


@pytest.mark.usefixtures("_fuzzed_topic")
def test_t16_damaged_records_are_refused_or_readable(node: NodeProcess) -> None:
    assert _fuzz(node, FUZZED_BATCHES, soak.first_seed()) > FUZZED_BATCHES // 4


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("_fuzzed_topic")
def test_soak_t16_damaged_records_are_refused_or_readable(node: NodeProcess) -> None:
    started, seed = time.monotonic(), soak.first_seed() + 1
    refused = _fuzz(node, SOAK_BATCHES, seed)
    soak.write_report("T16", started, {"seed": seed, "batches": SOAK_BATCHES, "refused": refused})
