# SPDX-License-Identifier: Apache-2.0
"""Keys and values as typed columns; what does not fit is named, or goes to a topic of its own."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

import headrace
from tests.harness.live.schema_registry import running_registry
from tests.spark.spark_lab import Broker, Query, message_of

FIELDS = "id BIGINT NOT NULL, name STRING, at TIMESTAMP, tags ARRAY<STRING>, place STRUCT<x: DOUBLE>"
GOOD = {"id": 7, "name": "pears", "at": "2026-01-02T03:04:05Z", "tags": ["a", "b"], "place": {"x": 1.5}}
WRONG = b'{"id": "seven"}'
AVRO: dict[str, Any] = {
    "type": "record",
    "name": "order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "kind", "type": {"type": "enum", "name": "kinds", "symbols": ["BUY", "SELL"]}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "note", "type": ["null", "string"]},
    ],
}


@pytest.fixture
def read(spark: Any, broker: Broker) -> Callable[..., Any]:
    def load(topic: str, **options: str) -> Any:
        reader = spark.read.format("headrace").options(bootstrap=broker.bootstrap, subscribe=topic)
        return reader.options(**options).load()

    return load


def write(broker: Broker, topic: str, values: list[bytes | None]) -> None:
    keys = pa.array([number.to_bytes(4, "big") for number in range(len(values))], pa.binary())
    table = pa.table({"key": keys, "value": pa.array(values, pa.binary())})
    headrace.write(table, topic, bootstrap=broker.bootstrap, key="key")


def test_json_becomes_typed_columns_and_what_does_not_fit_goes_elsewhere(
    read: Callable[..., Any], broker: Broker, new_topic: Callable[..., str]
) -> None:
    topic, rejects = new_topic(), new_topic(suffix="-rejects")
    write(broker, topic, [json.dumps(GOOD).encode(), None, b"not JSON", b'{"name": "no id"}', WRONG])
    options = {"value": "json", "valueSchema": FIELDS, "key": "int32", "columns": "key,value,offset"}
    said = message_of(lambda: read(topic, **options).collect())
    assert f"value at offset 2 of partition 0 of topic '{topic}'" in said
    assert "rejectsTopic" in said

    rows = read(topic, **options, rejectsTopic=rejects).selectExpr("key", "offset", "value.*").collect()
    first, tombstone = sorted(rows, key=lambda row: row.offset)
    assert (first.key, first.id, first.name, first.tags, first.place.x) == (0, 7, "pears", ["a", "b"], 1.5)
    assert first["at"].timestamp() == 1_767_323_045
    assert (tombstone.key, tombstone.id) == (1, None)

    letters = headrace.read(rejects, bootstrap=broker.bootstrap, columns=["value", "headers"]).read_all()
    assert letters["value"].to_pylist() == [b"not JSON", b'{"name": "no id"}', WRONG]
    headers = {each["key"]: each["value"] for each in letters["headers"][1].as_py()}
    assert headers.pop("headrace.error")
    assert headers == {
        "headrace.topic": topic.encode(),
        "headrace.partition": b"0",
        "headrace.offset": b"3",
        "headrace.column": b"value",
        "headrace.attempt": b"0",
    }


def test_rejected_records_go_to_a_table(
    read: Callable[..., Any], broker: Broker, new_topic: Callable[..., str], spark: Any, tmp_path: Path
) -> None:
    """Both partitions' tasks make the table at once; a read after that adds to it."""
    topic, table = new_topic(2), str(tmp_path / "rejects")
    bad = [b"bad %d" % number for number in range(20)]
    write(broker, topic, [json.dumps(GOOD).encode(), *bad])
    options = {"value": "json", "valueSchema": FIELDS, "columns": "value,offset", "rejectsTable": table}
    assert read(topic, **options).count() == 1
    rows = spark.read.format("headrace_delta").load(table).collect()
    assert sorted(bytes(row.bytes) for row in rows) == sorted(bad)
    assert len({(row.partition, row.offset) for row in rows}) == len(bad)
    assert {(row.topic, row.column, row.attempt, bool(row.error)) for row in rows} == {
        (topic, "value", 0, True)
    }
    assert read(topic, **options).count() == 1
    assert spark.read.format("headrace_delta").load(table).count() == 2 * len(bad)


def test_avro_becomes_typed_columns(
    read: Callable[..., Any], broker: Broker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    orders = [{"id": n, "kind": "SELL", "at": 1_700_000_000_000 + n, "note": None} for n in range(3)]
    encoded: list[bytes | None] = []
    for order in orders:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), order)
        encoded.append(out.getvalue())
    write(broker, topic, encoded)
    frame = read(topic, value="avro", valueSchema=json.dumps(AVRO), columns="value")
    assert frame.schema.simpleString() == (
        "struct<value:struct<id:bigint,kind:string,at:timestamp,note:string>>"
    )
    rows = sorted(row.value for row in frame.collect())
    assert [(row.id, row.kind, row.note) for row in rows] == [(n, "SELL", None) for n in range(3)]
    assert [round(row["at"].timestamp() * 1000) for row in rows] == [order["at"] for order in orders]


def test_avro_of_a_registry_becomes_typed_columns(
    read: Callable[..., Any], broker: Broker, new_topic: Callable[..., str]
) -> None:
    """Confluent's wire format: every record names the schema it was written with; the reader's has more."""
    topic = new_topic()
    older = {**AVRO, "fields": AVRO["fields"][:3]}
    with running_registry() as registry:
        encoded: list[bytes | None] = []
        for schema, order in (
            (older, {"id": 1, "kind": "BUY", "at": 1_700_000_000_000}),
            (AVRO, {"id": 2, "kind": "SELL", "at": 1_700_000_000_001, "note": "quick"}),
        ):
            out = io.BytesIO()
            fastavro.schemaless_writer(out, fastavro.parse_schema(schema), order)
            number = registry.add(f"{topic}-value", schema)
            encoded.append(b"\0" + number.to_bytes(4, "big") + out.getvalue())
        write(broker, topic, encoded)
        wanted = {**AVRO, "fields": [*older["fields"], {**AVRO["fields"][3], "default": None}]}
        options = {"value": "avro", "valueSchema": json.dumps(wanted), "registry": registry.address}
        rows = sorted(read(topic, **options).select("value.*").collect())
        assert [(row.id, row.kind, row.note) for row in rows] == [(1, "BUY", None), (2, "SELL", "quick")]

        write(broker, topic, [b"\0\0\0\0\x63" + b"unknown", b"no wire format"])
        said = message_of(lambda: read(topic, **options, startingOffsets=_at(topic, 2)).collect())
        assert "99" in said
        assert "value at offset 2" in said or registry.address in said


def _at(topic: str, offset: int) -> str:
    return json.dumps({topic: {"0": offset}})


def test_an_impossible_stream_is_refused_with_the_reason(spark: Any, broker: Broker, tmp_path: Path) -> None:
    query = Query(spark, broker, tmp_path, subscribe="orders", endingOffsets="latest")
    assert "'endingOffsets' is for batch reads" in message_of(query.run)
