# SPDX-License-Identifier: Apache-2.0
"""Files on disk are Apache Kafka's: its dump-log reads ours, and both brokers write the same bytes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.raw_client import RawConnection, send_each
from bench.raw_requests import ProduceReply, produce_request
from headrace.cluster.engines.kafka import KafkaEngine
from headrace.wire.records import Record, build_batch
from tests.harness.live.node import NodeProcess

pytestmark = pytest.mark.compat_jvm

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FIRST = "00000000000000000000"


def create(bootstrap: str, topic: str, **configs: str) -> None:
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=settings)])[topic].result(20)


def produce(bootstrap: str, topic: str, codec: str, first: int, count: int) -> None:
    """One batch of records with key, value, header and a given time."""
    settings = {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 200}
    producer = Producer({**settings, "enable.idempotence": True})
    for number in range(first, first + count):
        headers = [("n", str(number))]
        when_ms = 1_700_000_000_000 + number
        producer.produce(topic, f"value {number} " * 20, f"key {number}", headers=headers, timestamp=when_ms)
    assert producer.flush(20) == 0


def dump(engine: KafkaEngine, *arguments: str) -> str:
    result = engine.tool("dump-log", *arguments)
    assert result.returncode == 0, result.output
    return result.stdout


def test_dump_log_reads_every_batch_and_record(kafka_engine: KafkaEngine, node: NodeProcess) -> None:
    create(node.bootstrap, "dumped")
    for turn, codec in enumerate(CODECS):
        produce(node.bootstrap, "dumped", codec, turn * 20, 20)
    folder = node.data / "dumped-0"
    printed = dump(kafka_engine, "--files", str(folder / f"{FIRST}.log"), "--print-data-log")
    batches = re.findall(
        r"^baseOffset: (\d+) lastOffset: (\d+) .*compresscodec: (\w+) .*isvalid: true", printed, re.M
    )
    assert {codec for _, _, codec in batches} == set(CODECS)
    assert (batches[0][0], batches[-1][1]) == ("0", "99")
    records = re.findall(
        r"offset: (\d+) CreateTime: (\d+) .*headerKeys: \[n\] key: key (\d+) payload: value (\d+) ", printed
    )
    assert records == [(str(n), str(1_700_000_000_000 + n), str(n), str(n)) for n in range(100)]


def test_dump_log_finds_no_fault_in_the_indexes(kafka_engine: KafkaEngine, node: NodeProcess) -> None:
    create(node.bootstrap, "indexed", segment_bytes=str(1 << 20), index_interval_bytes="1024")
    for turn in range(8):
        produce(node.bootstrap, "indexed", "none", turn * 1500, 1500)
    node.stop()
    folder = node.data / "indexed-0"
    assert len(list(folder.glob("*.log"))) > 1
    offsets = dump(kafka_engine, "--files", ",".join(map(str, sorted(folder.glob("*.index")))))
    times = dump(kafka_engine, "--files", ",".join(map(str, sorted(folder.glob("*.timeindex")))))
    assert "offset: " in offsets
    assert "timestamp: " in times
    for fault in ("mismatch", "out of order", "not found"):
        assert fault not in (offsets + times).lower()


def test_dump_log_reads_the_producer_snapshot(kafka_engine: KafkaEngine, node: NodeProcess) -> None:
    create(node.bootstrap, "snapped")
    produce(node.bootstrap, "snapped", "none", 0, 30)
    node.stop()
    (snapshot,) = (node.data / "snapped-0").glob("*.snapshot")
    printed = dump(kafka_engine, "--files", str(snapshot))
    assert re.search(
        r"producerId: \d+ producerEpoch: 0 .*lastTimestamp: \d+ .*firstSequence: 0 lastSequence: 29", printed
    )
    assert "lastOffset: 29" in printed


def test_both_brokers_write_the_same_bytes(
    kafka_engine: KafkaEngine, node: NodeProcess, tmp_path: Path
) -> None:
    """The same produce requests, byte for byte, to both; then their files are compared."""
    batches = [_batch(codec_number, first) for first, codec_number in enumerate([0, 1, 2, 3, 4] * 8)]
    requests = [produce_request("same", {0: batch}, acks=-1) for batch in batches]
    with kafka_engine.start(tmp_path / "kafka", {}) as kafka:
        for bootstrap in (kafka.bootstrap, node.bootstrap):
            create(bootstrap, "same")
            produce_until_known(bootstrap)
            host, port = bootstrap.split(":")
            with RawConnection(host, int(port)) as connection:
                send_each(connection, requests, ProduceReply("same").check)
        kafka_folder = kafka.data_dir / "same-0"
    node.stop()
    headrace_folder = node.data / "same-0"
    for suffix in (".log", ".index", ".timeindex"):
        ours, theirs = (folder / f"{FIRST}{suffix}" for folder in (headrace_folder, kafka_folder))
        assert ours.read_bytes() == theirs.read_bytes(), suffix
    for name in ("leader-epoch-checkpoint",):
        assert (headrace_folder / name).read_text() == (kafka_folder / name).read_text()


def produce_until_known(bootstrap: str) -> None:
    """A client that retries waits for the topic's leader on either broker."""
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 1})
    producer.produce("same", b"first", timestamp=1_700_000_000_000)
    assert producer.flush(20) == 0


def _batch(codec: int, turn: int) -> bytes:
    first_ms = 1_700_000_001_000 + turn * 100
    records = [
        Record(number, first_ms + number, b"k%d" % number, b"v" * 500, (("turn", b"%d" % turn),))
        for number in range(20)
    ]
    return bytes(build_batch(records, codec=codec))
