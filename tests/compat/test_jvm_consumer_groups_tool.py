# SPDX-License-Identifier: Apache-2.0
"""Apache Kafka's consumer-groups tool, unmodified: list, describe, reset by every strategy, delete."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.compat.java_tool import JavaTool
from tests.harness.live.raw_client import RawClient

pytestmark = [pytest.mark.compat_jvm, pytest.mark.row("D14")]

RECORDS = 10
FIRST_MS = 1_700_000_000_000
"""Records are a second apart from here on, the same in both partitions."""
PROTOCOLS = {"classic": "Classic", "consumer": "Consumer"}

Rows = list[dict[str, str]]


def rows(printed: str) -> Rows:
    """A table of the tool: a line of names, then lines of values."""
    lines = [line.split() for line in printed.splitlines() if line.strip()]
    start = next(place for place, line in enumerate(lines) if line[0] in ("GROUP", "TOPIC"))
    names = lines[start]
    return [dict(zip(names, line, strict=False)) for line in lines[start + 1 :]]


def offsets(printed: str, column: str) -> dict[int, str]:
    return {int(row["PARTITION"]): row[column] for row in rows(printed)}


def fill(bootstrap: str, topic: str) -> None:
    with RawClient(bootstrap) as client:
        client.create_topic(topic, 2)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        for partition in (0, 1):
            when = FIRST_MS + 1000 * number
            producer.produce(topic, b"v%d" % number, partition=partition, timestamp=when)
    assert producer.flush(20) == 0


@contextmanager
def member(bootstrap: str, topic: str, group: str, protocol: str = "classic") -> Iterator[Consumer]:
    """A consumer that owns both partitions and has committed 4 and 7."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "client.id": "the-member",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    deadline = time.monotonic() + 30
    while len(consumer.assignment()) < 2:
        consumer.poll(0.1)
        assert time.monotonic() < deadline, "no assignment"
    consumer.commit(offsets=[TopicPartition(topic, 0, 4), TopicPartition(topic, 1, 7)], asynchronous=False)
    try:
        yield consumer
    finally:
        consumer.close()


@pytest.fixture
def group(java: JavaTool, topic: str) -> str:
    """An empty group that has read to 4 and 7 of 10."""
    fill(java.bootstrap, topic)
    name = f"group-of-{topic}"
    with member(java.bootstrap, topic, name):
        pass
    return name


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_active_group_is_listed_and_described(java: JavaTool, topic: str, protocol: str) -> None:
    fill(java.bootstrap, topic)
    group = f"group-of-{topic}"
    with member(java.bootstrap, topic, group, protocol):
        listed = java("consumer-groups", "--list", "--state", "--type")
        found = next(line.split() for line in listed.splitlines() if line.startswith(group))
        assert found == [group, PROTOCOLS[protocol], "Stable"]
        described = rows(java("consumer-groups", "--describe", "--group", group, "--offsets"))
        assert [
            (row["PARTITION"], row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) for row in described
        ] == [
            ("0", "4", "10", "6"),
            ("1", "7", "10", "3"),
        ]
        assert {row["CLIENT-ID"] for row in described} == {"the-member"}
        (one,) = rows(java("consumer-groups", "--describe", "--group", group, "--members", "--verbose"))
        assert one["CLIENT-ID"] == "the-member"
        assert one["#PARTITIONS"] == "2"
        assert f"{topic}:0,1" in " ".join(one.values())
        (state,) = rows(java("consumer-groups", "--describe", "--group", group, "--state"))
        assert state["#MEMBERS"] == "1"
        assert "Stable" in state.values()
        refused = java.run("consumer-groups", "--delete", "--group", group)
        assert "GroupNotEmptyException" in refused.output
        all_groups = java("consumer-groups", "--describe", "--all-groups", "--state")
        assert group in all_groups


RESETS = {
    "to-earliest": (("--to-earliest",), (0, 0)),
    "to-latest": (("--to-latest",), (10, 10)),
    "to-offset": (("--to-offset", "5"), (5, 5)),
    "to-offset beyond the end": (("--to-offset", "99"), (10, 10)),
    "shift-by": (("--shift-by", "2"), (6, 9)),
    "shift-by back": (("--shift-by", "-3"), (1, 4)),
    "to-current": (("--to-current",), (4, 7)),
    "to-datetime": (
        (
            "--to-datetime",
            datetime.fromtimestamp(FIRST_MS / 1000 + 2.5, UTC).isoformat("T", "milliseconds")[:23],
        ),
        (3, 3),
    ),
    "by-duration": (("--by-duration", "P1D"), (10, 10)),
}


def test_offsets_are_reset_by_every_strategy(java: JavaTool, topic: str, group: str, tmp_path: Path) -> None:
    for name, (strategy, expected) in RESETS.items():
        asked = ("--reset-offsets", "--group", group, "--topic", topic, *strategy)
        planned = java("consumer-groups", *asked, "--dry-run")
        assert offsets(planned, "NEW-OFFSET") == dict(enumerate(map(str, expected))), name
    exported = java(
        "consumer-groups",
        "--reset-offsets",
        "--group",
        group,
        "--topic",
        topic,
        "--to-offset",
        "2",
        "--export",
    )
    plan = tmp_path / "plan.csv"
    plan.write_text("".join(line + "\n" for line in exported.splitlines() if line.startswith('"')))
    for strategy, expected in (
        (("--topic", f"{topic}:1", "--to-earliest"), {0: "4", 1: "0"}),
        (("--all-topics", "--shift-by", "1"), {0: "5", 1: "1"}),
        (("--from-file", str(plan)), {0: "2", 1: "2"}),
    ):
        java("consumer-groups", "--reset-offsets", "--group", group, *strategy, "--execute")
        assert committed(java, group) == expected


def committed(java: JavaTool, group: str) -> dict[int, str]:
    return offsets(java("consumer-groups", "--describe", "--group", group), "CURRENT-OFFSET")


def test_offsets_and_groups_are_deleted(java: JavaTool, topic: str, group: str) -> None:
    printed = java("consumer-groups", "--delete-offsets", "--group", group, "--topic", f"{topic}:0")
    assert "Request succeed" in printed
    assert committed(java, group) == {1: "7"}
    printed = java("consumer-groups", "--delete", "--group", group)
    assert f"Deletion of requested consumer groups ('{group}') was successful." in printed
    assert group not in java("consumer-groups", "--list").split()
    gone = java.run("consumer-groups", "--describe", "--group", group)
    assert "GroupIdNotFoundException" in gone.output


def test_an_active_group_keeps_its_offsets(java: JavaTool, topic: str) -> None:
    fill(java.bootstrap, topic)
    group = f"group-of-{topic}"
    with member(java.bootstrap, topic, group):
        refused = java.run(
            "consumer-groups",
            "--reset-offsets",
            "--group",
            group,
            "--topic",
            topic,
            "--to-earliest",
            "--execute",
        )
        assert "inactive" in refused.output
        refused = java.run("consumer-groups", "--delete-offsets", "--group", group, "--topic", topic)
        assert "GroupSubscribedToTopicException" in refused.output


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_console_consumer_goes_on_where_it_stopped(java: JavaTool, topic: str, protocol: str) -> None:
    fill(java.bootstrap, topic)
    arguments = ("--topic", topic, "--group", f"group-of-{topic}", "--timeout-ms", "20000")
    arguments += ("--command-property", f"group.protocol={protocol}", "--from-beginning")
    first = java("console-consumer", *arguments, "--max-messages", "8").split()
    rest = java("console-consumer", *arguments, "--max-messages", "12").split()
    assert sorted(first + rest) == sorted([f"v{number}" for number in range(RECORDS)] * 2)
