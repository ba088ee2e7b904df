"""What transactions leave on disk is Apache Kafka's: its dump-log reads ours, and says the same of its own.

The same transactions are run on a node of each. Producer ids and times are theirs, all else is compared.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from transaction_nodes import ENGINES, PROTOCOLS, transactional_node

from headrace.cluster.engines.kafka import KafkaEngine
from tests.harness.waiting import wait_until

pytestmark = pytest.mark.compat_jvm

SETTINGS = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
ONE, TWO = "one", "two"
CHANGING = {
    "producerId": r"producerId[=: ]+-?\d+",
    "transactional": r"(?<=\W)(?:previous|next)?ProducerId\"?[=:] ?-?\d+",
    "time": r"(?:CreateTime|timestamp|lastTimestamp|LogAppendTime): -?\d+",
    "stamp": r"\"transaction(?:LastUpdate|Start)TimestampMs\": ?-?\d+",
}


def open_producer(bootstrap: str, name: str) -> Producer:
    settings = {"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 100}
    producer = Producer({**settings, "transaction.timeout.ms": 60_000})
    producer.init_transactions(30)
    return producer


def send(producer: Producer, tag: str, count: int = 3) -> None:
    """One batch."""
    for number in range(count):
        producer.produce("data", f"{tag} {number}", partition=0)
    assert producer.flush(30) == 0


def is_stable(bootstrap: str) -> bool:
    """Markers follow the reply to a commit: the next step waits for them, so that both write one order."""
    ends = []
    for level in ("read_committed", "read_uncommitted"):
        settings = {"bootstrap.servers": bootstrap, "group.id": "look", "isolation.level": level}
        consumer = Consumer(settings)
        ends.append(consumer.get_watermark_offsets(TopicPartition("data", 0), timeout=20)[1])
        consumer.close()
    return ends[0] == ends[1]


def play(bootstrap: str) -> None:
    """Committed, aborted, interleaved, with offsets of a group; one is left open."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("data", 1, 1)])["data"].result(30)
    one = open_producer(bootstrap, ONE)
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers"})
    for tag, end in (("a", one.commit_transaction), ("b", one.abort_transaction)):
        one.begin_transaction()
        send(one, tag)
        end(30)
        wait_until(lambda: is_stable(bootstrap), poll_s=0.05)
    two = open_producer(bootstrap, TWO)
    two.begin_transaction()
    send(two, "c")
    one.begin_transaction()
    send(one, "d")
    one.send_offsets_to_transaction([TopicPartition("data", 0, 6)], reader.consumer_group_metadata(), 30)
    one.commit_transaction(30)
    two.abort_transaction(30)
    wait_until(lambda: is_stable(bootstrap), poll_s=0.05)
    one.begin_transaction()
    send(one, "left open")
    reader.close()


def dumped(engine: KafkaEngine, file: Path, *options: str) -> list[str]:
    result = engine.tool("dump-log", "--files", str(file), *options)
    assert result.returncode == 0, result.output
    lines = [line for line in result.stdout.splitlines() if not line.startswith("Dumping ")]
    return [comparable(line) for line in lines]


def comparable(line: str) -> str:
    for name, pattern in CHANGING.items():
        line = re.sub(pattern, name, line, flags=re.IGNORECASE)
    return re.sub(r"(?:position|size|crc|partitionLeaderEpoch|baseSequence|leaderEpoch): \S+", "", line)


@pytest.mark.parametrize("version", ["2", "1"], ids=["version-2", "version-1"])
def test_dump_log_says_the_same_of_both(kafka_engine: KafkaEngine, tmp_path: Path, version: str) -> None:
    said = {}
    for protocol in PROTOCOLS:
        if not protocol.endswith(version):
            continue
        folder = tmp_path / protocol
        with transactional_node(protocol, kafka_engine, folder, SETTINGS) as node:
            play(node.bootstrap)
            node.stop()
            said[protocol.partition("-")[0]] = looked_at(kafka_engine, node.data_dir)
    theirs, ours = (said[engine] for engine in ENGINES)
    for what, lines in theirs.items():
        assert lines, what
        assert ours[what] == lines, what


def looked_at(engine: KafkaEngine, data: Path) -> dict[str, list[str]]:
    (index,) = (data / "data-0").glob("*.txnindex")
    snapshot = max((data / "data-0").glob("*.snapshot"))
    (log,) = (data / "data-0").glob("*.log")
    (state,) = (data / "__transaction_state-0").glob("*.log")
    (offsets,) = (data / "__consumer_offsets-0").glob("*.log")
    pending = [
        line
        for line in dumped(engine, offsets, "--offsets-decoder")
        if "isTransactional: true" in line or "endTxnMarker" in line
    ]
    return {
        "index": dumped(engine, index),
        "snapshot": sorted(dumped(engine, snapshot)),
        "log": dumped(engine, log, "--print-data-log"),
        "states": records(dumped(engine, state, "--transaction-log-decoder")),
        "offsets": pending,
    }


def records(lines: list[str]) -> list[str]:
    """Without the batches they are in: how many share one is a matter of speed."""
    found = [re.search(r"key: .*", line) for line in lines]
    return [match[0] for match in found if match is not None]
