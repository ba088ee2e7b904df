# SPDX-License-Identifier: Apache-2.0
"""Go clients, unmodified: franz-go, sarama and segmentio/kafka-go create, produce, consume, list offsets.

The drawn applications are Go programs (D17). The programs are in tests/compat/go; each answers in JSON.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from headrace.client.partitioning.partitioners import hash_partition

pytestmark = [pytest.mark.compat_go, pytest.mark.row("D17")]

CLIENTS = ("franz", "sarama", "segmentio")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 3
HASHES_LIKE_JAVA = {"franz", "segmentio"}  # sarama's default is another hash

RECORDS = [
    {
        "key": f"key-{number % 7}",
        "value": f"value-{number} {'x' * 100}",
        "headers": {"n": str(number), "empty": ""},
    }
    for number in range(30)
]


class GoClient:
    def __init__(self, program: Path, bootstrap: str, topic: str) -> None:
        self._command = [str(program), "-bootstrap", bootstrap, "-topic", topic]

    def __call__(self, mode: str, *, stdin: Any = None, **flags: object) -> Any:
        command = [*self._command, "-mode", mode]
        command += [part for name, value in flags.items() for part in (f"-{name}", str(value))]
        done = subprocess.run(
            command, input=json.dumps(stdin), capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        return json.loads(done.stdout)


@pytest.fixture(params=CLIENTS)
def client_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def go(client_name: str, go_program: Callable[[str], Path], bootstrap: str, topic: str) -> GoClient:
    return GoClient(go_program(client_name), bootstrap, topic)


def without_place(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: record[name] for name in ("key", "value", "headers")} for record in records]


def by_partition(records: list[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    """In the order of their offsets."""
    found: dict[int, list[dict[str, Any]]] = {}
    for record in sorted(records, key=lambda record: (record["partition"], record["offset"])):
        found.setdefault(record["partition"], []).append(record)
    return found


@pytest.mark.row("D2")
@pytest.mark.row("D6")
@pytest.mark.parametrize("codec", CODECS)
def test_what_a_go_client_produces_it_consumes_from_each_partition(
    go: GoClient, client_name: str, codec: str
) -> None:
    assert go("create", partitions=PARTITIONS) == PARTITIONS
    sent = go("produce", stdin=RECORDS, codec=codec)
    assert without_place(sent) == RECORDS
    places = by_partition(sent)
    offsets = go("offsets")
    for partition in range(PARTITIONS):
        records = places.get(partition, [])
        assert [record["offset"] for record in records] == list(range(len(records)))
        assert offsets[str(partition)] == {"earliest": 0, "latest": len(records)}
        if records:
            assert go("consume", partition=partition, offset=0, count=len(records)) == records


@pytest.mark.row("D4")
def test_a_key_always_goes_to_one_partition(go: GoClient, client_name: str) -> None:
    go("create", partitions=PARTITIONS)
    sent = go("produce", stdin=RECORDS)
    placed = {record["key"]: record["partition"] for record in sent}
    assert all(placed[record["key"]] == record["partition"] for record in sent)
    if client_name in HASHES_LIKE_JAVA:
        assert placed == {key: hash_partition(key.encode(), PARTITIONS) for key in placed}


@pytest.mark.row("D1")
def test_a_go_consumer_begins_at_any_offset(go: GoClient) -> None:
    go("create", partitions=1)
    go("produce", stdin=RECORDS)
    seen = go("consume", offset=12, count=5)
    assert [record["offset"] for record in seen] == [12, 13, 14, 15, 16]
    assert without_place(seen) == RECORDS[12:17]


@pytest.mark.parametrize("codec", CODECS)
def test_go_reads_what_librdkafka_wrote(go: GoClient, bootstrap: str, topic: str, codec: str) -> None:
    go("create", partitions=1)
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 50})
    for record in RECORDS:
        producer.produce(topic, record["value"], record["key"], headers=record["headers"])
    assert producer.flush(20) == 0
    assert without_place(go("consume", offset=0, count=len(RECORDS))) == RECORDS


@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka_reads_what_go_wrote(go: GoClient, bootstrap: str, topic: str, codec: str) -> None:
    go("create", partitions=1)
    go("produce", stdin=RECORDS, codec=codec)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages = consumer.consume(len(RECORDS), timeout=20)
    consumer.close()
    assert [
        {
            "key": message.key().decode(),
            "value": message.value().decode(),
            "headers": {name: value.decode() for name, value in message.headers()},
        }
        for message in messages
    ] == RECORDS
