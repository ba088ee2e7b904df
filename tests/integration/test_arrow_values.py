# SPDX-License-Identifier: Apache-2.0
"""Typed values against a live node: JSON, Avro, numbers, from and to other clients, with a registry."""

from __future__ import annotations

import asyncio
import io
import json
import struct
from collections.abc import Iterator
from typing import Any

import fastavro
import kafka
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.serialization import DoubleSerializer, IntegerDeserializer, StringSerializer

import headrace
from headrace.client.errors import ClientError
from tests.harness.live.schema_registry import SchemaRegistry, basic, running_registry

ORDERS: list[Any] = [
    {
        "id": number,
        "item": {"name": f"pear {number}", "size": None if number % 3 else number / 4},
        "tags": ["a"],
    }
    for number in range(50)
]
OLD = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
NEW = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "count", "type": "int", "default": 7},
    ],
}


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with running_registry() as running:
        yield running


def create(bootstrap: str, topic: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(20)


def produce(bootstrap: str, topic: str, *values: bytes | None, keys: list[bytes] | None = None) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number, value in enumerate(values):
        producer.produce(topic, value, keys[number] if keys else None, partition=0)
    assert producer.flush(30) == 0


def as_avro(schema: Any, value: Any, schema_id: int | None = None) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(dict(schema)), value)
    return (b"" if schema_id is None else b"\0" + schema_id.to_bytes(4, "big")) + out.getvalue()


def consumed(bootstrap: str, topic: str, count: int) -> list[Any]:
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, consumer_timeout_ms=10_000)
    consumer.assign([kafka.TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    found = [next(consumer) for _ in range(count)]
    consumer.close()
    return found


def test_json_by_a_sample(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, *(json.dumps(order).encode() for order in ORDERS), None)
    reader = headrace.read(topic, bootstrap=bootstrap, columns=["value", "offset"], value="json")
    assert str(reader.schema.field("value").type) == (
        "struct<id: int64, item: struct<name: string, size: double>, tags: list<item: string>>"
    )
    table = reader.read_all()
    assert table["value"].to_pylist() == [*ORDERS, None]
    assert table["offset"].to_pylist() == list(range(51))


def test_json_by_a_schema_with_bad_records_set_aside(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, b'{"id": 1, "x": [1]}', b"oops", b'{"id": "2"}', b'{"id": 3}')
    form = headrace.Json(pa.schema({"id": pa.int32()}))
    rejects = headrace.Rejects()
    reader = headrace.read(topic, bootstrap=bootstrap, value=form, rejects=rejects)
    assert reader.read_all()["value"].to_pylist() == [{"id": 1}, {"id": 3}]
    (oops, text) = rejects.to_arrow().to_pylist()
    assert (oops["offset"], oops["bytes"], oops["error"]) == (1, b"oops", "not JSON, at byte 0")
    assert (text["offset"], text["bytes"]) == (2, b'{"id": "2"}')
    assert text["error"].startswith("not of type int32, at field 'id'")
    with pytest.raises(ClientError, match=rf"value at offset 1 of partition 0 of topic '{topic}': not JSON"):
        headrace.read(topic, bootstrap=bootstrap, value=form).read_all()


def test_a_topic_without_records_has_a_schema_all_the_same(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    table = headrace.read(topic, bootstrap=bootstrap, key="string", value="json").read_all()
    assert (table.num_rows, str(table.schema.field("key").type)) == (0, "string")


def test_asyncio_and_streams_read_json_too(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, *(json.dumps(order).encode() for order in ORDERS))

    async def collect() -> list[Any]:
        return [batch async for batch in headrace.aread(topic, bootstrap=bootstrap, value="json")]

    assert pa.Table.from_batches(asyncio.run(collect()))["value"].to_pylist() == ORDERS
    with headrace.stream(topic, bootstrap=bootstrap, start="earliest", value="json") as stream:
        assert next(stream)["value"].to_pylist() == ORDERS


def test_objects_are_written_as_json_that_other_clients_read(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    table = pa.Table.from_pylist(ORDERS)
    delivered = headrace.write(table, topic, bootstrap=bootstrap, key="id", value=["id", "item", "tags"])
    assert delivered.records == 50
    found = consumed(bootstrap, topic, 50)
    assert [json.loads(each.value) for each in found] == ORDERS
    assert [each.key for each in found] == [struct.pack(">q", number) for number in range(50)]
    back = headrace.read(topic, bootstrap=bootstrap, key="int64", value="json").read_all()
    assert back["value"].to_pylist() == ORDERS
    assert back["key"].to_pylist() == list(range(50))


def test_numbers_and_texts_are_those_of_confluents_serializers(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, DoubleSerializer()(1.5), keys=[StringSerializer()("ü")])
    table = headrace.read(topic, bootstrap=bootstrap, key="string", value="float64").read_all()
    assert table.select(["key", "value"]).to_pylist() == [{"key": "ü", "value": 1.5}]
    numbers = pa.table({"n": pa.array([1, -2], pa.int32())})
    headrace.write(
        numbers,
        topic,
        bootstrap=bootstrap,
        key="n",
        value="n",
        value_format="string",
        partitioner="round_robin",
    )
    found = consumed(bootstrap, topic, 3)[1:]
    assert [IntegerDeserializer()(each.key) for each in found] == [1, -2]
    assert [each.value for each in found] == [b"1", b"-2"]


def test_a_row_that_cannot_be_written_is_named_by_its_number(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    batches = [pa.record_batch({"n": pa.array([1] * 10)}), pa.record_batch({"n": pa.array([2, 1 << 40])})]
    with pytest.raises(ClientError, match="row 11: 1099511627776 in column 'n' does not fit int32"):
        headrace.write(batches, topic, bootstrap=bootstrap, value="n", value_format="int32")


def test_bare_avro(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, as_avro(OLD, {"id": 1}), b"\xff", as_avro(OLD, {"id": 2}), None)
    rejects = headrace.Rejects()
    table = headrace.read(topic, bootstrap=bootstrap, value=headrace.Avro(OLD), rejects=rejects).read_all()
    assert table["value"].to_pylist() == [{"id": 1}, {"id": 2}, None]
    (error,) = rejects.to_arrow()["error"].to_pylist()
    assert error.startswith("Avro that breaks off, at field 'id'")


def test_avro_with_a_registry_as_its_schema_grows(
    bootstrap: str, topic: str, registry: SchemaRegistry
) -> None:
    create(bootstrap, topic)
    old, new = registry.add(f"{topic}-value", OLD), registry.add(f"{topic}-value", NEW)
    other = registry.add("other", "syntax = proto3", schemaType="PROTOBUF")
    produce(
        bootstrap,
        topic,
        as_avro(OLD, {"id": 1}, old),
        as_avro(NEW, {"id": 2, "note": "x", "count": 3}, new),
        None,
        as_avro(OLD, {"id": 4}, 99),
        b"short",
        as_avro(OLD, {"id": 5}, other),
        as_avro(OLD, {"id": 6}, old),
    )
    rejects = headrace.Rejects()
    address = registry.address.replace("//", f"//{'registrar:s3cret%2F'}@")
    table = headrace.read(
        topic, bootstrap=bootstrap, value=headrace.Avro(registry=address), rejects=rejects
    ).read_all()
    assert table["value"].to_pylist() == [
        {"id": 1, "note": None, "count": 7},
        {"id": 2, "note": "x", "count": 3},
        None,
        {"id": 6, "note": None, "count": 7},
    ]
    errors = {row["offset"]: row["error"] for row in rejects.to_arrow().to_pylist()}
    assert errors == {
        3: "schema 99 is not in the registry as Avro",
        4: "5 bytes that do not begin with a zero byte and a schema's id",
        5: f"schema {other} is not in the registry as Avro",
    }
    assert registry.authorized == {basic("registrar:s3cret/")}
    assert registry.calls.count(f"/schemas/ids/{old}") == 1


def test_avro_read_as_a_schema_of_ones_own_or_the_newest_of_a_subject(
    bootstrap: str, topic: str, registry: SchemaRegistry
) -> None:
    create(bootstrap, topic)
    old = registry.add("orders", OLD)
    new = registry.add("orders", NEW)
    produce(bootstrap, topic, as_avro(OLD, {"id": 1}, old))
    rows = {"id": 1, "note": None, "count": 7}
    for form in (
        headrace.Avro(NEW, registry=registry.address),
        headrace.Avro(registry=registry.address, subject="orders"),
    ):
        assert headrace.read(topic, bootstrap=bootstrap, value=form).read_all()["value"].to_pylist() == [rows]
    produce(bootstrap, topic, as_avro(NEW, {"id": 2, "note": None, "count": 0}, new))
    rejects = headrace.Rejects()
    form = headrace.Avro(OLD, registry=registry.address)
    table = headrace.read(topic, bootstrap=bootstrap, value=form, rejects=rejects).read_all()
    assert table["value"].to_pylist() == [{"id": 1}]
    assert rejects.to_arrow()["error"].to_pylist() == [
        f"schema {new} is not that of this read: field 'id': long cannot be read as int"
    ]


def test_avro_of_a_subject_with_another_name(bootstrap: str, topic: str, registry: SchemaRegistry) -> None:
    """Found by the records themselves: the newest that they have is what all are read as."""
    create(bootstrap, topic)
    old, new = registry.add("shop.Order", OLD), registry.add("shop.Order", NEW)
    values = [as_avro(NEW, {"id": 1, "note": "x", "count": 1}, new), as_avro(OLD, {"id": 2}, old)]
    produce(bootstrap, topic, *values)
    form = headrace.Avro(registry=registry.address)
    table = headrace.read(topic, bootstrap=bootstrap, value=form).read_all()
    assert table["value"].to_pylist() == [
        {"id": 1, "note": "x", "count": 1},
        {"id": 2, "note": None, "count": 7},
    ]


def test_the_newest_schema_counts_even_if_the_first_records_are_older(
    bootstrap: str, topic: str, registry: SchemaRegistry
) -> None:
    create(bootstrap, topic)
    old = registry.add(f"{topic}-value", OLD)
    registry.add(f"{topic}-value", NEW)
    produce(bootstrap, topic, as_avro(OLD, {"id": 1}, old))
    reader = headrace.read(topic, bootstrap=bootstrap, value=headrace.Avro(registry=registry.address))
    assert [field.name for field in reader.schema.field("value").type] == ["id", "note", "count"]


def test_schemas_that_refer_to_others(bootstrap: str, topic: str, registry: SchemaRegistry) -> None:
    create(bootstrap, topic)
    registry.add("order", OLD)
    basket = {"type": "record", "name": "Basket", "fields": [{"name": "order", "type": "Order"}]}
    reference = [{"name": "Order", "subject": "order", "version": 1}]
    number = registry.add(f"{topic}-value", basket, references=reference)
    whole = {**basket, "fields": [{"name": "order", "type": OLD}]}
    produce(bootstrap, topic, as_avro(whole, {"order": {"id": 3}}, number))
    form = headrace.Avro(registry=registry.address)
    table = headrace.read(topic, bootstrap=bootstrap, value=form).read_all()
    assert table["value"].to_pylist() == [{"order": {"id": 3}}]


def test_avro_is_written_with_its_schema_registered(
    bootstrap: str, topic: str, registry: SchemaRegistry
) -> None:
    create(bootstrap, topic)
    form = headrace.Avro(registry=registry.address)
    table = pa.Table.from_pylist(ORDERS)
    headrace.write(
        table,
        topic,
        bootstrap=bootstrap,
        key=["id"],
        key_format="avro",
        value=["id", "item"],
        value_format=form,
    )
    (number,) = registry.subjects[f"{topic}-value"]
    schema = fastavro.parse_schema(json.loads(registry.schemas[number]["schema"]))
    found = consumed(bootstrap, topic, 50)
    assert {each.value[:5] for each in found} == {b"\0" + number.to_bytes(4, "big")}
    values = [fastavro.schemaless_reader(io.BytesIO(each.value[5:]), schema, None) for each in found]
    assert values == [{"id": order["id"], "item": order["item"]} for order in ORDERS]
    back = headrace.read(topic, bootstrap=bootstrap, value=form).read_all()
    assert back["value"].to_pylist() == values


@pytest.mark.parametrize(
    ("form", "why"),
    [
        ("avro", "to read values as Avro takes their schema; give headrace.Avro"),
        (headrace.Avro(registry="http://127.0.0.1:1"), "no schema registry answers at http://127.0.0.1:1"),
        (headrace.Json("x"), "'x' is not a schema"),
        ("xml", "'xml' is not a format"),
    ],
    ids=str,
)
def test_a_missing_dependency_is_reported(bootstrap: str, topic: str, form: Any, why: str) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, b"\0\0\0\0\1rest")
    with pytest.raises(ClientError, match=why):
        headrace.read(topic, bootstrap=bootstrap, value=form)
