# SPDX-License-Identifier: Apache-2.0
"""What a table says of how its rows were made, and where a user's own table is found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.client.errors import ClientError
from headrace.pipelines.definitions.definition import Source, Store
from headrace.pipelines.jobs.store_record import StoreRecord, read_record
from headrace.pipelines.tables.topic_table import path_on_this_machine

STORE = Store(
    name="orders",
    group="orders",
    checkpoint=Path(),
    path="/data/orders",
    time="at",
    source=Source(
        bootstrap="kafka.internal:9092",
        topics=("orders",),
        value="avro",
        key="string",
        schema="{}",
        registry="http://user:secret@registry",
        options={"kafka.isolation.level": "read_uncommitted", "kafka.sasl.password": "secret"},
    ),
)


def test_it_comes_back_and_holds_neither_addresses_nor_logins() -> None:
    record = StoreRecord.of(STORE, zone="UTC")
    text = record.to_text()
    assert read_record(text) == record
    assert (record.isolation, record.registry, record.rejects) == ("read_uncommitted", True, False)
    assert "secret" not in text
    assert "kafka.internal" not in text


def test_other_texts_are_no_record() -> None:
    for text in (None, "", "a note", "[]", "{}", '{"headrace.store": {"version": 1}}'):
        assert read_record(text) is None


def test_a_record_of_a_later_release_is_refused() -> None:
    with pytest.raises(ClientError, match="has format 2, written by a newer Headrace"):
        read_record('{"headrace.store": {"version": 2}}')


def test_a_users_own_table_is_found_by_its_topic(tmp_path: Path) -> None:
    def claim(name: str, **identity: object) -> None:
        (tmp_path / name).mkdir()
        document = {"kind": "store", "format": "delta", "topic": ["orders"], **identity}
        (tmp_path / name / "headrace-pipeline.json").write_text(json.dumps(document))

    with pytest.raises(ClientError, match="no pipeline of this user on this machine stores topic 'orders'"):
        path_on_this_machine(["orders"], tmp_path)
    claim("a", path="/data/a")
    claim("b", path="/data/b", topic=["others"])
    claim("c", path="/data/c", format="parquet")
    claim("d", path="/data/d", kind="analyze")
    assert path_on_this_machine(["orders"], tmp_path) == "/data/a"
    claim("e", path="/data/e")
    with pytest.raises(ClientError, match="several tables: /data/a, /data/e"):
        path_on_this_machine(["orders"], tmp_path)
