# SPDX-License-Identifier: Apache-2.0
"""What the console changes, on a live node: offsets of groups, and dead letters; each applied once."""

from __future__ import annotations

import asyncio
import itertools
import shlex
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.client.tools.groups import Groups
from headrace.console.actions.endpoints import ENDPOINTS
from headrace.console.views.view import ViewError
from tests.harness.console.plain_source import plain_source
from tests.harness.waiting import wait_until

PREVIEW, SET = "/groups/offsets/preview", "/groups/offsets"
REPLAY_PREVIEW, REPLAY = "/dead-letters/replay/preview", "/dead-letters/replay"


def call(bootstrap: str, path: str, body: Mapping[str, Any]) -> Any:
    async def ask() -> Any:
        async with plain_source(bootstrap) as source:
            (endpoint,) = (each for each in ENDPOINTS if each.path == path)
            assert endpoint.changes
            return await endpoint.handle(source, {}, body)

    return asyncio.run(ask())


def create(bootstrap: str, topic: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(20)


def commit(bootstrap: str, group: str, topic: str, *offsets: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    entries = [TopicPartition(topic, number, offset) for number, offset in enumerate(offsets)]
    request = ConsumerGroupTopicPartitions(group, entries)
    admin.alter_consumer_group_offsets([request])[group].result(20)


def committed(bootstrap: str, group: str) -> list[int]:
    return list(Groups(bootstrap).committed(group).values())


@pytest.fixture
def group(bootstrap: str, topic: str) -> str:
    """Two partitions of 20 records each; 5 and 8 are committed."""
    create(bootstrap, topic, 2)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(40):
        timestamp = 1_700_000_000_000 + number * 1000
        producer.produce(topic, f"{number}", partition=number % 2, timestamp=timestamp)
    assert producer.flush(20) == 0
    commit(bootstrap, f"{topic}-group", topic, 5, 8)
    return f"{topic}-group"


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ({"kind": "earliest"}, [0, 0]),
        ({"kind": "latest"}, [20, 20]),
        ({"kind": "offset", "value": 7}, [7, 7]),
        ({"kind": "time", "value": 1_700_000_010_000}, [5, 5]),
        ({"kind": "shift", "value": -6}, [0, 2]),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else None,
)
def test_offsets_are_previewed_and_set(
    bootstrap: str, group: str, strategy: dict[str, Any], expected: list[int]
) -> None:
    preview = call(bootstrap, PREVIEW, {"group": group, "strategy": strategy})
    assert [change["from"] for change in preview["changes"]] == [5, 8]
    assert [change["to"] for change in preview["changes"]] == expected
    assert preview["read_again"] == sum(max(0, old - new) for old, new in zip([5, 8], expected, strict=True))
    assert preview["skipped"] == sum(max(0, new - old) for old, new in zip([5, 8], expected, strict=True))
    assert preview["blocked"] is None
    assert committed(bootstrap, group) == [5, 8], "a preview changes nothing"
    assert call(bootstrap, SET, {"token": preview["token"]})["applied"] == 2
    assert committed(bootstrap, group) == expected


def test_single_offsets_are_set_and_the_command_does_the_same(bootstrap: str, group: str, topic: str) -> None:
    strategy = {"kind": "set", "offsets": [{"topic": topic, "partition": 1, "offset": 3}]}
    preview = call(bootstrap, PREVIEW, {"group": group, "strategy": strategy})
    assert [(each["partition"], each["to"]) for each in preview["changes"]] == [(1, 3)]
    (command,) = preview["commands"]
    words = command["command"].replace("headrace", f"{shlex.quote(sys.executable)} -m headrace", 1)
    subprocess.run(["sh", "-c", words], check=True, timeout=120, capture_output=True)
    assert committed(bootstrap, group) == [5, 3]


def test_a_token_is_good_once(bootstrap: str, group: str) -> None:
    preview = call(bootstrap, PREVIEW, {"group": group, "strategy": {"kind": "earliest"}})
    call(bootstrap, SET, {"token": preview["token"]})
    with pytest.raises(ViewError, match="applied already") as refused:
        call(bootstrap, SET, {"token": preview["token"]})
    assert refused.value.status == 409


def test_a_preview_does_not_hold_once_the_group_has_committed(bootstrap: str, group: str, topic: str) -> None:
    preview = call(bootstrap, PREVIEW, {"group": group, "strategy": {"kind": "earliest"}})
    commit(bootstrap, group, topic, 6, 8)
    with pytest.raises(ViewError, match="was at offset 5, now it is at offset 6"):
        call(bootstrap, SET, {"token": preview["token"]})
    assert committed(bootstrap, group) == [6, 8]


def test_offsets_of_a_group_with_members_are_not_set(bootstrap: str, group: str, topic: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "client.id": "the-reader"})
    consumer.subscribe([topic])
    try:
        wait_until(lambda: consumer.poll(0.2) is not None, timeout_s=60)
        preview = call(bootstrap, PREVIEW, {"group": group, "strategy": {"kind": "earliest"}})
        assert "the-reader" in preview["blocked"]["text"]
        with pytest.raises(ViewError, match="the-reader") as refused:
            call(bootstrap, SET, {"token": preview["token"]})
        assert refused.value.status == 409
        assert "stop its consumers" in (refused.value.next_step or "")
    finally:
        consumer.close()


def dead_letter(origin: str, partition: int, offset: int, error: str = "boom 7") -> list[tuple[str, bytes]]:
    told = {"topic": origin, "partition": partition, "offset": offset, "error": error, "attempts": 3}
    return [("trace", b"t"), *((f"headrace.{name}", str(value).encode()) for name, value in told.items())]


@pytest.fixture
def letters(bootstrap: str, topic: str) -> str:
    """Dead letters of `topic`: three that can be replayed, and some that name other places."""
    create(bootstrap, topic, 3)
    dead = f"{topic}-dead"
    create(bootstrap, dead)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(3):
        producer.produce(dead, f"value-{number}", f"key-{number}", headers=dead_letter(topic, 2, number))
    producer.produce(dead, "x", headers=dead_letter("__consumer_offsets", 0, 1))
    producer.produce(dead, "x", headers=dead_letter("no-such-topic", 0, 1, "other"))
    producer.produce(dead, "not a dead letter")
    assert producer.flush(20) == 0
    return dead


def records(bootstrap: str, topic: str) -> list[tuple[int, bytes, bytes, Any]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(3)])
    found = []
    try:
        for _ in itertools.takewhile(lambda _: len(found) < 100, iter(int, 1)):
            message = consumer.poll(2)
            if message is None:
                break
            assert message.error() is None
            found.append((message.partition(), message.key(), message.value(), message.headers()))
    finally:
        consumer.close()
    return found


def test_dead_letters_go_back_once_to_where_they_came_from(bootstrap: str, topic: str, letters: str) -> None:
    preview = call(bootstrap, REPLAY_PREVIEW, {"topic": letters, "records": None})
    assert preview["targets"] == [{"topic": topic, "count": 3}]
    reasons = {each["offset"]: each["reason"] for each in preview["refused"]}
    assert set(reasons) == {3, 4}
    assert "internal" in reasons[3]
    assert "does not exist" in reasons[4]
    assert records(bootstrap, topic) == [], "a preview sends nothing"
    answer = call(bootstrap, REPLAY, {"token": preview["token"]})
    assert (answer["replayed"], answer["failed"]) == (3, 0)
    expected = [
        (2, f"key-{number}".encode(), f"value-{number}".encode(), [("trace", b"t")]) for number in range(3)
    ]
    assert records(bootstrap, topic) == expected
    with pytest.raises(ViewError, match="applied already"):
        call(bootstrap, REPLAY, {"token": preview["token"]})
    after = call(bootstrap, REPLAY_PREVIEW, {"topic": letters, "records": None})
    assert (after["count"], after["already"]) == (0, 3)
    assert records(bootstrap, topic) == expected


def test_chosen_dead_letters_are_replayed_again_only_when_asked(
    bootstrap: str, topic: str, letters: str
) -> None:
    chosen = {"topic": letters, "records": [{"partition": 0, "offset": 1}]}
    for again in (False, True):
        preview = call(bootstrap, REPLAY_PREVIEW, {**chosen, "again": again})
        assert preview["count"] == 1
        assert call(bootstrap, REPLAY, {"token": preview["token"]})["replayed"] == 1
    assert [value for _, _, value, _ in records(bootstrap, topic)] == [b"value-1", b"value-1"]


def test_dead_letters_of_one_kind_of_error(bootstrap: str, letters: str) -> None:
    preview = call(bootstrap, REPLAY_PREVIEW, {"topic": letters, "records": None, "error": "boom #"})
    assert (preview["count"], preview["refused_count"]) == (3, 1)
