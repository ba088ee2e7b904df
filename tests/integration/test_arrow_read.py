# SPDX-License-Identifier: Apache-2.0
"""headrace.read against a live node: what librdkafka wrote comes back as Arrow, bounded as asked."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import headrace
from headrace.client.errors import ClientError
from tests.harness.live.node import NodeProcess

PER_PARTITION = 300
START = 1_700_000_000_000


def create(bootstrap: str, topic: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(20)


def fill(bootstrap: str, topic: str, count: int = PER_PARTITION, **settings: Any) -> list[Any]:
    """Rows that librdkafka wrote: (partition, offset, timestamp, key, value, headers)."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **settings})
    rows = []
    for number in range(count):
        key = None if number % 7 == 0 else b"key-%d" % number
        value = None if number % 11 == 0 else b"the stream turns the wheel " * (number % 9)
        headers = [("trace", b"%d" % number), ("none", None)] if number % 5 == 0 else []
        producer.produce(
            topic, value, key, partition=0, timestamp=START + number * 1000, headers=headers or None
        )
        rows.append((0, number, START + number * 1000, key, value, headers))
    assert producer.flush(30) == 0
    return rows


def rows_of(table: Any) -> list[Any]:
    return [
        (
            row["partition"],
            row["offset"],
            round(row["timestamp"].timestamp() * 1000),
            row["key"],
            row["value"],
            [(header["key"], header["value"]) for header in row["headers"]],
        )
        for row in table.to_pylist()
    ]


@pytest.fixture(scope="module")
def filled(bootstrap: str) -> tuple[str, list[Any]]:
    create(bootstrap, "arrow-filled")
    return "arrow-filled", fill(bootstrap, "arrow-filled")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_librdkafka_wrote_with_any_codec_is_read(bootstrap: str, topic: str, codec: str) -> None:
    create(bootstrap, topic)
    rows = fill(bootstrap, topic, **{"compression.type": codec})
    reader = headrace.read(topic, bootstrap=bootstrap)
    assert isinstance(reader, pa.RecordBatchReader)
    table = reader.read_all()
    assert rows_of(table) == rows
    assert set(table["topic"].to_pylist()) == {topic}
    assert set(table["timestamp_type"].to_pylist()) == {0}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"start": 290}, range(290, 300)),
        ({"end": 10}, range(10)),
        ({"start": {0: 100}, "end": {0: 103}}, range(100, 103)),
        ({"start": 299, "end": 10_000}, range(299, 300)),
        ({"start": 300}, range(0)),
        ({"count": 25}, range(25)),
        ({"count": 0}, range(0)),
        ({"start": 5, "count": 2}, range(5, 7)),
        ({"start": datetime.fromtimestamp(START / 1000 + 250, UTC)}, range(250, 300)),
        ({"end": datetime.fromtimestamp(START / 1000 + 50, UTC)}, range(50)),
        ({"last": "10m"}, range(0)),
        ({"last": timedelta(days=36500)}, range(300)),
        ({"partitions": [0], "end": 3}, range(3)),
        ({"committed_only": False, "end": 3}, range(3)),
        ({"budget": 2000}, range(300)),
    ],
    ids=str,
)
def test_reads_are_bounded(bootstrap: str, filled: Any, options: Any, expected: range) -> None:
    table = headrace.read(filled[0], bootstrap=bootstrap, columns=["offset"], **options).read_all()
    assert table["offset"].to_pylist() == list(expected)


def test_many_partitions_are_read_each_in_order(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, partitions=5)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(1000):
        producer.produce(topic, b"%d" % number, partition=number % 5)
    producer.flush(30)
    table = headrace.read(topic, bootstrap=bootstrap, columns=["value", "partition", "offset"]).read_all()
    assert table.num_rows == 1000
    for partition in range(5):
        rows = table.filter(pa.compute.equal(table["partition"], partition))
        assert rows["offset"].to_pylist() == list(range(200))
        assert rows["value"].to_pylist() == [b"%d" % number for number in range(partition, 1000, 5)]


def test_asyncio_reads_the_same(bootstrap: str, filled: Any) -> None:
    async def collect() -> list[Any]:
        return [batch async for batch in headrace.aread(filled[0], bootstrap=bootstrap, end=120)]

    assert rows_of(pa.Table.from_batches(asyncio.run(collect()))) == filled[1][:120]


def test_a_selection_reads_as_a_notebook_would(bootstrap: str, filled: Any) -> None:
    selection = headrace.topic(filled[0], bootstrap=bootstrap).between(start=2).select("offset").first(3)
    assert repr(selection) == (
        f"headrace.topic('arrow-filled', bootstrap={bootstrap!r}, start=2, columns=['offset'], count=3)"
    )
    assert selection.to_arrow()["offset"].to_pylist() == [2, 3, 4]
    assert pa.table(selection)["offset"].to_pylist() == [2, 3, 4]
    assert selection.last("5m").to_arrow().num_rows == 0


def test_a_reader_that_is_dropped_ends_its_thread(bootstrap: str, filled: Any) -> None:
    reader = headrace.read(filled[0], bootstrap=bootstrap, budget=2000)
    assert any(thread.name.startswith("headrace-read") for thread in threading.enumerate())
    reader.read_next_batch()
    del reader
    assert not any(thread.name.startswith("headrace-read") for thread in threading.enumerate())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": "not-there"}, "topic 'not-there' does not exist; list them: headrace topics list"),
        ({"partitions": [3]}, "has no partition 3"),
        ({"columns": ["valeu"]}, "'valeu' is not a column"),
        ({"last": "ten minutes"}, "is not a duration; write it like"),
        ({"last": "10m", "start": 3}, "give one of them"),
        ({"bootstrap": "127.0.0.1:1"}, "no Kafka broker can be reached.*refused.*headrace serve"),
    ],
    ids=str,
)
def test_invalid_read_requests_are_refused_at_once(
    bootstrap: str, filled: Any, options: Any, message: str
) -> None:
    arguments = {"topic": filled[0], "bootstrap": bootstrap, **options}
    with pytest.raises(ClientError, match=message):
        headrace.read(**arguments)


def test_a_read_goes_on_when_the_node_is_killed_and_comes_back(node: NodeProcess) -> None:
    create(node.bootstrap, "long")
    rows = fill(node.bootstrap, "long", 3000, **{"batch.num.messages": 100})
    reader = headrace.read("long", bootstrap=node.bootstrap, budget=20_000)
    batches = [reader.read_next_batch()]
    node.kill()
    restart = threading.Timer(0.5, node.start)
    restart.start()
    batches += list(reader)
    restart.join()
    assert len(batches) > 3
    assert rows_of(pa.Table.from_batches(batches)) == rows


def test_a_read_gives_up_with_the_reason_when_the_node_stays_away(node: NodeProcess) -> None:
    create(node.bootstrap, "short")
    fill(node.bootstrap, "short", 3000, **{"batch.num.messages": 100})
    reader = headrace.read("short", bootstrap=node.bootstrap, budget=20_000, timeout_ms=300)
    node.kill()
    with pytest.raises(ClientError, match=r"127\.0\.0\.1"):
        reader.read_all()


def test_a_topic_deleted_while_it_is_read_is_an_error(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    fill(bootstrap, topic, 3000, **{"batch.num.messages": 100})
    reader = headrace.read(topic, bootstrap=bootstrap, budget=20_000, timeout_ms=500)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(20)
    with pytest.raises(ClientError, match=f"{topic}.*(does not exist|unknown_topic)"):
        reader.read_all()


def run_python(program: str, *options: str) -> str:
    command = [sys.executable, *options, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_importing_headrace_loads_nothing_heavy() -> None:
    assert (
        run_python("import headrace, sys; print('numpy' in sys.modules, 'kio' in sys.modules)")
        == "False False\n"
    )


def test_without_the_extra_read_names_it() -> None:
    program = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "import headrace\n"
        "try: headrace.read('orders')\n"
        "except ImportError as error: print(error)"
    )
    assert run_python(program) == "headrace.read needs pyarrow: pip install headrace[arrow]\n"


def test_a_read_of_all_goes_on_where_the_log_begins_after_retention_took_its_beginning(
    bootstrap: str, topic: str
) -> None:
    create(bootstrap, topic)
    for _ in range(4):  # a producer's batches: more than the budget lets be fetched ahead
        fill(bootstrap, topic)
    reader = headrace.read(topic, bootstrap=bootstrap, columns=["offset"], budget=1)
    first = reader.read_next_batch()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, 4 * PER_PARTITION - 1)]).values()
    deleted.result(20)
    offsets = first["offset"].to_pylist() + reader.read_all()["offset"].to_pylist()
    assert offsets[-1] == 4 * PER_PARTITION - 1
    assert len(offsets) == len(set(offsets)) < 4 * PER_PARTITION
