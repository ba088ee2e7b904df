# SPDX-License-Identifier: Apache-2.0
"""Records as the console's pages get them, from a live node: paging, filters, transactions, bounds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from typing import Any, cast

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.client.errors import ClientError
from headrace.console.endpoint import Download, Feed
from headrace.console.messages.endpoints import ENDPOINTS
from headrace.console.views.view import ViewError
from tests.harness.console.plain_source import plain_source

START = 1_700_000_000_000
PARTITIONS = 3
COUNT = 300


def call(bootstrap: str, path: str, body: Mapping[str, Any] | None = None, **params: str) -> Any:
    """The document of one call of an endpoint; of a download, its bytes."""

    async def ask() -> Any:
        async with plain_source(bootstrap) as source:
            method = "GET" if body is None else "POST"
            (endpoint,) = (each for each in ENDPOINTS if (each.method, each.path) == (method, path))
            answer = await endpoint.handle(source, params, body or {})
            if isinstance(answer, Download):
                return b"".join([chunk async for chunk in answer.chunks])
            return answer

    return asyncio.run(ask())


def page(bootstrap: str, topic: str, **params: str) -> Any:
    return call(bootstrap, "/messages", topic=topic, **params)


def create(bootstrap: str, topic: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(20)


def places(document: Any) -> list[tuple[int, int]]:
    return [(record["partition"], record["offset"]) for record in document["records"]]


@pytest.fixture(scope="module")
def orders(bootstrap: str) -> str:
    """Records of growing timestamps, in turn to three partitions; JSON values, text keys."""
    create(bootstrap, "console-orders", PARTITIONS)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    for number in range(COUNT):
        value = {"number": number, "user": {"id": number % 7}, "big": 12345678901234567890}
        producer.produce(
            "console-orders",
            json.dumps(value),
            f"key-{number % 10}",
            partition=number % PARTITIONS,
            timestamp=START + number * 1000,
            headers=[("trace", f"t-{number}")] if number % 5 == 0 else None,
        )
    assert producer.flush(30) == 0
    return "console-orders"


def numbers(document: Any) -> list[int]:
    return [json.loads(record["value"]["text"])["number"] for record in document["records"]]


def test_the_newest_records_come_first_and_older_pages_follow(bootstrap: str, orders: str) -> None:
    found: list[int] = []
    document = page(bootstrap, orders, limit="40")
    assert document["direction"] == "older"
    assert document["stopped_by"] == "limit"
    while True:
        found += numbers(document)
        if not document["more_older"]:
            break
        document = page(bootstrap, orders, limit="40", cursor=document["older"], direction="older")
    assert found == list(reversed(range(COUNT)))


def test_pages_onwards_show_every_record_once_in_order_of_time(bootstrap: str, orders: str) -> None:
    found: list[int] = []
    document = page(bootstrap, orders, limit="70", **{"from": "oldest"})
    while True:
        found += numbers(document)
        if not document["more_newer"]:
            break
        document = page(bootstrap, orders, limit="70", cursor=document["newer"], direction="newer")
    assert found == list(range(COUNT))


def test_a_page_back_shows_what_came_before(bootstrap: str, orders: str) -> None:
    first = page(bootstrap, orders, limit="10", **{"from": "oldest"})
    second = page(bootstrap, orders, limit="10", cursor=first["newer"], direction="newer")
    back = page(bootstrap, orders, limit="10", cursor=second["older"], direction="older")
    assert numbers(back) == list(reversed(numbers(first)))


def test_a_time_an_offset_and_partitions_say_where_to_begin(bootstrap: str, orders: str) -> None:
    at = page(bootstrap, orders, limit="3", **{"from": "time", "time": str(START + 150_000)})
    assert numbers(at) == [150, 151, 152]
    before = page(
        bootstrap, orders, limit="3", direction="older", **{"from": "time", "time": str(START + 150_000)}
    )
    assert numbers(before) == [149, 148, 147]
    at = page(bootstrap, orders, limit="2", partitions="1", offset="50", **{"from": "offset"})
    assert places(at) == [(1, 50), (1, 51)]


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("value.user.id == 3", lambda n: n % 7 == 3),
        ('key ~ "key-[1]*"', lambda n: False),
        ('key == "key-4" and offset >= 10', lambda n: n % 10 == 4 and n // 3 >= 10),
        ("header.trace exists and not partition in (0, 1)", lambda n: n % 5 == 0 and n % 3 == 2),
        ('timestamp >= "2023-11-14T22:13:20Z" and value.number < 3', lambda n: n < 3),
        ("value.big == 12345678901234567890 and value.number == 299", lambda n: n == 299),
    ],
)
def test_filters_find_their_records(bootstrap: str, orders: str, text: str, matches: Any) -> None:
    expected = [number for number in range(COUNT) if matches(number)]
    document = page(bootstrap, orders, limit="500", filter=text, **{"from": "oldest"})
    assert numbers(document) == expected
    assert document["stopped_by"] == "end"
    assert document["looked_at"] == COUNT
    backwards = page(bootstrap, orders, limit="500", filter=text)
    assert numbers(backwards) == list(reversed(expected))


def test_an_exact_key_in_hex(bootstrap: str, orders: str) -> None:
    document = page(bootstrap, orders, limit="500", key=b"key-4".hex(), key_as="hex")
    assert {record["key"]["text"] for record in document["records"]} == {"key-4"}
    assert len(document["records"]) == COUNT // 10


def test_numbers_in_json_are_shown_as_they_were_written(bootstrap: str, orders: str) -> None:
    record = page(bootstrap, orders, limit="1")["records"][0]
    assert record["value"]["form"] == "json"
    assert "12345678901234567890" in record["value"]["text"]


def test_wrong_filters_partitions_and_topics_are_refused_in_words(bootstrap: str, orders: str) -> None:
    with pytest.raises(ViewError, match="character 11"):
        page(bootstrap, orders, filter="offset >= or")
    with pytest.raises(ViewError, match="has no partition 9"):
        page(bootstrap, orders, partitions="9")
    with pytest.raises(ClientError, match="does not exist"):
        page(bootstrap, "console-no-such-topic")


def test_records_of_aborted_and_open_transactions_are_shown_only_when_asked_for(
    bootstrap: str, topic: str
) -> None:
    create(bootstrap, topic)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions()
    for outcome in ("kept", "dropped", "undecided"):
        producer.begin_transaction()
        producer.produce(topic, outcome)
        producer.flush(20)
        if outcome == "kept":
            producer.commit_transaction()
        elif outcome == "dropped":
            producer.abort_transaction()

    def shown(**params: str) -> Any:
        found = page(bootstrap, topic, **{"from": "oldest", **params})["records"]
        return [(record["value"]["text"], record["transaction"]) for record in found]

    assert shown() == [("kept", "committed")]
    everything = [("kept", "committed"), ("dropped", "aborted"), ("undecided", "open")]
    assert shown(uncommitted="1") == everything
    producer.abort_transaction()
    newest = page(bootstrap, topic, uncommitted="1")["records"]
    assert [record["transaction"] for record in newest] == ["aborted", "aborted", "committed"]


def test_a_long_value_is_cut_and_downloaded_whole(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    value = "ä".encode() * 100_000
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, value, b"\xff\x00")
    assert producer.flush(20) == 0
    (record,) = page(bootstrap, topic)["records"]
    assert record["value"]["cut"]
    assert record["value"]["size"] == len(value)
    assert record["value"]["text"] == "ä" * (32 << 10)
    assert (record["key"]["form"], record["key"]["text"]) == ("hex", "ff00")
    assert call(bootstrap, "/messages/record", topic=topic, partitions="0", offset="0") == value
    key = call(bootstrap, "/messages/record", topic=topic, partitions="0", offset="0", part="key")
    assert key == b"\xff\x00"


def test_a_page_ends_at_two_megabytes_and_goes_on(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(60):
        producer.produce(topic, bytes([65 + number % 26]) * 60_000)
    assert producer.flush(20) == 0
    document = page(bootstrap, topic, limit="500", **{"from": "oldest"})
    assert document["stopped_by"] == "bytes"
    assert len(json.dumps(document)) < 2_000_000
    rest = 0
    found = places(document)
    while document["more_newer"]:
        document = page(bootstrap, topic, limit="500", cursor=document["newer"], direction="newer")
        found += places(document)
        rest += 1
    assert found == [(0, offset) for offset in range(60)]
    assert rest > 1


def test_a_produced_record_is_acknowledged_with_its_place(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 2)
    body = {
        "topic": topic,
        "key": {"form": "text", "text": "k"},
        "value": {"form": "json", "text": '{"a": 1}'},
        "headers": [{"name": "trace", "value": {"form": "hex", "text": "00 ff"}}],
        "partition": 1,
    }
    answer = call(bootstrap, "/messages", body)
    assert (answer["partition"], answer["offset"]) == (1, 0)
    assert "--json-lines" in answer["commands"][0]["command"]
    tombstone = {"topic": topic, "key": {"form": "text", "text": "k"}, "value": {"form": "null"}}
    assert call(bootstrap, "/messages", tombstone)["offset"] is not None
    (record,) = page(bootstrap, topic, filter="header.trace exists")["records"]
    assert record["headers"][0]["text"] == "00ff"
    (empty,) = page(bootstrap, topic, filter="value == null")["records"]
    assert empty["value"]["form"] == "null"


def test_what_is_no_record_is_refused_and_no_topic_is_created(bootstrap: str, topic: str) -> None:
    with pytest.raises(ViewError, match="not JSON"):
        call(bootstrap, "/messages", {"topic": topic, "value": {"form": "json", "text": "{"}})
    with pytest.raises(ClientError, match="does not exist"):
        call(bootstrap, "/messages", {"topic": topic, "value": {"form": "text", "text": "x"}})


def test_downloads_have_every_record_that_the_filter_takes(bootstrap: str, orders: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    asked = {"topic": orders, "from": "oldest", "filter": "value.user.id == 3"}
    expected = [number for number in range(COUNT) if number % 7 == 3]
    lines = call(bootstrap, "/messages/download", **asked).splitlines()
    assert [json.loads(json.loads(line)["value"])["number"] for line in lines] == expected
    parquet = call(bootstrap, "/messages/download", **asked, format="parquet")
    table = pq.read_table(pa.BufferReader(parquet))
    assert [json.loads(value)["number"] for value in table["value"].to_pylist()] == expected
    limited = call(bootstrap, "/messages/download", topic=orders, limit="7").splitlines()
    assert len(limited) == 7


def test_a_tail_shows_new_records_and_counts_those_passed_over(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    burst = 5_000

    async def follow() -> tuple[int, int, int]:
        async with plain_source(bootstrap) as source:
            (endpoint,) = (each for each in ENDPOINTS if each.path == "/messages/tail")
            feed = await endpoint.handle(source, {"topic": topic}, {})
            assert isinstance(feed, Feed)
            event, _ = await anext(feed.events)
            assert event == "started"
            producer = Producer({"bootstrap.servers": bootstrap})
            for number in range(burst):
                producer.produce(topic, str(number))
            assert await asyncio.to_thread(producer.flush, 30) == 0
            shown = not_shown = not_looked_at = 0
            async for event, document in feed.events:
                assert event == "records"
                assert len(document["records"]) <= 25
                shown += len(document["records"])
                not_shown += document["not_shown"]
                not_looked_at += document["not_looked_at"]
                if shown + not_shown + not_looked_at >= burst:
                    break
            await cast("AsyncGenerator[Any, None]", feed.events).aclose()
            return shown, not_shown, not_looked_at

    shown, not_shown, not_looked_at = asyncio.run(asyncio.wait_for(follow(), 60))
    assert shown + not_shown + not_looked_at == burst
    assert 0 < shown < 1_000
