# SPDX-License-Identifier: Apache-2.0
"""Confluent's own Avro serializers and the Arrow client read each other, by a registry between them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import headrace
from headrace.cluster.engines.kafka import KafkaEngine
from tests.compat.test_karapace import ROUND_TRIP, make_environment
from tests.harness.live.raw_client import RawClient
from tests.harness.live.schema_registry import SchemaRegistry, running_registry

pytestmark = pytest.mark.compat_jvm
READ_BACK = ROUND_TRIP.with_name("read_back.py")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an environment with confluent-kafka's Avro; skips when it is not to be had."""
    return make_environment(tmp_path_factory.mktemp("avro") / "client", "confluent-kafka[avro]") / "python"


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with running_registry() as running:
        yield running


def run(python: Path, program: Path, *arguments: str) -> list[Any]:
    command = [str(python), str(program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_what_confluent_wrote_is_read(
    python: Path, registry: SchemaRegistry, bootstrap: str, topic: str
) -> None:
    with RawClient(bootstrap) as admin:
        admin.create_topic(topic)
    (outcome,) = run(python, ROUND_TRIP, bootstrap, registry.address, topic)
    assert outcome == {"same": True, "subjects": [f"{topic}-value"]}
    form = headrace.Avro(registry=registry.address)
    table = headrace.read(topic, bootstrap=bootstrap, value=form).read_all()
    assert table["value"].to_pylist() == [{"id": number, "what": f"thing {number}"} for number in range(50)]


def test_what_we_write_confluent_reads(
    python: Path, registry: SchemaRegistry, bootstrap: str, topic: str
) -> None:
    with RawClient(bootstrap) as admin:
        admin.create_topic(topic)
    rows = [
        {
            "id": number,
            "note": None if number % 2 else f"note {number}",
            "at": {"zip": number, "tags": ["a", None]},
            "cost": Decimal("1.25") * number,
            "when": datetime(2026, 11, 15, 12, 0, number, tzinfo=UTC),
        }
        for number in range(10)
    ]
    form = headrace.Avro(registry=registry.address)
    headrace.write(
        pa.Table.from_pylist(rows), topic, bootstrap=bootstrap, value=list(rows[0]), value_format=form
    )
    found = run(python, READ_BACK, bootstrap, registry.address, topic, str(len(rows)))
    assert found == [json.loads(json.dumps(row, default=str)) for row in rows]


def test_typed_values_go_through_apache_kafka(
    kafka_engine: KafkaEngine, registry: SchemaRegistry, tmp_path: Path, topic: str
) -> None:
    rows = [{"id": number, "item": {"name": f"pear {number}", "price": number / 4}} for number in range(100)]
    table = pa.Table.from_pylist(rows)
    form = headrace.Avro(registry=registry.address)
    with kafka_engine.start(tmp_path, {}) as node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        for created in admin.create_topics(
            [NewTopic(f"{topic}-{kind}", 2, 1) for kind in ("j", "a")]
        ).values():
            created.result(30)
        for kind, written in (("j", "json"), ("a", form)):
            headrace.write(
                table,
                f"{topic}-{kind}",
                bootstrap=node.bootstrap,
                key="id",
                value=["id", "item"],
                value_format=written,
                compression="zstd",
            )
            back = headrace.topic(f"{topic}-{kind}", bootstrap=node.bootstrap).typed(
                key="int64", value=written
            )
            found = back.to_arrow().sort_by("key")
            assert found["key"].to_pylist() == list(range(100))
            assert found["value"].to_pylist() == rows
            assert sum(each.end - each.start for each in back.extent()) == 100
