# SPDX-License-Identifier: Apache-2.0
"""What transactions leave on disk is Apache Kafka's: its dump-log reads ours, and says the same of its own.

The same transactions are run on a node of each. Producer ids and times are theirs, all else is compared.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import headrace
from headrace.cluster.engines.kafka import KafkaEngine
from tests.compat.transaction_nodes import ENGINES, PROTOCOLS, transactional_node
from tests.harness.waiting import wait_until

pytestmark = pytest.mark.compat_jvm

SETTINGS = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
ONE, TWO, THREE = "one", "two", "three"
"""The last speaks the new protocol where the node does (KIP-890), librdkafka the old one."""
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
    three = headrace.transaction(THREE, bootstrap=bootstrap)
    for end in (three.commit, three.abort):
        three.begin()
        three.write(pa.table({"value": ["e", "f"]}), "data")
        end()
        wait_until(lambda: is_stable(bootstrap), poll_s=0.05)
    three.close()
    one.begin_transaction()
    send(one, "left open")
    reader.close()


def dumped(engine: KafkaEngine, file: Path, *options: str) -> list[str]:
    result = engine.tool("dump-log", "--files", str(file), *options)
    assert result.returncode == 0, result.output
    return [line for line in result.stdout.splitlines() if not line.startswith("Dumping ")]


def newest_batches(lines: list[str]) -> list[str]:
    """Headrace keeps the five last batches of a producer over restarts, Apache Kafka the last one."""
    newest: dict[str, tuple[int, str]] = {}
    for line in lines:
        found = re.search(r"producerId: (\d+) (?:.* lastOffset: (\d+))?", line)
        assert found is not None, line
        newest[found[1]] = max(newest.get(found[1], (-1, "")), (int(found[2] or 0), line))
    return sorted(line for _, line in newest.values())


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
        assert ours[what] == lines, f"{what}\n" + "\n".join(("theirs", *lines, "ours", *ours[what]))


def looked_at(engine: KafkaEngine, data: Path) -> dict[str, list[str]]:
    (index,) = (data / "data-0").glob("*.txnindex")
    snapshot = max((data / "data-0").glob("*.snapshot"))
    (log,) = (data / "data-0").glob("*.log")
    (state,) = (data / "__transaction_state-0").glob("*.log")
    (offsets,) = (data / "__consumer_offsets-0").glob("*.log")
    pending = [
        re.sub(r"lastSequence: \S+", "", line)  # Apache Kafka has 0 where nobody looks at it
        for line in dumped(engine, offsets, "--offsets-decoder")
        if "isTransactional: true" in line or "endTxnMarker" in line
    ]
    found = {
        "index": dumped(engine, index),
        "snapshot": newest_batches(dumped(engine, snapshot)),
        "log": dumped(engine, log, "--print-data-log"),
        "states": states(dumped(engine, state, "--transaction-log-decoder")),
        "offsets": pending,
    }
    return {what: [comparable(line) for line in lines] for what, lines in found.items()}


def states(lines: list[str]) -> list[str]:
    """The records of each transactional id in turn. The batches that they are in, and in which order ids took
    turns, are a matter of speed; the partitions of a transaction have no order."""
    found = [re.search(r"key: (\S+) payload: (\S+)", line) for line in lines]
    values = [(match[1], json.loads(match[2])) for match in found if match is not None]
    for _, value in values:
        (value["data"]["transactionPartitions"] or []).sort(key=lambda each: each["topic"])
    return [f"{key} {json.dumps(value)}" for key, value in sorted(values, key=lambda pair: pair[0])]
