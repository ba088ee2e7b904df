# SPDX-License-Identifier: Apache-2.0
"""Key ranges hold for every producer: ours load them, and a topic that enforces them refuses the others'."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewPartitions

import headrace
from headrace.client.errors import ClientError
from headrace.client.partitioning.stored_ranges import STORE_TOPIC, StoredRanges
from headrace.client.tools.admin import Admin
from headrace.client.tools.partitioner_store import PartitionerStore
from headrace.key_ranges import parse_ranges
from headrace.wire.error_codes import ErrorCode
from headrace.wire.records import Record, build_batch
from tests.harness.live.node import NodeProcess
from tests.harness.live.raw_client import RawClient

RANGES = "A..M,N..Z"
PEOPLE = ["Anna", "Zoe", "Mia", "Nils", "Otto"]
PLACES = {(0, b"Anna"), (0, b"Mia"), (1, b"Zoe"), (1, b"Nils"), (1, b"Otto")}

pytestmark = pytest.mark.row("D5")


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with NodeProcess(tmp_path_factory.mktemp("ranges")) as node:
        yield node.bootstrap


def create(bootstrap: str, topic: str, **configs: str) -> None:
    ranges = {"headrace.partitioner.ranges": RANGES}
    Admin(bootstrap).create_topic(topic, partitions=2, configs=ranges | configs)


def people() -> Any:
    return pa.table({"name": PEOPLE, "value": [name.lower() for name in PEOPLE]})


def places(bootstrap: str, topic: str) -> set[tuple[int, bytes]]:
    rows = headrace.read(topic, bootstrap=bootstrap, columns=["partition", "key"]).read_all().to_pylist()
    return {(row["partition"], row["key"]) for row in rows}


def test_write_partitions_by_the_ranges_of_the_topic(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    headrace.write(people(), topic, bootstrap=bootstrap, key="name")
    assert places(bootstrap, topic) == PLACES
    with pytest.raises(ClientError, match="row 1: key '1' is outside every range"):
        headrace.write(pa.table({"k": ["A", "1"]}), topic, bootstrap=bootstrap, key="k", value=None)
    with pytest.raises(ClientError, match="records without a key have no place in key ranges"):
        headrace.write(people(), topic, bootstrap=bootstrap, value="value")


def test_write_finds_ranges_where_other_brokers_keep_them(bootstrap: str, topic: str) -> None:
    """In the compacted topic that stands in for configs that Apache Kafka does not take."""
    admin = Admin(bootstrap)
    admin.create_topic(topic, partitions=2)
    ranges = parse_ranges(RANGES)
    stored = StoredRanges(topic_id=admin.describe_topic(topic).topic_id, ranges=ranges)
    if not admin.topic_exists(STORE_TOPIC):
        admin.create_topic(STORE_TOPIC, partitions=1, configs={"cleanup.policy": "compact"})
    record = pa.table({"key": [topic], "value": [stored.to_json()]})
    headrace.write(record, STORE_TOPIC, bootstrap=bootstrap, key="key")
    headrace.write(people(), topic, bootstrap=bootstrap, key="name")
    assert places(bootstrap, topic) == PLACES
    assert PartitionerStore(bootstrap, admin).load(topic, stored.topic_id) == stored


def test_a_named_partitioner_or_partition_goes_before_the_ranges(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    table = people().append_column("to", pa.array([1] * len(PEOPLE), pa.int32()))
    headrace.write(table, topic, bootstrap=bootstrap, key="name", partition="to")
    delivered = headrace.write(table, topic, bootstrap=bootstrap, key="name", partitioner="round_robin")
    assert sorted(each.records for each in delivered.partitions.values()) == [2, 3]
    assert {place for place, _ in places(bootstrap, topic)} == {0, 1}


def test_the_store_keeps_ranges_in_the_configs_of_the_topic(bootstrap: str, topic: str) -> None:
    admin = Admin(bootstrap)
    admin.create_topic(topic, partitions=2)
    store = PartitionerStore(bootstrap, admin)
    topic_id = admin.describe_topic(topic).topic_id
    assert store.load(topic, topic_id) is None
    stored = store.save(topic, topic_id, parse_ranges(RANGES), "nearest")
    assert store.load(topic, topic_id) == stored
    configs = {each.name: (each.value, each.source) for each in admin.configs("topic", topic)}
    assert configs["headrace.partitioner.ranges"] == (RANGES, "topic")
    assert configs["headrace.partitioner.outside"] == ("nearest", "topic")
    assert configs["headrace.partitioner"] == ("client", "default")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_foreign_client_cannot_break_enforced_ranges(bootstrap: str, topic: str, codec: str) -> None:
    create(bootstrap, topic, **{"headrace.partitioner": "enforce"})
    headrace.write(people(), topic, bootstrap=bootstrap, key="name", compression=codec)
    failures: dict[bytes, Any] = {}

    def reported(error: Any, message: Any) -> None:
        if error is not None:
            failures[message.value()] = error

    settings = {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 50}
    producer = Producer(settings)
    for value, key, partition in ((b"right", "Bert", 0), (b"also right", "Olga", 1)):
        producer.produce(topic, value, key, partition=partition, on_delivery=reported)
    producer.flush(20)
    for value, key in ((b"wrong", "Olga"), (b"without", None)):
        producer.produce(topic, value, key, partition=0, on_delivery=reported)
        producer.flush(20)
    assert {value: error.code() for value, error in failures.items()} == {
        b"wrong": KafkaError.INVALID_RECORD,
        b"without": KafkaError.INVALID_RECORD,
    }
    assert places(bootstrap, topic) == PLACES | {(0, b"Bert"), (1, b"Olga")}


def test_the_reply_names_the_record_its_key_and_where_it_belongs(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, **{"headrace.partitioner": "enforce"})
    batch = bytes(build_batch([Record(n, 1, key, b"v") for n, key in enumerate((b"Anna", b"Otto"))]))
    with RawClient(bootstrap) as client:
        data = [{"index": 0, "records": batch}]
        fields = {"transactional_id": None, "acks": -1, "timeout": 30_000}
        reply = client.call(0, 8, fields | {"topic_data": [{"name": topic, "partition_data": data}]})
        (result,) = reply.responses[0].partition_responses
        assert result.error_code is ErrorCode.invalid_record
        assert result.error_message.startswith("record 1: key 'Otto' belongs to partition 1, not 0; 1 of 2")
        assert [each.batch_index for each in result.record_errors] == [1]
        assert client.end_offset(topic) == 0


def test_new_partitions_take_nothing_until_they_have_a_range(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, **{"headrace.partitioner": "enforce"})
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(20)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": False})
    failures: list[Any] = []
    producer.produce(topic, b"v", "Zoe", partition=2, on_delivery=lambda error, _: failures.append(error))
    producer.flush(20)
    assert [error.code() for error in failures] == [KafkaError.INVALID_RECORD]
    with pytest.raises(ClientError, match="the topic has 3 partitions but 2 key ranges"):
        headrace.write(people(), topic, bootstrap=bootstrap, key="name")
    Admin(bootstrap).alter_configs("topic", topic, values={"headrace.partitioner.ranges": "A..M,N..P,Q..Z"})
    headrace.write(people(), topic, bootstrap=bootstrap, key="name")
    assert (2, b"Zoe") in places(bootstrap, topic)


def test_enforce_without_ranges_is_refused_with_the_fix(bootstrap: str, topic: str) -> None:
    admin = Admin(bootstrap)
    admin.create_topic(topic, partitions=2)
    with pytest.raises(ClientError, match="enforce needs key ranges: set headrace"):
        admin.alter_configs("topic", topic, values={"headrace.partitioner": "enforce"})
