# SPDX-License-Identifier: Apache-2.0
"""Leaders of a cluster of Apache Kafka are killed while Headrace's client reads, writes and streams."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import headrace
from headrace.cluster.engines.kafka import KafkaEngine
from tests.compat.kafka_trio import KafkaTrio
from tests.harness.groups.stream_members import StreamGroup

pytestmark = pytest.mark.compat_jvm

ROWS = 4000


@pytest.fixture(scope="module")
def trio(kafka_engine: KafkaEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaTrio]:
    with KafkaTrio(kafka_engine, tmp_path_factory.mktemp("trio")) as cluster:
        yield cluster


@pytest.fixture
def led_by_the_second(trio: KafkaTrio, topic: str) -> Iterator[str]:
    """A topic with a partition on each of the nodes that can be killed; they are all back afterwards."""
    trio.create(topic, (2, 3), (3, 2))
    yield topic
    trio.start(2)


def values(numbers: range) -> list[bytes]:
    return [b"%d " % number + b"x" * 100 for number in numbers]


def write(trio: KafkaTrio, topic: str, numbers: range, **more: Any) -> None:
    rows = pa.table({"value": values(numbers)})
    headrace.write(rows, topic, bootstrap=trio.bootstrap, partitioner="round_robin", **more)


def in_order(found: list[bytes], partition: int) -> list[bytes]:
    """Those rows that went to this one of two partitions."""
    return [value for value in found if int(value.split()[0]) % 2 == partition]


def test_a_read_goes_on_at_the_new_leader(trio: KafkaTrio, led_by_the_second: str) -> None:
    topic = led_by_the_second
    write(trio, topic, range(ROWS), batch_bytes=4000)
    reader = headrace.read(topic, bootstrap=trio.bootstrap, budget=40_000)
    found = reader.read_next_batch()["value"].to_pylist()
    assert trio.leader(topic, 0) == 2
    trio.kill(2)
    found += reader.read_all()["value"].to_pylist()
    assert trio.leader(topic, 0) == 3
    for partition in (0, 1):
        assert in_order(found, partition) == in_order(values(range(ROWS)), partition)


def test_an_idempotent_write_goes_on_at_the_new_leader(trio: KafkaTrio, led_by_the_second: str) -> None:
    """Nothing is lost, nothing is there twice, and every partition is in order."""
    topic = led_by_the_second

    def batches() -> Iterator[Any]:
        for start in range(0, ROWS, 50):
            if start == ROWS // 2:
                trio.kill(2)
            yield pa.record_batch({"value": values(range(start, start + 50))})

    schema = pa.schema({"value": pa.binary()})
    rows = pa.RecordBatchReader.from_batches(schema, batches())
    delivered = headrace.write(
        rows, topic, bootstrap=trio.bootstrap, partitioner="round_robin", batch_bytes=2000, budget=20_000
    )
    assert delivered.records == ROWS
    found = headrace.read(topic, bootstrap=trio.bootstrap).read_all()["value"].to_pylist()
    for partition in (0, 1):
        assert in_order(found, partition) == in_order(values(range(ROWS)), partition)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_goes_on_at_the_new_leaders(trio: KafkaTrio, led_by_the_second: str, protocol: str) -> None:
    """The killed node led a partition and may have coordinated the group."""
    topic = led_by_the_second
    with StreamGroup(trio.bootstrap, topic, topic, protocol=protocol, may_lose=True) as group:
        group.join("one")
        group.join("two")
        group.until_shared(1, 1)
        write(trio, topic, range(100))
        group.until_read(values(range(100)))
        killer = threading.Timer(0.05, trio.kill, [2])
        killer.start()
        write(trio, topic, range(100, ROWS), batch_bytes=2000)
        killer.join()
        group.until_read(values(range(ROWS)))
        group.until_shared(1, 1)
        assert set(group.values()) == set(values(range(ROWS)))
