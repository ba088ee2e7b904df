# SPDX-License-Identifier: Apache-2.0
"""headrace.write of every kind of frame, on a broker in this process: what is read can be written again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import headrace
from headrace.client.errors import ClientError
from headrace.testing import Broker

PARTS = ["key", "value", "headers", "timestamp", "partition"]
FRAMES: dict[str, Callable[[str], Any]] = {
    "reader": headrace.read,
    "selection": headrace.topic,
    "table": lambda name: headrace.read(name).read_all(),
    "pandas": lambda name: headrace.topic(name).to_pandas(),
    "polars": lambda name: headrace.topic(name).to_polars(),
    "lazy polars": lambda name: headrace.topic(name).to_polars().lazy(),
    "DuckDB": lambda name: headrace.topic(name).to_duckdb(),
    "dicts": lambda name: headrace.read(name).read_all().to_pylist(),
}


@pytest.fixture(autouse=True)
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """Found by HEADRACE_BOOTSTRAP: no call below names it."""
    with Broker() as broker:
        monkeypatch.setenv("HEADRACE_BOOTSTRAP", broker.bootstrap)
        yield broker


def any_rows(seed: int, rows: int = 200) -> list[dict[str, Any]]:
    chance = random.Random(seed)

    def some(size: int) -> bytes | None:
        return None if chance.random() < 0.2 else chance.randbytes(chance.randrange(size))

    began = datetime(2026, 1, 1, tzinfo=UTC)
    return [
        {
            "key": some(8),
            "value": some(50),
            "headers": [(f"h{n}", some(5)) for n in range(chance.randrange(3))],
            "timestamp": began + timedelta(milliseconds=chance.randrange(10**9)),
            "partition": chance.randrange(3),
        }
        for _ in range(rows)
    ]


def content(topic: str) -> list[dict[str, Any]]:
    return sorted(headrace.read(topic, columns=[*PARTS, "offset"]).read_all().to_pylist(), key=_place)


def _place(row: dict[str, Any]) -> tuple[int, int]:
    return row["partition"], row["offset"]


@pytest.mark.parametrize("seed", range(3))
def test_what_is_read_can_be_written_again(seed: int) -> None:
    """Keys, headers, timestamps, partitions and null values come back, from every kind of frame."""
    rows = any_rows(seed)
    headrace.write(rows, "source", create=3)
    expected = content("source")
    assert len(expected) == len(rows)
    assert {row["value"] for row in expected} == {row["value"] for row in rows}
    for kind, frame in FRAMES.items():
        headrace.write(frame("source"), f"copy-{seed}", create=3)
        assert content(f"copy-{seed}") == expected, kind
        with headrace.Admin() as admin:
            admin.delete_topic(f"copy-{seed}")


def test_a_partitioner_wins_over_the_column_partition() -> None:
    headrace.write([{"value": "a", "partition": 2}], "source", create=3)
    copied = headrace.write(headrace.read("source"), "copy", create=1, partitioner="hash")
    assert copied.partitions[0].records == 1
    with pytest.raises(ClientError, match=r"row 0: partition 2 does not exist: .*leave the column"):
        headrace.write(headrace.read("source"), "copy")


def test_rows_become_one_json_value(broker: Broker) -> None:
    import pandas as pd

    headrace.write(pd.DataFrame({"key": ["ann"], "item": ["fig"], "price": [0.5]}), "orders")
    (row,) = headrace.read("orders", key="string", value="json").read_all().to_pylist()
    assert (row["key"], row["value"]) == ("ann", {"item": "fig", "price": 0.5})


def test_awrite_and_a_transaction_take_the_same() -> None:
    delivered = asyncio.run(headrace.awrite([{"id": 1}], "orders"))
    assert delivered.records == 1
    with headrace.transaction("copier") as transaction:
        transaction.write([{"id": 2}], "orders")
        transaction.write(headrace.read("orders"), "copies")
    values = headrace.read("copies", value="string").read_all()["value"].to_pylist()
    assert values == ['{"id":1}']


def test_a_missing_topic_is_created_as_create_says(broker: Broker) -> None:
    rows = [{"value": "a"}]
    with pytest.raises(headrace.NoSuchTopic, match="topic 'orders' does not exist"):
        headrace.write(rows, "orders", create=False)
    assert headrace.write(rows, "orders").records == 1
    assert headrace.write(rows, "orders", create=False).records == 1
    headrace.write(rows, "four", create=4)
    headrace.write(rows, "four", create=2)  # it exists
    with headrace.Admin() as admin:
        assert [(each.name, each.partitions) for each in admin.topics()] == [("four", 4), ("orders", 1)]


def test_a_broker_that_creates_no_topics_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.client.topic_creation._BROKER_CREATES_MS", 100)
    with Broker(settings={"auto.create.topics.enable": "false"}) as strict:
        monkeypatch.setenv("HEADRACE_BOOTSTRAP", strict.bootstrap)
        with pytest.raises(headrace.NoSuchTopic, match=r"does not create topics by itself; .*create=True"):
            headrace.write([{"value": "a"}], "orders")
        assert headrace.write([{"value": "a"}], "orders", create=True).records == 1
        with pytest.raises(ClientError, match="'no/good' cannot be a topic's name"):
            headrace.write([{"value": "a"}], "no/good")


def test_a_selection_has_a_length() -> None:
    headrace.write(pa.table({"value": [str(n) for n in range(10)]}), "orders")
    orders = headrace.topic("orders")
    assert len(orders) == len(orders.last("10m")) == 10
    assert (len(orders.first(3)), len(orders.between(4, 9)), len(orders.between(10))) == (3, 5, 0)
    assert not orders.between(10)


def test_the_length_counts_offsets_and_so_the_markers_of_transactions() -> None:
    for n in range(2):
        headrace.write([{"value": str(n)}], "orders", transactional_id="writer")
    orders = headrace.topic("orders")
    assert (len(orders), orders.to_arrow().num_rows) == (4, 2)


@pytest.mark.parametrize(
    ("topic", "options", "said"),
    [
        (5, {}, "topic=5 is not a topic's name"),
        ("orders", {"last": 5}, "5 is not a duration; write it like 30s"),
        ("orders", {"bootstrap": ["a:1"]}, r"bootstrap=\['a:1'\] is not text"),
        ("orders", {"bootstrap": ""}, 'no bootstrap address was given; give bootstrap="HOST:PORT"'),
        ("orders", {}, "topic 'orders' does not exist"),
    ],
)
def test_a_read_that_cannot_be_says_why(topic: Any, options: Any, said: str) -> None:
    with pytest.raises(ClientError, match=said):
        headrace.read(topic, **options)


def test_a_transform_does_not_lose_the_columns_that_it_made() -> None:
    headrace.write([{"value": "a"}], "orders")
    with pytest.raises(headrace.TransformFailed, match="would be written without 'size'"):
        headrace.transform(
            "orders",
            "sizes",
            lambda batch: batch.append_column("size", pa.array([1] * batch.num_rows)),
            group="sizes",
            until="end",
        )
