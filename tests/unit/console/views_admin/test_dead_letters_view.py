# SPDX-License-Identifier: Apache-2.0
"""Dead letters: which records are some, what their headers say, and how their errors are counted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.client.tools.reader import ReadRecord
from headrace.console.state.model import Snapshot
from headrace.console.views.pipelines.dead_letter_sample import read_dead_letter
from tests.unit.console.views_admin.planted import NOW_MS, built, orders

OURS = (
    ("headrace.topic", b"orders"),
    ("headrace.partition", b"2"),
    ("headrace.offset", b"41"),
    ("headrace.group", b"billing"),
    ("headrace.attempts", b"3"),
)


def record(
    error: str = "ValueError: 7", offset: int = 0, headers: object = OURS, **other: object
) -> ReadRecord:
    assert isinstance(headers, tuple)
    given = ReadRecord(
        topic="orders-dlq",
        partition=0,
        offset=offset,
        timestamp_ms=NOW_MS + offset,
        append_time=False,
        key=b"k",
        value=b"\xffvalue",
        headers=(*headers, ("headrace.error", error.encode())) if error else headers,
    )
    return replace(given, **other)  # type: ignore[arg-type]


def letters() -> Snapshot:
    topics = {"orders-dlq": orders(name="orders-dlq", partitions=1), "orders": orders()}
    return Snapshot(at_ms=NOW_MS, topics=topics)


def test_the_errors_of_a_topic_are_counted_without_their_numbers() -> None:
    found = {"orders-dlq": [record("ValueError: 12", 2), record("ValueError: 7", 1), record("KeyError: 'a'")]}
    document = built("dead-letters", found, snapshot=letters())
    (topic,) = document["topics"]
    assert [(each["error"], each["count"]) for each in topic["errors"]] == [
        ("ValueError: #", 2),
        ("KeyError: 'a'", 1),
    ]
    assert (topic["sources"], topic["groups"], topic["records"]) == (["orders"], ["billing"], 1_000)
    assert topic["newest_at"] == NOW_MS + 2
    assert document["candidates"] == 2
    assert document["alarms"][0]["level"] == "warning"


def test_a_topic_of_ordinary_records_is_none_of_dead_letters() -> None:
    ordinary = {"orders": [record("", headers=(("trace", b"1"),))]}
    assert built("dead-letters", ordinary, snapshot=letters())["topics"] == []


def test_the_records_of_one_topic_say_where_they_came_from() -> None:
    found = {"orders-dlq": [record("ValueError: 12", 2), record("KeyError", 1)]}
    params = {"topic": "orders-dlq", "error": "ValueError: #"}
    (shown,) = built("dead-letters", found, params, letters())["records"]
    assert shown["origin"] == {"topic": "orders", "partition": 2, "offset": 41}
    assert (shown["attempts"], shown["maker"], shown["value_bytes"]) == (3, "Headrace", 6)
    assert shown["value"] == "\ufffdvalue"


def test_rejects_of_spark_have_a_column() -> None:
    spark = (("headrace.topic", b"orders"), ("headrace.column", b"value"), ("headrace.attempt", b"1"))
    found = read_dead_letter(record(headers=spark))
    assert found is not None
    assert (found.column, found.attempts, found.group) == ("value", 1, None)


@pytest.mark.parametrize(
    ("maker", "headers"),
    [
        (
            "Kafka Connect",
            (
                ("__connect.errors.topic", b"orders"),
                ("__connect.errors.partition", b"2"),
                ("__connect.errors.offset", b"41"),
                ("__connect.errors.exception.message", b"bad"),
            ),
        ),
        (
            "Spring",
            (
                ("kafka_dlt-original-topic", b"orders"),
                ("kafka_dlt-original-partition", (2).to_bytes(4, "big")),
                ("kafka_dlt-original-offset", (41).to_bytes(8, "big")),
                ("kafka_dlt-exception-message", b"bad"),
            ),
        ),
    ],
)
def test_dead_letters_of_others_are_known_by_their_headers(maker: str, headers: object) -> None:
    found = read_dead_letter(record("", headers=headers))
    assert found is not None
    assert (found.maker, found.error) == (maker, "bad")
    assert (found.topic, found.partition, found.offset) == ("orders", 2, 41)


@pytest.mark.parametrize("offset", [None, b"", b"many", b"9" * 40])
def test_headers_of_strangers_do_no_harm(offset: bytes | None) -> None:
    headers = (("headrace.offset", offset), ("headrace.error", b"\xff" * 5_000))
    found = read_dead_letter(record("", headers=headers))
    assert found is not None
    assert found.offset is None
    assert len(found.error) == 500
