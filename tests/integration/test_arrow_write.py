# SPDX-License-Identifier: Apache-2.0
"""headrace.write against a live node: every row once, where it belongs, over kills; refusals name rows."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import headrace
from headrace.client.arrow.kernels.types import HEADERS
from headrace.client.arrow.write.results import WriteFailed
from headrace.client.errors import ClientError
from headrace.client.partitioning.partitioners import RangePartitioner, hash_partition
from headrace.key_ranges import parse_ranges
from tests.harness.live.node import NodeProcess


def create(bootstrap: str, topic: str, partitions: int = 1, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(20)


def consumed(bootstrap: str, topic: str, partitions: int, count: int) -> list[Any]:
    """Rows as librdkafka reads them."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "arrow", "check.crcs": True})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    rows: list[Any] = []
    try:
        while len(rows) < count:
            messages = consumer.consume(count, timeout=10)
            assert messages, f"{len(rows)} of {count} came"
            for each in messages:
                assert each.error() is None
                rows.append(
                    (each.partition(), each.timestamp()[1], each.key(), each.value(), each.headers() or [])
                )
    finally:
        consumer.close()
    return rows


def table(rows: int) -> Any:
    return pa.table(
        {
            "id": pa.array([None if n % 10 == 0 else f"key-{n}" for n in range(rows)], pa.string()),
            "value": pa.array(
                [None if n % 13 == 0 else b"v%d" % n * (n % 5) for n in range(rows)], pa.binary()
            ),
            "tags": pa.array(
                [
                    [{"key": "n", "value": b"%d" % n}, {"key": "z", "value": None}] if n % 3 == 0 else []
                    for n in range(rows)
                ],
                HEADERS,
            ),
            "at": pa.array([1_700_000_000_000 + n for n in range(rows)], pa.timestamp("ms")),
            "to": pa.array([n % 3 for n in range(rows)], pa.int16()),
        }
    )


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_librdkafka_reads_what_was_written(bootstrap: str, topic: str, compression: Any) -> None:
    create(bootstrap, topic, 3)
    data = table(1000)
    delivered = headrace.write(
        data,
        topic,
        bootstrap=bootstrap,
        key="id",
        headers="tags",
        timestamp="at",
        compression=compression,
        batch_bytes=5000,
    )
    assert delivered.records == 1000
    rows = consumed(bootstrap, topic, 3, 1000)
    expected = [
        (
            round(row["at"].timestamp() * 1000),
            row["id"] and row["id"].encode(),
            row["value"],
            [(header["key"], header["value"]) for header in row["tags"]],
        )
        for row in data.set_column(3, "at", data["at"].cast(pa.timestamp("ms", "UTC"))).to_pylist()
    ]
    assert sorted((row[1:] for row in rows), key=lambda row: row[0]) == expected
    assert all(partition == hash_partition(key, 3) for partition, _, key, *_ in rows if key is not None)
    counts = Counter(row[0] for row in rows)
    assert {place: each.records for place, each in delivered.partitions.items()} == counts
    assert all(each.first_offset == 0 for each in delivered.partitions.values())
    assert all(each.last_offset == each.records - 1 for each in delivered.partitions.values())


def test_what_is_written_is_read_back_as_arrow(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    data = table(500)
    headrace.write(data, topic, bootstrap=bootstrap, key="id", headers="tags", timestamp="at")
    back = headrace.read(topic, bootstrap=bootstrap).read_all()
    assert back["value"].to_pylist() == data["value"].to_pylist()
    assert back["key"].cast(pa.string()).to_pylist() == data["id"].to_pylist()
    assert back["headers"].to_pylist() == data["tags"].to_pylist()
    assert back["timestamp"].cast(pa.int64()).to_pylist() == data["at"].cast(pa.int64()).to_pylist()


def test_rows_go_where_the_partition_column_says(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 3)
    headrace.write(table(90), topic, bootstrap=bootstrap, partition="to", idempotent=False, acks=1)
    back = headrace.read(topic, bootstrap=bootstrap, columns=["partition", "value"]).read_all()
    assert Counter(back["partition"].to_pylist()) == {0: 30, 1: 30, 2: 30}


def test_partitioners(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 2)
    names = pa.table({"name": ["Anna", "Zoe", "Mia", "Nils"], "value": ["1", "2", "3", "4"]})
    ranges = RangePartitioner(parse_ranges("A..M,N..Z"))
    headrace.write(names, topic, bootstrap=bootstrap, key="name", partitioner=ranges)
    back = headrace.read(topic, bootstrap=bootstrap, columns=["partition", "key"]).read_all().to_pylist()
    assert {(row["partition"], row["key"]) for row in back} == {
        (0, b"Anna"), (0, b"Mia"), (1, b"Zoe"), (1, b"Nils"),
    }  # fmt: skip
    delivered = headrace.write(names, topic, bootstrap=bootstrap, value="value", partitioner="round_robin")
    assert [delivered.partitions[place].records for place in (0, 1)] == [2, 2]


def test_batches_from_anywhere_and_asyncio(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    batches = [pa.record_batch({"value": [f"{n}"]}) for n in range(50)]
    assert headrace.write(iter(batches), topic, bootstrap=bootstrap).records == 50
    assert headrace.write(batches[0], topic, bootstrap=bootstrap).records == 1
    assert headrace.write(table(0), topic, bootstrap=bootstrap, key="id").records == 0
    delivered = asyncio.run(headrace.awrite(pa.table({"value": ["a", "b"]}), topic, bootstrap=bootstrap))
    assert (delivered.partitions[0].first_offset, delivered.partitions[0].last_offset) == (51, 52)
    back = headrace.read(topic, bootstrap=bootstrap, columns=["value"]).read_all()
    assert back["value"].to_pylist() == [*(b"%d" % n for n in range(50)), b"0", b"a", b"b"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": "not-there", "create": False}, "topic 'not-there' does not exist"),
        ({"key": "nope"}, "the table has no column 'nope'"),
        ({"partition": "at"}, "must be an integer"),
        ({"compression": "brotli"}, "'brotli' is not a compression; use one of none, gzip"),
        ({"acks": 2}, 'use acks="all", acks=1 or acks=0'),
        ({"acks": 1}, "idempotent=False"),
        ({"partitioner": "random"}, "'random' is not a partitioner"),
        ({"bootstrap": "127.0.0.1:1"}, "no Kafka broker can be reached"),
    ],
    ids=str,
)
def test_invalid_write_requests_are_refused_at_once(
    bootstrap: str, topic: str, options: Any, message: str
) -> None:
    create(bootstrap, topic)
    arguments = {"topic": topic, "bootstrap": bootstrap, "value": "value", **options}
    with pytest.raises(ClientError, match=message):
        headrace.write(table(10), **arguments)


def test_a_row_without_a_place_is_named(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 2)
    with pytest.raises(ClientError, match="row 2: partition 2 does not exist: the topic has 2"):
        headrace.write(table(10), topic, bootstrap=bootstrap, partition="to")
    with pytest.raises(ClientError, match="row 1: key 'b1' is outside every range"):
        headrace.write(
            pa.table({"value": ["A1", "b1"]}),
            topic,
            bootstrap=bootstrap,
            key="value",
            partitioner=RangePartitioner(parse_ranges("A..M,N..Z")),
        )


def test_an_error_names_the_refused_row_and_what_was_delivered(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 1, **{"max.message.bytes": "2000"})
    values = [b"x" * 100 for _ in range(50)]
    values[33] = b"x" * 5000
    with pytest.raises(WriteFailed, match=r"partition 0 refused row 33: .*2000") as failure:
        headrace.write(pa.table({"value": values}), topic, bootstrap=bootstrap, batch_bytes=1500)
    assert list(failure.value.rows) == [33]
    assert failure.value.code == "MESSAGE_TOO_LARGE"
    stored = headrace.read(topic, bootstrap=bootstrap, columns=["offset"]).read_all().num_rows
    assert failure.value.delivered.records <= stored == 33


def test_compacted_topics_name_the_rows_without_a_key(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 1, **{"cleanup.policy": "compact"})
    keys = pa.array(["a", None, "b"])
    with pytest.raises(WriteFailed, match="refused") as failure:
        headrace.write(pa.table({"key": keys, "value": keys}), topic, bootstrap=bootstrap, key="key")
    assert 1 in failure.value.rows


def test_rows_that_are_never_acknowledged_are_named(node: NodeProcess) -> None:
    create(node.bootstrap, "away")

    def batches() -> Any:
        yield pa.record_batch({"value": ["sent"]})
        node.kill()
        for _ in range(10):
            yield pa.record_batch({"value": ["x" * 100]})

    with pytest.raises(WriteFailed, match=r"not acknowledged: .*(refused|closed)"):
        headrace.write(batches(), "away", bootstrap=node.bootstrap, batch_bytes=100, timeout_ms=300)


@pytest.mark.parametrize("seed", range(2))
def test_a_killed_node_loses_and_duplicates_nothing(node: NodeProcess, seed: int) -> None:
    create(node.bootstrap, "kept", 3)
    rows = 60_000
    data = pa.table({"id": [str(n % 997) for n in range(rows)], "value": [b"%d" % n for n in range(rows)]})
    kill_at = random.Random(seed).sample(range(5, 60), 3)
    restarts: list[threading.Thread] = []

    def batches() -> Any:
        """While batches before are on their way, the node goes and comes back."""
        for place, batch in enumerate(data.to_batches(max_chunksize=1000)):
            if place in kill_at:
                for restart in restarts:
                    restart.join()
                node.kill()
                restarts.append(threading.Thread(target=node.start))
                restarts[-1].start()
            yield batch

    try:
        delivered = headrace.write(
            batches(), "kept", bootstrap=node.bootstrap, key="id", batch_bytes=1000, budget=60_000
        )
    finally:
        for restart in restarts:
            restart.join()
    back = headrace.read("kept", bootstrap=node.bootstrap, columns=["partition", "key", "value"]).read_all()
    assert len(restarts) == 3
    assert delivered.records == rows
    assert sorted(map(int, back["value"].to_pylist())) == list(range(rows))
    latest: dict[int, int] = {}
    for row in back.to_pylist():
        assert latest.get(row["partition"], -1) < int(row["value"]), "order within a partition"
        latest[row["partition"]] = int(row["value"])
